-- How busy a job's GPUs were, and how much of their memory it used.
alter table results add column peak_gpu_percent real;
alter table results add column average_gpu_percent real;
alter table results add column peak_gpu_memory_bytes integer;
