//! Paths of Torc 1.0, without a version or with another prefix, and the paths that replace them.

use super::rules;

/// Prefixes that a path of Torc 1.0 may have.
const PREFIXES: [&str; 2] = ["/torc-service/v1", "/torc-service"];

/// The first or the last part of a path of Torc 1.0, and the path that replaces it.
const MOVED: [(&str, &str); 13] = [
    ("results", "/v1/workflows/{workflow}/results"),
    ("jobs", "/v1/workflows/{workflow}/jobs"),
    ("files", "/v1/workflows/{workflow}/files"),
    ("user_data", "/v1/workflows/{workflow}/user-data"),
    ("workflow_actions", "/v1/workflows/{workflow}/actions"),
    ("compute_nodes", "/v1/runners"),
    ("scheduled_compute_nodes", "/v1/allocations"),
    ("remote_workers", "/v1/workflows/{workflow}/remote-workers"),
    ("claim_next_jobs", "/v1/runners/{runner}/sync"),
    ("claim_jobs_based_on_resources", "/v1/runners/{runner}/sync"),
    ("claim_action", "/v1/workflows/{workflow}/actions"),
    ("ping", "/v1/version"),
    ("version", "/v1/version"),
];

/// Returns the path that replaces a path of Torc 1.0, or `None` for a path that Torc never had.
pub(super) fn versioned_path(path: &str) -> Option<String> {
    let bare = PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
    let bare = bare.trim_end_matches('/');
    if !bare.starts_with('/') || bare.starts_with("/v1/") {
        return None;
    }
    let versioned = format!("/v1{bare}");
    if rules().iter().any(|rule| is_at(rule.path, &versioned)) {
        return Some(versioned);
    }
    let mut parts = bare.trim_start_matches('/').split('/');
    let (first, last) = (parts.next(), bare.rsplit('/').next());
    let moved = |part: Option<&str>| MOVED.iter().find(|(name, _)| Some(*name) == part).map(|(_, path)| *path);
    moved(last).or_else(|| moved(first)).map(str::to_owned)
}

/// Returns whether a path matches a route with placeholders such as `{workflow}`.
fn is_at(route: &str, path: &str) -> bool {
    let fits = |(part, found): (&str, &str)| part == found || (part.starts_with('{') && !found.is_empty());
    route.split('/').count() == path.split('/').count() && route.split('/').zip(path.split('/')).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    // S17
    #[test]
    fn paths_of_torc_1_lead_to_those_of_today() {
        for (path, expected) in [
            ("/slurm_stats", Some("/v1/slurm_stats")),
            ("/slurm_stats/", Some("/v1/slurm_stats")),
            ("/torc-service/v1/slurm_stats", Some("/v1/slurm_stats")),
            ("/workflows", Some("/v1/workflows")),
            ("/workflows/7", Some("/v1/workflows/7")),
            ("/workflows/7/jobs", Some("/v1/workflows/7/jobs")),
            ("/results", Some("/v1/workflows/{workflow}/results")),
            ("/results/4", Some("/v1/workflows/{workflow}/results")),
            ("/workflows/7/claim_next_jobs", Some("/v1/runners/{runner}/sync")),
            ("/workflows/7/claim_jobs_based_on_resources/3", None),
            ("/compute_nodes", Some("/v1/runners")),
            ("/ping", Some("/v1/version")),
            ("/v1/nothing", None),
            ("/nothing", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(versioned_path(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn every_path_that_is_named_is_served() {
        for (name, path) in MOVED {
            assert!(rules().iter().any(|rule| rule.path == path), "{name}: {path}");
        }
    }
}
