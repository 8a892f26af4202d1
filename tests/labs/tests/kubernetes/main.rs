//! Suites on a real Kubernetes: charts as Helm renders them, an API server, and a node on which Pods run.
#![allow(clippy::unwrap_used)]

mod chart;
mod conformance;
mod node;
mod objects;
mod static_build;
