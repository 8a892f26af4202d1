-- The workflow was stopped because it ran for longer than `activeDeadlineSeconds`.
alter table workflows add column expired integer not null default 0
    constraint workflow_expired_is_boolean check (expired in (0, 1));
