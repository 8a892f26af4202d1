//! Logs each distinct error once, with a hint: an error that lasts must not fill the log.

use kube::runtime::watcher;

/// The error that was logged last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogOnce {
    last: String,
}

impl LogOnce {
    /// Returns whether an error differs from the last one, and remembers it.
    pub fn should_log(&mut self, said: &str) -> bool {
        if self.last == said {
            return false;
        }
        said.clone_into(&mut self.last);
        true
    }

    /// Forgets the last error: the same one is logged again when it returns.
    pub fn reset(&mut self) {
        self.last.clear();
    }
}

/// Returns the message of an API error, with a hint.
pub(super) fn explained(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => with_hint(&status.message, status.code),
        other => other.to_string(),
    }
}

/// Returns the message of a watch error, with a hint.
pub(super) fn explained_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => match status.code {
            404 => {
                format!("{}: install the definitions with `torc crd install` or the chart torc-crds", status.message)
            }
            code => with_hint(&status.message, code),
        },
        other => other.to_string(),
    }
}

fn with_hint(message: &str, code: u16) -> String {
    match code {
        403 => format!(
            "{message}: the server's account lacks a right that the chart's `rbac` gives, in the namespaces of `watchNamespaces` \
             or in all"
        ),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn status(message: &str, code: u16) -> Box<Status> {
        Box::new(Status { message: message.to_owned(), code, ..Status::default() })
    }

    #[test]
    fn the_same_is_told_once_until_it_is_over() {
        let mut log_once = LogOnce::default();
        assert!(log_once.should_log("no"));
        assert!(!log_once.should_log("no"));
        assert!(log_once.should_log("no, for another reason"));
        log_once.reset();
        assert!(log_once.should_log("no, for another reason"));
    }

    #[test]
    fn what_is_refused_is_told_with_what_helps() {
        for (message, code, calls, watches) in [
            ("may not list", 403, Some("`rbac`"), Some("`watchNamespaces`")),
            ("404 page not found", 404, None, Some("`torc crd install`")),
            ("is gone", 410, None, None),
        ] {
            let said = explained(&kube::Error::Api(status(message, code)));
            assert!(said.starts_with(message) && calls.map_or(said == message, |part| said.contains(part)), "{said}");
            for error in [
                watcher::Error::InitialListFailed(kube::Error::Api(status(message, code))),
                watcher::Error::WatchError(status(message, code)),
            ] {
                let said = explained_watch(&error);
                assert!(
                    said.starts_with(message) && watches.map_or(said == message, |part| said.contains(part)),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn every_way_in_which_a_watch_fails_is_told_with_what_helps() {
        let api = |code| kube::Error::Api(status("no", code));
        for error in [watcher::Error::WatchStartFailed(api(404)), watcher::Error::WatchFailed(api(404))] {
            assert!(explained_watch(&error).contains("`torc crd install`"), "{error}");
        }
        assert_eq!(explained(&kube::Error::Api(status("no", 404))), "no");
    }
}
