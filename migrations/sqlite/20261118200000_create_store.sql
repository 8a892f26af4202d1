-- The store of one Torc server. The core makes all decisions and assigns all numbers; these tables only store the results.
--
-- There are no foreign keys: all rows come from one writer that has already checked them, and a check per row would cost
-- more than the row. Rows of a workflow contain its number and are deleted by it.
--
-- Rows that are written rarely are JSON in a column `data`, with generated columns for the fields that statements filter on. The
-- fields are those of the row's type in core/src/rows.rs. Rows that are written for every job are columns.

-- 'Torc' in ASCII: distinguishes our files from other databases before anything is written to them.
pragma application_id = 1416589923;
-- The layout: `FIRST_LAYOUT` in store/src/open.rs plus the number of later migrations. Other layouts are refused.
pragma user_version = 17;

create table workflows (
    id integer primary key,
    data text not null,
    namespace text not null generated always as (data ->> 'namespace') stored,
    name text not null generated always as (data ->> 'name') stored,
    run integer not null generated always as (data ->> 'run') stored,
    completed_ms integer generated always as (data ->> 'completed_ms') stored,
    constraint workflow_name_is_unique unique (namespace, name)
) strict;

-- Separate from workflows, because a document may have megabytes and the status of a workflow changes often.
create table documents (
    workflow integer primary key,
    generation integer not null,
    document text not null
) strict;

-- Properties that jobs share, as JSON. Never changed and never collected: the core keeps their numbers in memory.
create table profiles (
    id integer primary key,
    workflow integer not null,
    profile text not null
) strict;

create index profiles_of_workflow on profiles (workflow);

-- Definitions of jobs. depends_on is an encoded list of job numbers and not a table of edges: it is only read and written as
-- a whole, and a million edges take two megabytes instead of a million rows.
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

-- States of jobs. Separate from jobs, because a state changes several times and narrow rows mean few pages to write for a
-- group. No index on state: it would cost two more writes for each transition, and a scan of narrow rows is fast.
create table job_states (
    id integer primary key,
    state integer not null constraint job_state_is_known check (state between 0 and 11),
    run integer not null,
    attempt integer not null,
    lease_id integer not null,
    runner integer,
    started_ms integer
) strict;

-- Attempts that have ended, never overwritten. Clustered by workflow, so that lists and deletions need no further index.
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
    data text not null,
    host text not null generated always as (data ->> 'host') stored,
    slurm_job_id text generated always as (data ->> 'slurm_job_id') stored,
    ended_ms integer generated always as (data ->> 'ended_ms') stored
) strict;

-- Events, append-only. The job transitions of a group are encoded in one row: a row for each would double the cost of a
-- transition.
create table events (
    sequence integer primary key,
    time_ms integer not null,
    workflow integer,
    reason text not null,
    message text not null,
    jobs blob not null
) strict;

create index events_of_workflow on events (workflow);

-- The highest assigned numbers. They outlive their rows, so that no number is used twice.
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

-- Input files as they were before a job started, and output files as it left them. A row for each use and not for each file:
-- two jobs may have read different contents of the same path, and only one of them must run again.
create table files (
    workflow integer not null,
    job integer not null,
    path text not null,
    size_bytes integer not null,
    modified_ms integer not null,
    -- Hexadecimal; absent for a file that was too large to be read.
    sha256 text,
    seen_ms integer not null,
    constraint file_use_is_unique primary key (workflow, job, path)
) strict, without rowid;

-- Values that jobs exchange. The declared value of the document and the written value are separate: an edit of the document
-- must not be mistaken for a write.
create table user_data (
    workflow integer not null,
    name text not null,
    in_document integer not null constraint data_in_document_is_boolean check (in_document in (0, 1)),
    ephemeral integer not null constraint data_ephemeral_is_boolean check (ephemeral in (0, 1)),
    -- JSON.
    declared text,
    written text,
    -- The job that wrote it; absent if a user did.
    job integer,
    -- A number from the sequence of leases: leases with a lower number were granted before this value was written.
    lease_id integer not null,
    changed_ms integer not null,
    constraint data_name_is_unique primary key (workflow, name)
) strict, without rowid;

-- Superseded leases that a runner may still execute. There are few at any time: revoked leases, for whose end their jobs
-- wait, and expired leases, whose results count if they arrive after all.
create table detached_leases (
    -- The lease's number.
    lease_id integer primary key,
    workflow integer not null,
    job integer not null,
    run integer not null,
    attempt integer not null,
    runner integer not null,
    started_ms integer,
    expired integer not null constraint detached_lease_expired_is_boolean check (expired in (0, 1)),
    -- The kind of work. For an action, `job` is the number of the action.
    role text not null constraint detached_lease_role_is_known check (role in ('job', 'action', 'recovery'))
) strict;

-- Actions that the progress of a workflow triggers. Actions of workers have a row for each worker.
create table actions (
    id integer primary key,
    data text not null,
    workflow integer not null generated always as (data ->> 'workflow') stored
) strict;

create index actions_of_workflow on actions (workflow);

-- Jobs that wait for their recovery script.
create table recoveries (
    job integer primary key,
    data text not null,
    workflow integer not null generated always as (data ->> 'workflow') stored
) strict;

-- Remote workers: machines reached over SSH that run a workflow's jobs.
create table remote_workers (
    workflow integer not null,
    -- [user@]host[:port]
    address text not null,
    -- The folder of the last start of its runner; absent before the first.
    folder text,
    added_ms integer not null,
    -- The program on the worker that `--remote-torc` last named; absent: `torc` in the PATH of a login shell.
    remote_torc text,
    constraint remote_worker_is_unique primary key (workflow, address)
) strict, without rowid;

-- Slurm's accounting of the step of an attempt. It arrives after the result and does not change it: the two are combined when
-- results are read.
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

-- Slurm allocations. A row is written before `sbatch` is called, so that a crash never leads to a second submission. Ended
-- allocations stay.
create table allocations (
    id integer primary key,
    data text not null,
    workflow integer not null generated always as (data ->> 'workflow') stored,
    status text not null generated always as (data ->> 'status') stored,
    slurm_job_id text generated always as (data ->> 'slurm_job_id') stored,
    ended_ms integer generated always as (data ->> 'ended_ms') stored
) strict;

create index allocations_of_workflow on allocations (workflow);
create index live_allocations on allocations (status) where status in ('pending', 'active');

create table slurm_clusters (
    name text primary key,
    document text not null,
    generation integer not null,
    created_ms integer not null
) strict;

-- A random key of the store. Workflow numbers of two stores may be equal, so the names of Slurm jobs contain this key.
create table store_identity (
    key text not null
) strict;

insert into store_identity (key) values (lower(hex(randomblob(4))));

-- The audit log. A row is written in the transaction of its change, and never changed or removed.
create table audit (
    sequence integer primary key autoincrement,
    time_ms integer not null,
    who text not null,
    -- The scope of the token: admin, owner, runner or metrics.
    scope text not null,
    verb text not null,
    object text not null,
    -- `ok` or the error code.
    outcome text not null
) strict;

create trigger audit_is_never_changed before update on audit
begin
    select raise(abort, 'the audit log is never changed');
end;

create trigger audit_is_never_removed before delete on audit
begin
    select raise(abort, 'the audit log is never changed');
end;

-- The leader among several servers. The epoch rises with every change of the leader, and each transaction of a leader checks
-- it. A single server has no epoch and checks nothing.
create table leadership (
    only_row integer primary key constraint leadership_has_one_row check (only_row = 1),
    epoch integer not null,
    -- The name of the leader, for messages.
    holder text not null,
    -- The last event that was published to Kubernetes.
    event_cursor integer not null
) strict;

insert into leadership values (1, 0, '', 0);
