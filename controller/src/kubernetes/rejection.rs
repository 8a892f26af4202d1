//! Why a document is not accepted, in the words of the condition `Accepted`. Pure.

use torc_api::condition::ConditionReason as Reason;
use torc_api::problem::{Problem, ProblemKind};

/// So many problems are told.
const MAX_PROBLEMS: usize = 5;
/// The longest message.
const MAX_MESSAGE_BYTES: usize = 600;

/// Why the present generation was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    /// The reason of `Accepted=False`.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

impl Rejection {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: cut(&message.into(), MAX_MESSAGE_BYTES) }
    }

    /// Returns whether another try may succeed without an edit of the object.
    pub const fn may_pass(&self) -> bool {
        matches!(self.reason, Reason::SourceMissing | Reason::ClusterNotFound)
    }

    /// Of a document with problems. What is not a matter of its structure names the reason.
    pub fn of_problems(problems: &[Problem]) -> Self {
        let kind = problems.iter().map(|problem| problem.kind).max().unwrap_or_default();
        let reason = match kind {
            ProblemKind::Plain | ProblemKind::UnknownReference => Reason::InvalidSpec,
            ProblemKind::Duplicate => Reason::DuplicateName,
            ProblemKind::Cycle => Reason::CycleFound,
            ProblemKind::TooLarge => Reason::TooLarge,
        };
        // Those that gave the reason come first.
        let (first, rest): (Vec<&Problem>, Vec<&Problem>) = problems.iter().partition(|problem| problem.kind == kind);
        let mut told: Vec<String> = first.iter().chain(&rest).take(MAX_PROBLEMS).map(|one| sentence(one)).collect();
        if problems.len() > MAX_PROBLEMS {
            told.push(format!("and {} more problems", problems.len() - MAX_PROBLEMS));
        }
        Self::new(reason, told.join("; "))
    }
}

fn sentence(problem: &Problem) -> String {
    let field = if problem.field.is_empty() { String::new() } else { format!("{}: ", problem.field) };
    let hint = problem.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
    format!("{field}{}{hint}", problem.message)
}

/// The first so many bytes of a text, and a sign that there were more.
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
            (vec![plain()], Reason::InvalidSpec, "spec.a: is wrong"),
            (vec![plain(), double()], Reason::DuplicateName, "spec.b: is there twice; spec.a: is wrong"),
            (vec![double(), circle()], Reason::CycleFound, "spec.jobs[0]: a → a; spec.b: is there twice"),
            (vec![large().hint("use fewer")], Reason::TooLarge, "spec.jobs: too many (use fewer)"),
        ] {
            assert_eq!(Rejection::of_problems(&problems), Rejection { reason, message: message.to_owned() });
        }
        let many = Rejection::of_problems(&vec![plain(); 9]).message;
        assert!(many.ends_with("; and 4 more problems"), "{many}");
        let long = Rejection::new(Reason::InvalidSpec, "x".repeat(5_000)).message;
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.ends_with('…'), "a status stays small");
    }

    #[test]
    fn what_may_pass_by_itself_is_looked_at_again() {
        for (reason, may_pass) in [
            (Reason::InvalidSpec, false),
            (Reason::CycleFound, false),
            (Reason::DuplicateName, false),
            (Reason::SourceMissing, true),
            (Reason::TooLarge, false),
            (Reason::ClusterNotFound, true),
        ] {
            assert_eq!(Rejection::new(reason, "").may_pass(), may_pass, "{reason}");
        }
    }

    #[test]
    fn five_problems_are_told_and_the_others_are_counted() {
        let plain = |number: usize| Problem::error("", format!("wrong {number}"));
        let told = |count: usize| Rejection::of_problems(&(0..count).map(plain).collect::<Vec<_>>()).message;
        assert_eq!(told(5), "wrong 0; wrong 1; wrong 2; wrong 3; wrong 4");
        assert_eq!(told(6), "wrong 0; wrong 1; wrong 2; wrong 3; wrong 4; and 1 more problems");
        assert_eq!(Rejection::new(Reason::TooLarge, "x".repeat(600)).message.len(), 600, "that fits");
        assert_eq!(Rejection::new(Reason::TooLarge, "x".repeat(601)).message, format!("{}…", "x".repeat(597)));
    }
}
