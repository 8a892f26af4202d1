-- The store of one Torc server. The core decides and numbers everything; these tables only keep it.
--
-- There are no foreign keys: rows come from one writer that has already checked them, and a check per row would cost
-- more than the row. What belongs to a workflow carries its number and is deleted by it.

-- 'Torc' in ASCII: tells our files from other databases before anything is written to them.
pragma application_id = 1416589923;
-- The layout; `FIRST_LAYOUT` in store/src/open.rs and the number of later migrations. Other layouts are refused.
pragma user_version = 15;

create table workflows (
    id integer primary key,
    namespace text not null,
    name text not null,
    owner text not null,
    generation integer not null,
    digest text not null,
    working_dir text not null,
    run integer not null,
    suspended integer not null constraint workflow_suspended_is_boolean check (suspended in (0, 1)),
    canceled integer not null constraint workflow_canceled_is_boolean check (canceled in (0, 1)),
    created_ms integer not null,
    started_ms integer,
    completed_ms integer,
    conditions text not null,
    -- Schedulers that a user's request to re-plan allocations has made: they are in no document, and are gone when jobs are reset.
    recovery_schedulers text not null default '',
    -- The workflow was stopped because it ran for longer than `activeDeadlineSeconds`.
    expired integer not null default 0 constraint workflow_expired_is_boolean check (expired in (0, 1)),
    constraint workflow_name_is_unique unique (namespace, name)
) strict;

-- Apart from workflows, because a document may have megabytes and a workflow's status changes often.
create table documents (
    workflow integer primary key,
    generation integer not null,
    document text not null
) strict;

-- What jobs have in common, as JSON. Never changed and never collected: the core keeps their numbers in memory.
create table profiles (
    id integer primary key,
    workflow integer not null,
    profile text not null
) strict;

create index profiles_of_workflow on profiles (workflow);

-- What a job is. depends_on is a packed list of job numbers and not a table of edges: it is only ever read and written
-- as a whole, and a million edges are two megabytes here and a million rows there.
create table jobs (
    id integer primary key,
    workflow integer not null,
    name text not null,
    command text not null,
    profile integer not null,
    priority integer not null,
    hash blob not null constraint job_hash_is_sha256 check (length(hash) = 32),
    depends_on blob not null,
    -- Removed jobs stay as long as they have results, which need the job's name.
    removed integer not null constraint job_removed_is_boolean check (removed in (0, 1))
) strict;

create unique index job_name_is_unique on jobs (workflow, name) where removed = 0;
-- Lists a workflow's jobs in the order of their numbers.
create index jobs_of_workflow on jobs (workflow);

-- Where a job stands. Apart from jobs, because this changes several times a job and a narrow row means few pages to
-- write for a group. No index on state: it would cost each transition two more writes, and a scan of narrow rows is quick.
create table job_states (
    id integer primary key,
    state integer not null constraint job_state_is_known check (state between 0 and 11),
    run integer not null,
    attempt integer not null,
    lease_id integer not null,
    runner integer,
    started_ms integer
) strict;

-- Attempts that ended, never overwritten. Clustered by workflow, so that lists and deletions need no further index.
create table results (
    workflow integer not null,
    job integer not null,
    run integer not null,
    attempt integer not null,
    state integer not null constraint result_state_is_known check (state between 0 and 11),
    return_code integer not null,
    cause text,
    message text,
    started_ms integer not null,
    ended_ms integer not null,
    runner integer,
    stdout text,
    stderr text,
    peak_memory_bytes integer,
    average_memory_bytes integer,
    peak_cpu_percent real,
    average_cpu_percent real,
    peak_gpu_percent real,
    average_gpu_percent real,
    peak_gpu_memory_bytes integer,
    constraint result_is_unique primary key (workflow, job, run, attempt)
) strict, without rowid;

-- Failures are counted and listed at start; successes pay nothing for this index.
create index results_with_cause on results (workflow, ended_ms) where cause is not null;

create table runners (
    id integer primary key,
    host text not null,
    pid integer not null,
    kind text not null,
    capacity text not null,
    max_parallel_jobs integer,
    labels text not null,
    scope text not null,
    scheduler text,
    slurm_job_id text,
    output_dir text not null,
    place text not null,
    -- The process behind pid, as JSON: boot, namespace and start. Nothing is searched by it.
    process text,
    version text not null,
    started_ms integer not null,
    ended_ms integer
) strict;

-- What happened, append-only. The jobs that moved in a group are packed into one row: a row each would double the cost of
-- a transition.
create table events (
    sequence integer primary key,
    time_ms integer not null,
    workflow integer,
    reason text not null,
    message text not null,
    jobs blob not null
) strict;

create index events_of_workflow on events (workflow);

-- The highest numbers given out: they outlive the rows that had them.
create table last_ids (
    only_row integer primary key constraint last_ids_has_one_row check (only_row = 1),
    workflow integer not null,
    job integer not null,
    profile integer not null,
    runner integer not null,
    event integer not null,
    lease_id integer not null,
    allocation integer not null
) strict;

insert into last_ids values (1, 0, 0, 0, 0, 0, 0, 0);

-- Files as a job found them (what it read, before its start) or left them (what it wrote). A row for each use and not for each
-- file: two jobs may have read different contents of the same path, and only one of them has to run again.
create table files (
    workflow integer not null,
    job integer not null,
    path text not null,
    size_bytes integer not null,
    modified_ms integer not null,
    -- Hexadecimal; absent for what was too large to be read.
    sha256 text,
    seen_ms integer not null,
    constraint file_use_is_unique primary key (workflow, job, path)
) strict, without rowid;

-- Values that jobs exchange. What the document says and what was written since are apart: an edit of the one must not be
-- mistaken for the other.
create table user_data (
    workflow integer not null,
    name text not null,
    in_document integer not null constraint data_in_document_is_boolean check (in_document in (0, 1)),
    ephemeral integer not null constraint data_ephemeral_is_boolean check (ephemeral in (0, 1)),
    -- JSON.
    declared text,
    written text,
    -- The job that wrote it; absent for a person.
    job integer,
    -- A number from the sequence of leases: a lease with a lower one was given out before this value was there.
    lease_id integer not null,
    changed_ms integer not null,
    constraint data_name_is_unique primary key (workflow, name)
) strict, without rowid;

-- Leases that their jobs no longer go by, but that a runner may still act upon. Few at any time: those that are being
-- ended, for which their jobs wait, and those that were given up and count if they turn up again.
create table detached_leases (
    -- The lease's number.
    lease_id integer primary key,
    workflow integer not null,
    job integer not null,
    run integer not null,
    attempt integer not null,
    runner integer not null,
    started_ms integer,
    given_up integer not null constraint detached_lease_given_up_is_boolean check (given_up in (0, 1)),
    -- What the lease is of. The number of an action stands where a job's does otherwise.
    role text not null constraint detached_lease_role_is_known check (role in ('job', 'action', 'recovery'))
) strict;

-- What a workflow's progress sets off, and recovery scripts that failed jobs wait for.

-- Actions, and for those of workers a row for each worker. A workflow has a few of them, so they are written whole.
create table actions (
    id integer primary key,
    workflow integer not null,
    -- Which of the document's actions it is.
    position integer not null,
    worker integer,
    state text not null constraint action_state_is_known check (state in ('waiting', 'pending', 'executed', 'failed', 'skipped')),
    run integer not null,
    attempt integer not null,
    tries integer not null,
    lease_id integer not null,
    runner integer,
    started_ms integer,
    ended_ms integer,
    return_code integer,
    message text,
    stdout text,
    stderr text,
    -- Of an action that is in no document: a user's request to re-plan allocations has made it.
    definition text
) strict;

create index actions_of_workflow on actions (workflow);

-- Only jobs that wait for their script right now.
create table recoveries (
    job integer primary key,
    workflow integer not null,
    script text not null,
    return_code integer not null,
    cause text not null,
    preferred integer,
    run integer not null,
    attempt integer not null,
    tries integer not null,
    lease_id integer not null,
    runner integer,
    started_ms integer
) strict;

-- Machines reached over SSH that run a workflow's jobs. Kept here so that looking after them and stopping them needs no file.
create table remote_workers (
    workflow integer not null,
    -- [user@]host[:port]
    address text not null,
    -- Where its runner was started last; absent until then.
    folder text,
    added_ms integer not null,
    -- The program `torc` on the worker as `--remote-torc` named it last; absent: `torc` in the PATH of a login.
    remote_torc text,
    constraint remote_worker_is_unique primary key (workflow, address)
) strict, without rowid;

-- What Slurm's accounting says of the step that an attempt was. It comes later than the result, and changes nothing of it: the two
-- become one when results are read.
create table slurm_stats (
    workflow integer not null,
    job integer not null,
    run integer not null,
    attempt integer not null,
    slurm_job_id text,
    step text,
    max_rss_bytes integer,
    max_vm_size_bytes integer,
    max_disk_read_bytes integer,
    max_disk_write_bytes integer,
    ave_cpu_seconds real,
    node_list text,
    state text,
    constraint stats_of_attempt_are_unique primary key (workflow, job, run, attempt)
) strict, without rowid;

-- Slurm: allocations of workflows, and the clusters they are submitted to.

-- An allocation is written down before Slurm is asked for it, so that nobody asks twice. It is never overwritten by another one:
-- what is over stays.
create table allocations (
    id integer primary key,
    workflow integer not null,
    cluster text not null,
    scheduler text,
    origin text not null constraint allocation_origin_is_known check (origin in ('sizing', 'action', 'recovery', 'manual')),
    -- The action that asked for it.
    action integer,
    status text not null constraint allocation_status_is_known check (status in ('pending', 'active', 'complete', 'canceled')),
    slurm_job_id text,
    slurm_state text,
    slurm_reason text,
    partition text,
    account text,
    -- What it has: nodes, and of each node CPUs, memory and GPUs; 0 for what is left to the site.
    nodes integer not null,
    cpus integer not null,
    memory_bytes integer not null,
    gpus integer not null,
    seconds integer not null,
    one_worker_per_node integer not null,
    max_parallel_jobs integer,
    node_list text,
    created_ms integer not null,
    -- When `sbatch` was last called for it; null if it certainly was not.
    called_ms integer,
    submitted_ms integer,
    started_ms integer,
    ended_ms integer,
    estimated_start_ms integer,
    expected_end_ms integer,
    -- When Slurm was last asked to cancel it.
    canceled_ms integer,
    -- Since when Slurm has known nothing of it: a process that looks once remembers nothing itself.
    unseen_since_ms integer,
    -- A runner in it has reported the end of a job.
    has_reported integer not null,
    message text
) strict;

create index allocations_of_workflow on allocations (workflow);
create index live_allocations on allocations (status) where status in ('pending', 'active');

create table slurm_clusters (
    name text primary key,
    document text not null,
    generation integer not null,
    created_ms integer not null
) strict;

-- Two stores have workflows of the same number. What is submitted carries this, so that neither takes the other's for its own.
create table store_identity (
    key text not null
) strict;

insert into store_identity (key) values (lower(hex(randomblob(4))));

-- Who did what, or was refused. Rows are written with what they tell of, and never changed or removed.
create table audit (
    sequence integer primary key autoincrement,
    time_ms integer not null,
    who text not null,
    -- admin, owner, runner or metrics: what the token allowed.
    scope text not null,
    verb text not null,
    object text not null,
    -- ok, or the code of the error.
    outcome text not null
) strict;

create trigger audit_is_never_changed before update on audit
begin
    select raise(abort, 'the audit is never changed');
end;

create trigger audit_is_never_removed before delete on audit
begin
    select raise(abort, 'the audit is never changed');
end;

-- Who may write, where several servers could: the number rises with every change of leader, and each transaction of a server that
-- leads under a number checks it. A server without such a number is the only one, and checks nothing.
create table leadership (
    only_row integer primary key constraint leadership_has_one_row check (only_row = 1),
    epoch integer not null,
    -- Who leads, for people.
    holder text not null,
    -- The last event that was told to Kubernetes.
    told integer not null
) strict;

insert into leadership values (1, 0, '', 0);
