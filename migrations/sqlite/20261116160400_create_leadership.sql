-- Who may write, where several servers could: the number rises with every change of leader, and each transaction of a server that
-- leads under a number checks it. A server without such a number is the only one, and checks nothing.
create table leadership (
    only_row integer primary key constraint leadership_has_one_row check (only_row = 1),
    epoch integer not null,
    -- Who leads, for people.
    holder text not null,
    -- The last event that was told to Kubernetes.
    told integer not null
) strict;

insert into leadership values (1, 0, '', 0);
