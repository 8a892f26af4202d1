//! The rules that a schema alone cannot say and that an API server evaluates too, each once.
//!
//! They are written in CEL, Kubernetes' language for this. The custom resource definitions carry them, and documents that never
//! see an API server are held against the same expressions: what is refused here is refused there, in the same words.
//! Deliberately absent: rules over free-form values, which CEL cannot see, and rules that compare entries of long lists, which
//! would cost more than an API server allows. Those are in `validate`, and in a cluster the condition `Accepted` tells them.

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

/// One rule of one place in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it applies, e.g. `spec.jobs[]`; empty for the document as a whole.
    pub place: &'static str,
    /// What must be true, in CEL.
    pub cel: &'static str,
    /// What is said when it is not.
    pub words: Words,
    /// The field below the place that is at fault.
    pub field: Option<&'static str>,
    /// What to do about it.
    pub hint: Option<&'static str>,
    /// Torc 1.0 took no offence: a warning in a bare file.
    pub tolerated: bool,
    /// Who decides where there is no API server.
    pub judge: Judge,
}

/// What is said when a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Always the same.
    Fixed(&'static str),
    /// The value of an expression.
    Expression(&'static str),
}

/// Who decides where there is no API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The expression itself.
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

    /// Whether it compares a document with the one before.
    pub fn is_transition(&self) -> bool {
        self.cel.contains("oldSelf")
    }

    /// The rule as a custom resource definition has it.
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
