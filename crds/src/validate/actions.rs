//! Checks that the commands of actions are not empty.

use super::Findings;
use crate::workflow::WorkflowSpec;

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    for (index, action) in spec.actions.iter().enumerate() {
        for (at, command) in action.commands.iter().flatten().enumerate() {
            if command.trim().is_empty() {
                found.error(format!("spec.actions[{index}].commands[{at}]"), "must not be empty");
            }
        }
    }
}
