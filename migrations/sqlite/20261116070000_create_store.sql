-- The store of one Torc server. The core decides and numbers everything; these tables only keep it.
--
-- There are no foreign keys: rows come from one writer that has already checked them, and a check per row would cost
-- more than the row. What belongs to a workflow carries its number and is deleted by it.

-- 'Torc' in ASCII: tells our files from other databases before anything is written to them.
pragma application_id = 1416589923;
-- The number of migrations; a file with a higher one was written by a newer version and is refused.
pragma user_version = 1;

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
    epoch integer not null,
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
    epoch integer not null
) strict;

insert into last_ids values (1, 0, 0, 0, 0, 0, 0);
