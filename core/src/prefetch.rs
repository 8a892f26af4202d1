//! Combines the prefetch settings of several workflows.

use torc_api::failure::Prefetch;

/// Returns the prefetch settings of a runner that serves these workflows. It requests as much as any of them allows;
/// the settings of each workflow then limit its own leases. A workflow without settings leaves the amount to the
/// runner.
pub fn together<'a>(settings: impl Iterator<Item = Option<&'a Prefetch>> + Clone) -> Option<Prefetch> {
    let said = || settings.clone().flatten();
    said().next()?;
    let all = |field: fn(&Prefetch) -> Option<i32>| -> Option<i32> {
        let fields = settings.clone().map(|prefetch| prefetch.and_then(field));
        fields.reduce(|sum, more| Some(sum?.saturating_add(more?)))?
    };
    let most = |field: fn(&Prefetch) -> Option<i32>| said().filter_map(field).max();
    Some(Prefetch {
        enabled: settings
            .clone()
            .all(|prefetch| prefetch.is_some_and(|prefetch| prefetch.enabled == Some(false)))
            .then_some(false),
        batch_size: all(|prefetch| prefetch.batch_size),
        max_queued: all(|prefetch| prefetch.max_queued),
        refill_threshold: most(|prefetch| prefetch.refill_threshold),
        lease_seconds: said().filter_map(|prefetch| prefetch.lease_seconds).min(),
        horizon_seconds: most(|prefetch| prefetch.horizon_seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(most: i32) -> Prefetch {
        Prefetch { max_queued: Some(most), batch_size: Some(2), ..Prefetch::default() }
    }

    // P05
    #[test]
    fn one_workflow_decides_alone_and_several_add_up() {
        let off = Prefetch { enabled: Some(false), ..Prefetch::default() };
        let eager =
            Prefetch { horizon_seconds: Some(9), refill_threshold: Some(3), lease_seconds: Some(60), ..queued(4) };
        let quick = Prefetch { horizon_seconds: Some(1), lease_seconds: Some(30), ..queued(5) };
        assert_eq!(together([None, None].into_iter()), None);
        for alone in [&off, &eager] {
            assert_eq!(together([Some(alone)].into_iter()).as_ref(), Some(alone));
        }
        let both = together([Some(&eager), Some(&quick)].into_iter()).expect("said");
        assert_eq!((both.max_queued, both.batch_size, both.refill_threshold), (Some(9), Some(4), Some(3)));
        assert_eq!((both.horizon_seconds, both.lease_seconds), (Some(9), Some(30)));
        let open = together([Some(&eager), None].into_iter()).expect("said");
        assert_eq!((open.max_queued, open.batch_size), (None, None), "the other leaves it to the runner");
        assert_eq!(
            together([Some(&off), None].into_iter()).expect("said").enabled,
            None,
            "only one of them has it off"
        );
        assert_eq!(together([Some(&off), Some(&off)].into_iter()).expect("said").enabled, Some(false));
    }
}
