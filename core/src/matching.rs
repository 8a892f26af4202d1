//! Chooses ready jobs for a runner. Owners share equally; of one owner the jobs of the highest priority come first, and workflows with
//! jobs of equal priority share equally. Within a workflow the most urgent comes first, then whatever fits beside it.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, btree_set};

use torc_api::termination::EndMargin;
use torc_api::wire::{Resources, WorkRequest};

use crate::class::{JobClass, RunnerView, fits, minus, plus};
use crate::expanded::Requirements;
use crate::ids::WorkflowId;
use crate::urgency::Urgency;

/// Ready jobs of one class, the most urgent first.
#[derive(Clone, Debug, Default)]
pub struct ReadyQueue {
    jobs: BTreeSet<ReadyJob>,
}

/// A job of a [`ReadyQueue`]. The least one is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyJob {
    priority: Reverse<i64>,
    downstream_seconds: Reverse<u32>,
    job: u32,
}

impl ReadyJob {
    /// Returns the entry of a job with its priority and the declared runtimes of the longest chain that waits for it.
    pub fn new(priority: i64, downstream_seconds: u32, job: u32) -> Self {
        Self { priority: Reverse(priority), downstream_seconds: Reverse(downstream_seconds), job }
    }

    /// Returns its position among all jobs that a runner could get.
    fn urgency(self, needs: &Requirements, runner: &RunnerView<'_>) -> Urgency {
        let (Reverse(priority), Reverse(downstream)) = (self.priority, self.downstream_seconds);
        if runner.by_count {
            return Urgency::by_count(priority, downstream);
        }
        Urgency::new(priority, &needs.resources(), needs.runtime_seconds, downstream)
    }
}

impl ReadyQueue {
    /// Adds a job that became ready.
    pub fn insert(&mut self, job: ReadyJob) {
        self.jobs.insert(job);
    }

    /// Removes a job that is no longer ready.
    pub fn remove(&mut self, job: ReadyJob) {
        self.jobs.remove(&job);
    }

    /// Returns whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns whether all jobs are equally urgent.
    fn is_uniform(&self) -> bool {
        let rank = |ready: &ReadyJob| (ready.priority, ready.downstream_seconds);
        self.jobs.first().map(rank) == self.jobs.last().map(rank)
    }

    /// Returns the numbers of the jobs, the most urgent first.
    pub fn jobs(&self) -> impl Iterator<Item = u32> + '_ {
        self.jobs.iter().map(|ready| ready.job)
    }
}

/// Resources in use by started and leased jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourcesInUse {
    /// CPUs on all nodes of the jobs.
    pub cpus: i64,
    /// Bytes of memory on all nodes of the jobs.
    pub memory_bytes: i64,
    /// GPUs on all nodes of the jobs.
    pub gpus: i64,
    /// Number of these jobs.
    pub jobs: i64,
}

impl ResourcesInUse {
    /// Adds `times` jobs with these requirements; removes them where `times` is negative.
    pub fn add(&mut self, needs: &Requirements, times: i64) {
        let nodes = needs.num_nodes.max(1).saturating_mul(times);
        let add = |sum: &mut i64, each: i64| *sum = sum.saturating_add(each.saturating_mul(nodes));
        add(&mut self.cpus, needs.num_cpus);
        add(&mut self.memory_bytes, needs.memory_bytes);
        add(&mut self.gpus, needs.num_gpus);
        self.jobs += times;
    }

    /// Adds other resources in use.
    pub fn merge(&mut self, other: &Self) {
        self.cpus = self.cpus.saturating_add(other.cpus);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.gpus = self.gpus.saturating_add(other.gpus);
        self.jobs = self.jobs.saturating_add(other.jobs);
    }

    /// Returns the dominant share: the largest fraction of what the runner has of a resource, in millionths. It can exceed the whole,
    /// because there are other runners. A runner that counts jobs compares jobs.
    fn dominant_share(&self, runner: &RunnerView<'_>) -> i128 {
        if runner.by_count {
            return self.jobs.into();
        }
        let share = |used: i64, of: i64| if of > 0 { i128::from(used) * 1_000_000 / i128::from(of) } else { 0 };
        let Resources { cpus, memory_bytes, gpus, .. } = runner.capacity;
        share(self.cpus, cpus).max(share(self.memory_bytes, memory_bytes)).max(share(self.gpus, gpus))
    }
}

/// An owner whose workflows have ready jobs. Owners share equally.
pub struct OwnerQueues<'a> {
    /// Name of the user who owns the workflows.
    pub owner: &'a str,
    /// Resources in use by all live workflows of the owner.
    pub usage: ResourcesInUse,
    /// The workflows that may give work to the runner.
    pub workflows: Vec<WorkflowQueues<'a>>,
}

/// A workflow that may give work to a runner. Workflows of one owner share equally among jobs of equal priority.
pub struct WorkflowQueues<'a> {
    /// Number of the workflow.
    pub workflow: WorkflowId,
    /// Resources in use by its jobs.
    pub usage: ResourcesInUse,
    /// Limits of the leases that one answer may contain.
    pub allowance: LeaseAllowance,
    /// The time that the runner has left when the jobs get their first signal.
    pub end: EndMargin,
    /// Its ready jobs by class.
    pub classes: Vec<ClassQueue<'a>>,
}

/// Ready jobs of one class.
pub struct ClassQueue<'a> {
    /// The class of its jobs.
    pub class: &'a JobClass,
    /// The ready jobs of this class.
    pub queue: &'a ReadyQueue,
    /// Another runner could start such a job now, so none of them is leased ahead.
    pub has_other_candidate: bool,
}

/// The number of leases of a workflow that one answer may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAllowance {
    /// Leases in total, `ahead` included.
    pub batch: usize,
    /// Leases of jobs that do not fit into the free capacity now.
    pub ahead: usize,
}

impl Default for LeaseAllowance {
    fn default() -> Self {
        Self { batch: usize::MAX, ahead: usize::MAX }
    }
}

/// The jobs that were chosen for a runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenJobs {
    /// Jobs that fit into the free capacity.
    pub now: Vec<Choice>,
    /// Jobs that are leased ahead: the runner starts them later.
    pub ahead: Vec<Choice>,
    /// Resources that the jobs of `now` take.
    pub taken: Resources,
    /// More would have been leased ahead if no other runner could start it now.
    pub is_withheld: bool,
}

/// A job that was chosen for a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The workflow of the job.
    pub workflow: WorkflowId,
    /// The ordinal of the job in its workflow.
    pub job: u32,
}

/// Chooses jobs for a runner. A runner outside a class's scheduler gets the jobs of that class only if it gets no
/// others.
pub fn choose(runner: &RunnerView<'_>, want: &WorkRequest, owners: &[OwnerQueues<'_>]) -> ChosenJobs {
    let chosen = pack(runner, want, owners, true);
    if chosen.now.is_empty() && chosen.ahead.is_empty() {
        let others = pack(runner, want, owners, false);
        return ChosenJobs { is_withheld: chosen.is_withheld || others.is_withheld, ..others };
    }
    chosen
}

/// Chooses jobs that fit into the free capacity, then jobs to lease ahead.
fn pack(runner: &RunnerView<'_>, want: &WorkRequest, owners: &[OwnerQueues<'_>], preferred: bool) -> ChosenJobs {
    let mut fair_share = FairShareOrder::new(runner, owners, preferred);
    let limit = want.limit as usize;
    let (mut chosen, mut free) = (ChosenJobs::default(), want.free);
    while chosen.now.len() < limit
        && let Some(turn) = fair_share.next()
    {
        let demand = turn.head.queue.class.demand_on(runner);
        if !fits(&free, &demand) {
            fair_share.set_aside(turn);
        } else if let Some(choice) = fair_share.take(turn, false) {
            free = minus(&free, &demand);
            chosen.taken = plus(&chosen.taken, &demand);
            chosen.now.push(choice);
        }
    }
    fair_share.resume();
    let most = (want.ahead as usize).min(limit - chosen.now.len());
    while chosen.ahead.len() < most
        && let Some(turn) = fair_share.next()
    {
        if turn.head.queue.has_other_candidate {
            chosen.is_withheld = true;
            fair_share.requeue_workflow(turn.workflow);
        } else if chosen.ahead.len() >= want.bridge as usize && !fair_share.is_uniform(turn.workflow) {
            fair_share.requeue_workflow(turn.workflow);
        } else {
            chosen.ahead.extend(fair_share.take(turn, true));
        }
    }
    chosen
}

/// The order in which jobs are taken: the owner that uses least, then that owner's most urgent workflow. Of equally
/// urgent workflows the one that uses least comes first.
struct FairShareOrder<'a> {
    runner: &'a RunnerView<'a>,
    owners: Vec<OwnerState>,
    workflows: Vec<WorkflowState<'a>>,
    order: BinaryHeap<OwnerKey>,
}

struct OwnerState {
    usage: ResourcesInUse,
    order: BinaryHeap<WorkflowKey>,
}

struct WorkflowState<'a> {
    owner: usize,
    id: WorkflowId,
    usage: ResourcesInUse,
    allowance: LeaseAllowance,
    queue_heads: BinaryHeap<QueueHead<'a>>,
    /// The order of the ready jobs that the runner could get does not matter, because they are alike.
    is_uniform: bool,
    /// Heads that do not fit into the free capacity.
    not_fitting: Vec<QueueHead<'a>>,
}

/// The next job in the order of the contest.
struct NextJob<'a> {
    workflow: usize,
    head: QueueHead<'a>,
}

/// Higher is served first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OwnerKey {
    share: Reverse<i128>,
    index: Reverse<usize>,
}

/// Higher is served first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WorkflowKey {
    priority: i64,
    share: Reverse<i128>,
    id: Reverse<WorkflowId>,
    index: usize,
}

impl<'a> FairShareOrder<'a> {
    fn new(runner: &'a RunnerView<'a>, owners: &'a [OwnerQueues<'a>], preferred: bool) -> Self {
        let mut fair_share = Self { runner, owners: Vec::new(), workflows: Vec::new(), order: BinaryHeap::new() };
        for owner in owners {
            let index = fair_share.owners.len();
            fair_share.owners.push(OwnerState { usage: owner.usage, order: BinaryHeap::new() });
            for queues in &owner.workflows {
                let matches = |queue: &&ClassQueue<'_>| {
                    queue.class.prefers(runner) == preferred && queue.class.matches(runner, queues.end)
                };
                let queue_heads: BinaryHeap<_> =
                    queues.classes.iter().filter(matches).filter_map(|queue| QueueHead::new(queue, runner)).collect();
                let is_uniform = queue_heads.len() == 1 && queue_heads.iter().all(|head| head.queue.queue.is_uniform());
                fair_share.workflows.push(WorkflowState {
                    owner: index,
                    id: queues.workflow,
                    usage: queues.usage,
                    allowance: queues.allowance,
                    queue_heads,
                    is_uniform,
                    not_fitting: Vec::new(),
                });
            }
        }
        fair_share.resume();
        fair_share
    }

    fn is_uniform(&self, workflow: usize) -> bool {
        self.workflows[workflow].is_uniform
    }

    /// Takes the next job out of the contest.
    fn next(&mut self) -> Option<NextJob<'a>> {
        let owner = self.order.pop()?.index.0;
        let workflow = self.owners[owner].order.pop()?.index;
        let head = self.workflows[workflow].queue_heads.pop()?;
        Some(NextJob { workflow, head })
    }

    /// Chooses the job. If the allowance of its workflow is used up, the jobs of its queue are no longer considered.
    fn take(&mut self, turn: NextJob<'a>, is_ahead: bool) -> Option<Choice> {
        let NextJob { workflow: index, head } = turn;
        let workflow = &mut self.workflows[index];
        let allowance = &mut workflow.allowance;
        if allowance.batch == 0 || is_ahead && allowance.ahead == 0 {
            self.requeue_workflow(index);
            return None;
        }
        allowance.batch -= 1;
        allowance.ahead -= usize::from(is_ahead);
        let choice = Choice { workflow: workflow.id, job: head.order.job.0 };
        let needs = &head.queue.class.requirements;
        workflow.usage.add(needs, 1);
        self.owners[workflow.owner].usage.add(needs, 1);
        workflow.queue_heads.extend(head.following(self.runner));
        self.requeue_workflow(index);
        Some(choice)
    }

    /// Keeps a job that does not fit into the free capacity, because it may be leased ahead.
    fn set_aside(&mut self, turn: NextJob<'a>) {
        self.workflows[turn.workflow].not_fitting.push(turn.head);
        self.requeue_workflow(turn.workflow);
    }

    /// Returns a workflow to the contest after one of its heads was taken out.
    fn requeue_workflow(&mut self, index: usize) {
        let workflow = &self.workflows[index];
        let owner = &mut self.owners[workflow.owner];
        if let Some(head) = workflow.queue_heads.peek() {
            let share = Reverse(workflow.usage.dominant_share(self.runner));
            owner.order.push(WorkflowKey {
                priority: head.order.urgency.priority(),
                share,
                id: Reverse(workflow.id),
                index,
            });
        }
        if !owner.order.is_empty() {
            let share = Reverse(owner.usage.dominant_share(self.runner));
            self.order.push(OwnerKey { share, index: Reverse(workflow.owner) });
        }
    }

    /// Restarts with all remaining jobs, including those that were set aside.
    fn resume(&mut self) {
        self.order.clear();
        self.owners.iter_mut().for_each(|owner| owner.order.clear());
        for workflow in &mut self.workflows {
            workflow.queue_heads.extend(workflow.not_fitting.drain(..));
        }
        for index in 0..self.workflows.len() {
            let workflow = &self.workflows[index];
            let Some(head) = workflow.queue_heads.peek() else { continue };
            let share = Reverse(workflow.usage.dominant_share(self.runner));
            let key = WorkflowKey { priority: head.order.urgency.priority(), share, id: Reverse(workflow.id), index };
            self.owners[workflow.owner].order.push(key);
        }
        for (index, owner) in self.owners.iter().enumerate().filter(|(_, owner)| !owner.order.is_empty()) {
            let share = Reverse(owner.usage.dominant_share(self.runner));
            self.order.push(OwnerKey { share, index: Reverse(index) });
        }
    }
}

/// The most urgent job of a queue that has not been chosen yet.
struct QueueHead<'a> {
    queue: &'a ClassQueue<'a>,
    rest: btree_set::Iter<'a, ReadyJob>,
    order: JobRank,
}

/// Higher is served first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct JobRank {
    urgency: Urgency,
    job: Reverse<u32>,
}

impl<'a> QueueHead<'a> {
    fn new(queue: &'a ClassQueue<'a>, runner: &RunnerView<'_>) -> Option<Self> {
        Self::next_of(queue, queue.queue.jobs.iter(), runner)
    }

    fn following(self, runner: &RunnerView<'_>) -> Option<Self> {
        Self::next_of(self.queue, self.rest, runner)
    }

    fn next_of(
        queue: &'a ClassQueue<'a>,
        mut rest: btree_set::Iter<'a, ReadyJob>,
        runner: &RunnerView<'_>,
    ) -> Option<Self> {
        let ready = rest.next()?;
        let urgency = ready.urgency(&queue.class.requirements, runner);
        Some(Self { queue, rest, order: JobRank { urgency, job: Reverse(ready.job) } })
    }
}

impl PartialEq for QueueHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for QueueHead<'_> {}
impl PartialOrd for QueueHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for QueueHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

#[cfg(test)]
mod tests;
