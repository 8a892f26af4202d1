//!
//! Rules in CEL that a schema alone cannot express.
//!
//! The custom resource definitions contain these rules, and Torc evaluates the same expressions without Kubernetes.
//! So both refuse the same documents with the same messages.
//! Deliberately absent: rules over free-form values, which CEL cannot see, and rules that compare entries of long
//! lists, which exceed an API server's cost limit. Those are in `validate`; on Kubernetes the condition `Accepted`
//! reports them.

mod clusters;
#[cfg(feature = "load")]
mod evaluate;
mod quantities;
#[cfg(feature = "load")]
mod view;
mod workflows;

pub use clusters::CLUSTER;
#[cfg(feature = "load")]
pub(crate) use evaluate::created;
#[cfg(feature = "load")]
pub use evaluate::updated;
pub use workflows::WORKFLOW;

use serde_json::{Value, json};

/// A rule for one place of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The place to which it applies, e.g. `spec.jobs[]`; empty for the whole document.
    pub place: &'static str,
    /// The condition that must hold, in CEL.
    pub cel: &'static str,
    /// The message if it does not hold.
    pub words: Words,
    /// The field below the place that is at fault.
    pub field: Option<&'static str>,
    /// A hint that helps to solve the problem.
    pub hint: Option<&'static str>,
    /// Torc 1.0 took no offence: a warning in a bare file.
    pub tolerated: bool,
    /// The evaluator where there is no API server.
    pub judge: Judge,
}

/// The message of a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The same text for every value.
    Fixed(&'static str),
    /// The value of an expression.
    Expression(&'static str),
}

/// The evaluator where there is no API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// Torc evaluates the CEL expression itself.
    Expression,
    /// The parser of the quantity, which has a hint for every mistake. A test holds the two against each other.
    Parser,
}

impl Rule {
    const fn new(place: &'static str, cel: &'static str, message: &'static str) -> Self {
        let words = Words::Fixed(message);
        Self { place, cel, words, field: None, hint: None, tolerated: false, judge: Judge::Expression }
    }

    const fn saying(place: &'static str, cel: &'static str, expression: &'static str) -> Self {
        Self { words: Words::Expression(expression), ..Self::new(place, cel, "") }
    }

    const fn field(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }

    const fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    const fn tolerated(self) -> Self {
        Self { tolerated: true, ..self }
    }

    const fn parsed(self) -> Self {
        Self { judge: Judge::Parser, ..self }
    }

    /// Returns whether it compares a document with its predecessor.
    pub fn is_transition(&self) -> bool {
        self.cel.contains("oldSelf")
    }

    /// Returns the rule as an entry of a custom resource definition.
    pub fn to_json(&self) -> Value {
        let mut rule = json!({ "rule": self.cel });
        match self.words {
            Words::Fixed(message) => rule["message"] = message.into(),
            Words::Expression(expression) => rule["messageExpression"] = expression.into(),
        }
        if let Some(field) = self.field {
            rule["fieldPath"] = format!(".{field}").into();
        }
        rule
    }
}

#[cfg(all(test, feature = "load"))]
mod tests;
