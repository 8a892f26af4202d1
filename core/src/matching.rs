//! Which ready jobs a runner gets: by priority, then the hardest to place first, then whatever fits beside them.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use torc_api::termination::EndMargin;
use torc_api::wire::Want;

use crate::class::{Class, Place, fits, minus};
use crate::ids::WorkflowId;

/// Ready jobs of one class, the most urgent first.
#[derive(Clone, Debug, Default)]
pub struct ReadyQueue {
    jobs: BTreeSet<(Reverse<i64>, u32)>,
}

impl ReadyQueue {
    /// A job became ready.
    pub fn insert(&mut self, priority: i64, job: u32) {
        self.jobs.insert((Reverse(priority), job));
    }

    /// A job is no longer ready.
    pub fn remove(&mut self, priority: i64, job: u32) {
        self.jobs.remove(&(Reverse(priority), job));
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Jobs from the most urgent to the least.
    pub fn iter(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        self.jobs.iter().map(|(Reverse(priority), job)| (*priority, *job))
    }
}

/// A queue that a runner may be served from.
pub struct Candidate<'a> {
    /// Whose queue.
    pub workflow: WorkflowId,
    /// What its jobs need.
    pub class: &'a Class,
    /// The jobs.
    pub queue: &'a ReadyQueue,
    /// How much of it, together with the other queues of its workflow.
    pub allowance: Allowance,
    /// The time that the runner has left when the jobs get their first signal.
    pub end: EndMargin,
}

/// How much of a workflow's work is given out in one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// In all.
    pub batch: usize,
    /// Beyond what fits what is free.
    pub ahead: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { batch: usize::MAX, ahead: usize::MAX }
    }
}

/// What has been chosen so far of workflows that limit it.
#[derive(Default)]
struct Taken(HashMap<WorkflowId, Allowance>);

impl Taken {
    /// Counts one more, unless that would be too much.
    fn add(&mut self, candidate: &Candidate<'_>, is_ahead: bool) -> bool {
        if candidate.allowance == Allowance::default() {
            return true;
        }
        let taken = self.0.entry(candidate.workflow).or_insert(Allowance { batch: 0, ahead: 0 });
        let most = candidate.allowance;
        if taken.batch >= most.batch || is_ahead && taken.ahead >= most.ahead {
            return false;
        }
        taken.batch += 1;
        taken.ahead += usize::from(is_ahead);
        true
    }
}

/// A chosen job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Whose job.
    pub workflow: WorkflowId,
    /// Which job of the workflow.
    pub job: u32,
}

/// Chooses jobs for a runner. One outside a class's scheduler gets its jobs only when there is nothing else for it to do.
pub fn choose(place: &Place<'_>, want: &Want, candidates: &[Candidate<'_>]) -> Vec<Choice> {
    let suits = |candidate: &&Candidate<'_>| !candidate.queue.is_empty() && candidate.class.suits(place, candidate.end);
    let (preferred, others): (Vec<_>, Vec<_>) =
        candidates.iter().filter(suits).partition(|candidate| candidate.class.prefers(place));
    let chosen = pack(place, want, &preferred);
    if chosen.is_empty() { pack(place, want, &others) } else { chosen }
}

/// First jobs that fit what is free, then some to work on afterwards.
fn pack(place: &Place<'_>, want: &Want, candidates: &[&Candidate<'_>]) -> Vec<Choice> {
    let mut heads: BinaryHeap<Head<'_>> =
        candidates.iter().filter_map(|candidate| Head::new(candidate, place)).collect();
    let mut chosen = Vec::new();
    let limit = want.limit as usize;
    let mut taken = Taken::default();
    if place.by_count {
        take(&mut heads, &mut chosen, limit, |candidate| taken.add(candidate, false));
        return chosen;
    }
    let mut free = want.free;
    let mut too_big = Vec::new();
    while chosen.len() < limit
        && let Some(head) = heads.pop()
    {
        let demand = head.candidate.class.demand(&place.capacity);
        if fits(&free, &demand) {
            if !taken.add(head.candidate, false) {
                continue;
            }
            free = minus(&free, &demand);
            chosen.push(head.choice());
            heads.extend(head.following());
        } else {
            too_big.push(head);
        }
    }
    heads.extend(too_big);
    let ahead = limit.min(chosen.len() + want.ahead as usize);
    take(&mut heads, &mut chosen, ahead, |candidate| taken.add(candidate, true));
    chosen
}

fn take(
    heads: &mut BinaryHeap<Head<'_>>,
    chosen: &mut Vec<Choice>,
    limit: usize,
    mut may: impl FnMut(&Candidate<'_>) -> bool,
) {
    while chosen.len() < limit
        && let Some(head) = heads.pop()
    {
        if !may(head.candidate) {
            continue;
        }
        chosen.push(head.choice());
        heads.extend(head.following());
    }
}

/// The most urgent job of a queue that has not been chosen yet.
struct Head<'a> {
    candidate: &'a Candidate<'a>,
    rest: Box<dyn Iterator<Item = (i64, u32)> + 'a>,
    order: Order,
}

/// Higher is served first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    priority: i64,
    gpus: i64,
    runtime: i64,
    memory: i64,
    cpus: i64,
    workflow: Reverse<WorkflowId>,
    job: Reverse<u32>,
}

impl<'a> Head<'a> {
    fn new(candidate: &'a Candidate<'a>, place: &Place<'_>) -> Option<Self> {
        let needs = &candidate.class.requirements;
        let mut rest: Box<dyn Iterator<Item = (i64, u32)> + 'a> = Box::new(candidate.queue.iter());
        let (priority, job) = rest.next()?;
        // The queue strategy ignores requirements, for the order too.
        let [gpus, runtime, memory, cpus] = if place.by_count {
            [0; 4]
        } else {
            [needs.num_gpus, needs.runtime_seconds, needs.memory_bytes, needs.num_cpus]
        };
        let order =
            Order { priority, gpus, runtime, memory, cpus, workflow: Reverse(candidate.workflow), job: Reverse(job) };
        Some(Self { candidate, rest, order })
    }

    fn choice(&self) -> Choice {
        Choice { workflow: self.candidate.workflow, job: self.order.job.0 }
    }

    fn following(mut self) -> Option<Self> {
        let (priority, job) = self.rest.next()?;
        self.order.priority = priority;
        self.order.job = Reverse(job);
        Some(self)
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Head<'_> {}
impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

#[cfg(test)]
mod tests;
