//! The status of a custom resource: the engine's status and the object's generations.

use torc_api::condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
use torc_api::status::WorkflowStatus;

use super::rejection::{Rejection, cut};

/// Maximum size of a status: an API server keeps many objects.
const MAX_STATUS_BYTES: usize = 8 << 10;
/// Maximum size of a condition's message.
const MAX_MESSAGE_BYTES: usize = 600;

/// The input of [`status`].
pub(super) struct View<'a> {
    /// The engine's status of the last accepted generation.
    pub engine: Option<&'a WorkflowStatus>,
    pub generation: i64,
    /// The last accepted generation.
    pub accepted: Option<i64>,
    /// The rejection of the current generation.
    pub rejection: Option<&'a Rejection>,
    /// The allocations and jobs that delay the deletion of the object.
    pub lingers: Option<&'a str>,
    /// The conditions that were written before.
    pub before: &'a [Condition],
    /// The current time in RFC 3339.
    pub now: &'a str,
    /// The address of the server.
    pub api_url: Option<&'a str>,
}

/// Returns the whole status.
pub(super) fn status(view: &View<'_>) -> WorkflowStatus {
    let mut status = view.engine.cloned().unwrap_or_default();
    status.observed_generation = Some(view.generation);
    status.api_url = view.api_url.map(str::to_owned);
    // `kubectl get` then shows a zero instead of an empty column.
    status.allocations.get_or_insert_default();
    let stated = std::mem::take(&mut status.conditions);
    status.conditions = ConditionType::OF_WORKFLOW.iter().map(|type_| condition(*type_, &stated, view)).collect();
    shortened(status)
}

fn condition(type_: ConditionType, stated: &[Condition], view: &View<'_>) -> Condition {
    let known = stated.iter().find(|condition| condition.type_ == type_.as_str()).cloned();
    let mut condition = match (view.rejection, known) {
        (Some(rejection), _) if type_ == ConditionType::Accepted => {
            plain(type_, ConditionStatus::False, rejection.reason, rejection.message.clone(), view.generation)
        }
        _ if type_ == ConditionType::Stalled && view.lingers.is_some() => {
            let message = view.lingers.unwrap_or_default().to_owned();
            plain(type_, ConditionStatus::True, ConditionReason::SlurmUnreachable, message, view.generation)
        }
        // The last accepted generation keeps running.
        (_, Some(known)) => Condition { observed_generation: view.accepted.or(Some(view.generation)), ..known },
        (Some(rejection), None) if type_ == ConditionType::Succeeded => plain(
            type_,
            ConditionStatus::False,
            ConditionReason::InvalidSpec,
            rejection.message.clone(),
            view.generation,
        ),
        (_, None) => absent(type_, view.generation),
    };
    if condition.message.len() > MAX_MESSAGE_BYTES {
        condition.message = cut(&condition.message, MAX_MESSAGE_BYTES);
    }
    condition.last_transition_time = since(&condition, view);
    condition
}

/// Returns the time of the last change of a condition's value. An earlier write of the same value keeps its time.
fn since(condition: &Condition, view: &View<'_>) -> String {
    let before = view.before.iter().find(|before| before.type_ == condition.type_);
    match before {
        Some(before) if before.status == condition.status => before.last_transition_time.clone(),
        Some(before) if condition.last_transition_time.as_str() > before.last_transition_time.as_str() => {
            condition.last_transition_time.clone()
        }
        None if !condition.last_transition_time.is_empty() => condition.last_transition_time.clone(),
        _ => view.now.to_owned(),
    }
}

fn plain(
    type_: ConditionType,
    status: ConditionStatus,
    reason: ConditionReason,
    message: String,
    generation: i64,
) -> Condition {
    Condition { observed_generation: Some(generation), ..Condition::new(type_, status, reason, message) }
}

/// Returns a condition that nothing has set: of a workflow that was never accepted, or one with its default value.
fn absent(type_: ConditionType, generation: i64) -> Condition {
    let (status, reason) = match type_ {
        ConditionType::Accepted | ConditionType::Succeeded => (ConditionStatus::Unknown, ConditionReason::Pending),
        ConditionType::AllocationsReady => (ConditionStatus::True, ConditionReason::NotNeeded),
        ConditionType::Suspended => (ConditionStatus::False, ConditionReason::NotSuspended),
        ConditionType::Recovering => (ConditionStatus::False, ConditionReason::NotRecovering),
        ConditionType::Stalled => (ConditionStatus::False, ConditionReason::NotStalled),
        ConditionType::Finished => (ConditionStatus::False, ConditionReason::NotStarted),
        ConditionType::Ready => (ConditionStatus::Unknown, ConditionReason::NotAsked),
    };
    plain(type_, status, reason, String::new(), generation)
}

/// Returns the only condition of an object that another controller manages.
pub(super) fn unmanaged_status(generation: i64, manager: &str, now: &str) -> Condition {
    let message = format!("managed by {manager} (`spec.managedBy`)");
    let condition =
        plain(ConditionType::Suspended, ConditionStatus::True, ConditionReason::ManagedByOther, message, generation);
    Condition { last_transition_time: now.to_owned(), ..condition }
}

/// Drops the oldest failures until the status is small enough.
fn shortened(mut status: WorkflowStatus) -> WorkflowStatus {
    let size = |status: &WorkflowStatus| serde_json::to_string(status).map_or(0, |text| text.len());
    while size(&status) >= MAX_STATUS_BYTES && !status.failures.is_empty() {
        status.failures.remove(0);
    }
    status
}

#[cfg(test)]
mod tests;
