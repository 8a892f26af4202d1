//! What the status of a custom resource says: the engine's status, in terms of the object's generations. Pure.

use torc_api::condition::{Condition, ConditionReason as Reason, ConditionStatus, ConditionType};
use torc_api::status::WorkflowStatus;

use super::rejection::{Rejection, cut};

/// A status stays below this size, whatever happens: it is one of many objects that an API server keeps.
const MAX_STATUS_BYTES: usize = 8 << 10;
/// The longest message of a condition.
const MAX_MESSAGE_BYTES: usize = 600;

/// What there is to tell of an object.
pub(super) struct View<'a> {
    /// The engine's status of what was accepted last; none if nothing was.
    pub engine: Option<&'a WorkflowStatus>,
    /// The object's generation.
    pub generation: i64,
    /// The generation that was accepted last.
    pub accepted: Option<i64>,
    /// Why the present generation was refused.
    pub rejection: Option<&'a Rejection>,
    /// What it waits for, if it is being deleted and does not go.
    pub lingers: Option<&'a str>,
    /// What was said before.
    pub before: &'a [Condition],
    /// In RFC 3339.
    pub now: &'a str,
    /// Where the server answers.
    pub api_url: Option<&'a str>,
}

/// The whole status.
pub(super) fn status(view: &View<'_>) -> WorkflowStatus {
    let mut status = view.engine.cloned().unwrap_or_default();
    status.observed_generation = Some(view.generation);
    status.api_url = view.api_url.map(str::to_owned);
    // A column that is empty says less than a zero.
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
            plain(type_, ConditionStatus::True, Reason::SlurmUnreachable, message, view.generation)
        }
        // What was accepted before goes on as it was.
        (_, Some(known)) => Condition { observed_generation: view.accepted.or(Some(view.generation)), ..known },
        (Some(rejection), None) if type_ == ConditionType::Succeeded => {
            plain(type_, ConditionStatus::False, Reason::InvalidSpec, rejection.message.clone(), view.generation)
        }
        (_, None) => absent(type_, view.generation),
    };
    if condition.message.len() > MAX_MESSAGE_BYTES {
        condition.message = cut(&condition.message, MAX_MESSAGE_BYTES);
    }
    condition.last_transition_time = since(&condition, view);
    condition
}

/// The time of the last change of its value. What was said before counts: it was on record.
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

fn plain(type_: ConditionType, status: ConditionStatus, reason: Reason, message: String, generation: i64) -> Condition {
    Condition { observed_generation: Some(generation), ..Condition::new(type_, status, reason, message) }
}

/// A condition that nobody has stated: of a workflow that was never accepted, or one that is not worth mentioning.
fn absent(type_: ConditionType, generation: i64) -> Condition {
    let (status, reason) = match type_ {
        ConditionType::Accepted | ConditionType::Succeeded => (ConditionStatus::Unknown, Reason::Pending),
        ConditionType::AllocationsReady => (ConditionStatus::True, Reason::NotNeeded),
        ConditionType::Suspended => (ConditionStatus::False, Reason::NotSuspended),
        ConditionType::Recovering => (ConditionStatus::False, Reason::NotRecovering),
        ConditionType::Stalled => (ConditionStatus::False, Reason::NotStalled),
        ConditionType::Finished => (ConditionStatus::False, Reason::NotStarted),
        ConditionType::Ready => (ConditionStatus::Unknown, Reason::NotAsked),
    };
    plain(type_, status, reason, String::new(), generation)
}

/// The one condition of an object that another controller looks after.
pub(super) fn left_to_other(generation: i64, manager: &str, now: &str) -> Condition {
    let message = format!("`managedBy` leaves it to {manager}");
    let condition = plain(ConditionType::Suspended, ConditionStatus::True, Reason::ManagedByOther, message, generation);
    Condition { last_transition_time: now.to_owned(), ..condition }
}

/// The oldest failures go until the rest fits.
fn shortened(mut status: WorkflowStatus) -> WorkflowStatus {
    let size = |status: &WorkflowStatus| serde_json::to_string(status).map_or(0, |text| text.len());
    while size(&status) >= MAX_STATUS_BYTES && !status.failures.is_empty() {
        status.failures.remove(0);
    }
    status
}

#[cfg(test)]
mod tests;
