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
    epoch integer not null,
    runner integer,
    started_ms integer,
    ended_ms integer,
    return_code integer,
    message text,
    stdout text,
    stderr text
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
    epoch integer not null,
    runner integer,
    started_ms integer
) strict;
