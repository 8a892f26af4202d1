-- Machines reached over SSH that run a workflow's jobs. Kept here so that looking after them and stopping them needs no file.
create table remote_workers (
    workflow integer not null,
    -- [user@]host[:port]
    address text not null,
    -- Where its runner was started last; absent until then.
    folder text,
    added_ms integer not null,
    constraint remote_worker_is_unique primary key (workflow, address)
) strict, without rowid;
