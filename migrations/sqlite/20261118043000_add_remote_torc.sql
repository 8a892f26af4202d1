-- The program `torc` on a worker as `--remote-torc` named it last; absent: `torc` in the PATH of a login.
alter table remote_workers add column remote_torc text;
