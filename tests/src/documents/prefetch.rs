//! The request for prefetching: it prints no commands; its settings and its example are tested.

use super::Outcome::{Setting, Test};
use super::{Literal, block, row, torc_1};

const SETTINGS: &str = "\
prefetch:
  enabled: true
  batch_size: 8
  max_queued: 16
  refill_threshold: 4
  lease_seconds: 120
";

#[rustfmt::skip]
pub(super) const LITERALS: &[Literal] = &[
    row(SETTINGS, &[block(&["succeeded"])]),
    row("[client.run]\nprefetch = \"off\"\nprefetch_batch_size = 8\nprefetch_max_queued = 16\nlease_seconds = 60\n", &[
        Setting(&["client.run.prefetch_batch_size", "client.run.lease_seconds"]),
    ]),
    row("prefetch enabled/disabled", &[torc_1("`prefetch.enabled`")]),
    row("batch size", &[torc_1("`prefetch.batchSize`")]),
    row("max queued jobs per runner", &[torc_1("`prefetch.maxQueued`")]),
    row("refill threshold", &[torc_1("`prefetch.refillThreshold`")]),
    row("lease / timeout for checked-out jobs", &[torc_1("`prefetch.leaseSeconds`")]),
    row("4 GPUs", &[Test("throughput.rs::as_much_as_runs_at_once")]),
];
