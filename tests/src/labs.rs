//! Real components for the suites of `tests/labs`: Slurm, Kubernetes, SSH.

pub mod kube;
pub mod node;
pub mod shared;
pub mod slurm;
pub mod sshd;
