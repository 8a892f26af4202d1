-- Who did what, or was refused. Rows are written with what they tell of, and never changed or removed.
create table audit (
    sequence integer primary key autoincrement,
    time_ms integer not null,
    who text not null,
    -- admin, owner, runner or metrics: what the token allowed.
    scope text not null,
    verb text not null,
    object text not null,
    -- ok, or the code of the error.
    outcome text not null
) strict;

create trigger audit_is_never_changed before update on audit
begin
    select raise(abort, 'the audit is never changed');
end;

create trigger audit_is_never_removed before delete on audit
begin
    select raise(abort, 'the audit is never changed');
end;
