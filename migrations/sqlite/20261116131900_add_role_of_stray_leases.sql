-- What a stray lease is one of: actions and recovery scripts that were taken away are waited for as jobs are. The number of an
-- action stands where a job's does otherwise.
alter table stray_leases add column role text not null default 'job'
    constraint stray_lease_role_is_known check (role in ('job', 'action', 'recovery'));
