-- Leases that their jobs no longer go by, but that a runner may still act upon. Few at any time: those that are being
-- ended, for which their jobs wait, and those that were given up and count if they turn up again.
create table stray_leases (
    -- The lease's number.
    epoch integer primary key,
    workflow integer not null,
    job integer not null,
    run integer not null,
    attempt integer not null,
    runner integer not null,
    started_ms integer,
    given_up integer not null constraint stray_lease_given_up_is_boolean check (given_up in (0, 1))
) strict;
