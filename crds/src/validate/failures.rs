//! Failure handlers: rules that can apply.

use super::Findings;
use crate::problem::Problem;
use crate::workflow::WorkflowSpec;

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    for (index, handler) in spec.failure_handlers.iter().enumerate() {
        let field = format!("spec.failureHandlers[{index}].rules");
        if handler.rules.is_empty() {
            found.tolerated(Problem::error(field.as_str(), "a failure handler needs at least one rule"));
        }
        for (at, rule) in handler.rules.iter().enumerate() {
            let matches_all = rule.match_all_exit_codes == Some(true);
            if rule.exit_codes.is_empty() && rule.causes.is_empty() && !matches_all {
                found.tolerated(
                    Problem::error(format!("{field}[{at}]"), "the rule never applies")
                        .hint("list exit codes or causes, or match all exit codes"),
                );
            }
            if let Some(code) = rule.exit_codes.iter().position(|code| *code == 0) {
                found.tolerated(Problem::error(
                    format!("{field}[{at}].exitCodes[{code}]"),
                    "exit code 0 is a success and never handled",
                ));
            }
        }
    }
}
