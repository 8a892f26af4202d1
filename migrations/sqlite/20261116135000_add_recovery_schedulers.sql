-- What a person's request to plan allocations anew has made: schedulers that are in no document, and actions that ask for their
-- allocations. Both are gone when jobs are put back to the start.
alter table workflows add column recovery_schedulers text not null default '';
alter table actions add column definition text;
