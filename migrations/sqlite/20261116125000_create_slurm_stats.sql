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
