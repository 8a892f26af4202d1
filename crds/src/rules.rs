//! Rules in CEL that a schema alone cannot express.
//!
//! The custom resource definitions contain these rules, and Torc evaluates the same expressions without Kubernetes. So
//! both reject the same documents with the same messages.
//!
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
pub(crate) use evaluate::creation_findings;
#[cfg(feature = "load")]
pub use evaluate::updated;
pub use workflows::WORKFLOW;

use serde_json::{Value, json};

/// A rule for one field of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The path of the values to which it applies, e.g. `spec.jobs[]`; empty for the whole document.
    pub path: &'static str,
    /// The condition that must hold, in CEL.
    pub cel: &'static str,
    /// The message if the condition does not hold.
    pub message: MessageExpr,
    /// The field below `path` that the message is about.
    pub field: Option<&'static str>,
    /// A hint that helps to solve the problem.
    pub hint: Option<&'static str>,
    /// Torc 1.0 tolerates the problem, so it is a warning in a bare file.
    pub tolerated: bool,
    /// The evaluator of the rule without an API server.
    pub evaluator: Evaluator,
}

/// The message of a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageExpr {
    /// The same text for every value.
    Fixed(&'static str),
    /// The value of a CEL expression.
    Expression(&'static str),
}

/// The evaluator of the rule without an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// Torc evaluates the CEL expression itself.
    Expression,
    /// The parser in `quantity`, which has a hint for every mistake. A test compares it with the expression.
    Parser,
}

impl Rule {
    const fn new(path: &'static str, cel: &'static str, message: &'static str) -> Self {
        let message = MessageExpr::Fixed(message);
        Self { path, cel, message, field: None, hint: None, tolerated: false, evaluator: Evaluator::Expression }
    }

    const fn with_message_expression(path: &'static str, cel: &'static str, expression: &'static str) -> Self {
        Self { message: MessageExpr::Expression(expression), ..Self::new(path, cel, "") }
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
        Self { evaluator: Evaluator::Parser, ..self }
    }

    /// Returns whether the rule compares a document with its predecessor.
    pub fn is_transition(&self) -> bool {
        self.cel.contains("oldSelf")
    }

    /// Returns the rule as an entry of a custom resource definition.
    pub fn to_json(&self) -> Value {
        let mut rule = json!({ "rule": self.cel });
        match self.message {
            MessageExpr::Fixed(message) => rule["message"] = message.into(),
            MessageExpr::Expression(expression) => rule["messageExpression"] = expression.into(),
        }
        if let Some(field) = self.field {
            rule["fieldPath"] = format!(".{field}").into();
        }
        rule
    }
}

#[cfg(all(test, feature = "load"))]
mod tests;
