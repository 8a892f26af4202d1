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

alter table last_ids add column allocation integer not null default 0;
