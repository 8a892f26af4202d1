-- Files as a job found them (what it read, before its start) or left them (what it wrote). A row for each use and not for each
-- file: two jobs may have read different contents of the same path, and only one of them has to run again.
create table files (
    workflow integer not null,
    job integer not null,
    path text not null,
    run integer not null,
    attempt integer not null,
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
    epoch integer not null,
    changed_ms integer not null,
    constraint data_name_is_unique primary key (workflow, name)
) strict, without rowid;
