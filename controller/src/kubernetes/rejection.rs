//! The reasons why a document is rejected, as the condition `Accepted` shows them.

use torc_api::condition::ConditionReason;
use torc_api::problem::{Problem, ProblemKind};

/// Maximum number of problems that the message lists.
const MAX_PROBLEMS: usize = 5;
/// Maximum size of the message, in bytes.
const MAX_MESSAGE_BYTES: usize = 600;

/// The rejection of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub reason: ConditionReason,
    pub message: String,
}

impl Rejection {
    pub fn new(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self { reason, message: cut(&message.into(), MAX_MESSAGE_BYTES) }
    }

    /// Returns whether another try may succeed without an edit of the object.
    pub const fn may_pass(&self) -> bool {
        matches!(self.reason, ConditionReason::SourceMissing | ConditionReason::ClusterNotFound)
    }

    /// Returns the rejection of a document with problems. A problem other than an invalid structure determines the reason.
    pub fn of_problems(problems: &[Problem]) -> Self {
        let kind = problems.iter().map(|problem| problem.kind).max().unwrap_or_default();
        let reason = match kind {
            ProblemKind::Plain | ProblemKind::UnknownReference => ConditionReason::InvalidSpec,
            ProblemKind::Duplicate => ConditionReason::DuplicateName,
            ProblemKind::Cycle => ConditionReason::CycleFound,
            ProblemKind::TooLarge => ConditionReason::TooLarge,
        };
        // The problems that determine the reason come first.
        let (first, rest): (Vec<&Problem>, Vec<&Problem>) = problems.iter().partition(|problem| problem.kind == kind);
        let mut listed: Vec<String> = first.iter().chain(&rest).take(MAX_PROBLEMS).map(|one| sentence(one)).collect();
        if problems.len() > MAX_PROBLEMS {
            let left_out = problems.len() - MAX_PROBLEMS;
            listed.push(format!("and {left_out} more problem{}", if left_out == 1 { "" } else { "s" }));
        }
        Self::new(reason, listed.join("; "))
    }
}

fn sentence(problem: &Problem) -> String {
    let field = if problem.field.is_empty() { String::new() } else { format!("{}: ", problem.field) };
    let hint = problem.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
    format!("{field}{}{hint}", problem.message)
}

/// Returns the first bytes of a text, with an ellipsis if it was longer.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_their_reason() {
        let plain = || Problem::error("spec.a", "is wrong");
        let double = || Problem::error("spec.b", "is there twice").kind(ProblemKind::Duplicate);
        let circle = || Problem::error("spec.jobs[0]", "a → a").kind(ProblemKind::Cycle);
        let large = || Problem::error("spec.jobs", "too many").kind(ProblemKind::TooLarge);
        for (problems, reason, message) in [
            (vec![plain()], ConditionReason::InvalidSpec, "spec.a: is wrong"),
            (vec![plain(), double()], ConditionReason::DuplicateName, "spec.b: is there twice; spec.a: is wrong"),
            (vec![double(), circle()], ConditionReason::CycleFound, "spec.jobs[0]: a → a; spec.b: is there twice"),
            (vec![large().hint("use fewer")], ConditionReason::TooLarge, "spec.jobs: too many (use fewer)"),
        ] {
            assert_eq!(Rejection::of_problems(&problems), Rejection { reason, message: message.to_owned() });
        }
        let many = Rejection::of_problems(&vec![plain(); 9]).message;
        assert!(many.ends_with("; and 4 more problems"), "{many}");
        let long = Rejection::new(ConditionReason::InvalidSpec, "x".repeat(5_000)).message;
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.ends_with('…'), "a status stays small");
    }

    #[test]
    fn what_may_pass_by_itself_is_looked_at_again() {
        for (reason, may_pass) in [
            (ConditionReason::InvalidSpec, false),
            (ConditionReason::CycleFound, false),
            (ConditionReason::DuplicateName, false),
            (ConditionReason::SourceMissing, true),
            (ConditionReason::TooLarge, false),
            (ConditionReason::ClusterNotFound, true),
        ] {
            assert_eq!(Rejection::new(reason, "").may_pass(), may_pass, "{reason}");
        }
    }

    #[test]
    fn five_problems_are_told_and_the_others_are_counted() {
        let plain = |number: usize| Problem::error("", format!("wrong {number}"));
        let message = |count: usize| Rejection::of_problems(&(0..count).map(plain).collect::<Vec<_>>()).message;
        assert_eq!(message(5), "wrong 0; wrong 1; wrong 2; wrong 3; wrong 4");
        assert_eq!(message(6), "wrong 0; wrong 1; wrong 2; wrong 3; wrong 4; and 1 more problem");
        assert_eq!(Rejection::new(ConditionReason::TooLarge, "x".repeat(600)).message.len(), 600, "that fits");
        assert_eq!(Rejection::new(ConditionReason::TooLarge, "x".repeat(601)).message, format!("{}…", "x".repeat(597)));
    }
}
