//! Whether a runner and a server go together.

use torc_api::wire::PROTOCOL;

use crate::client::Client;
use crate::error::{CliError, ExitStatus};

/// How two versions compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    Same,
    /// Only the last number differs: they understand each other.
    Near,
    Apart,
}

fn compare(ours: &str, theirs: &str) -> Compared {
    let release = |version: &str| {
        let numbers = version.split(['-', '+']).next().unwrap_or_default();
        let (line, _) = numbers.rsplit_once('.').unwrap_or((numbers, ""));
        line.to_owned()
    };
    if ours == theirs {
        Compared::Same
    } else if release(ours) == release(theirs) {
        Compared::Near
    } else {
        Compared::Apart
    }
}

/// Asks the server for its version, before a runner takes work from it. Another release is refused unless `skip`.
pub async fn check(client: &Client, skip: bool) -> Result<(), CliError> {
    let server = client.version().await?;
    let ours = env!("CARGO_PKG_VERSION");
    let protocol = match server.protocol {
        PROTOCOL => String::new(),
        theirs => format!("; its runner protocol is {theirs}, ours is {PROTOCOL}"),
    };
    match compare(ours, &server.version) {
        Compared::Same => Ok(()),
        Compared::Near => {
            tracing::warn!("this runner is version {ours}, the server is version {}{protocol}", server.version);
            Ok(())
        }
        Compared::Apart if skip => {
            tracing::warn!("going on with a server of version {} and a runner of {ours}{protocol}", server.version);
            Ok(())
        }
        Compared::Apart => {
            let message = format!("the server is version {}, this runner is {ours}{protocol}", server.version);
            Err(CliError::new(ExitStatus::Refused, message).hint(
                "use the same release of torc on both sides, or --skip-version-check if you know that they agree",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // J10
    #[test]
    fn releases_differ_in_all_but_the_last_number() {
        let cases = [
            ("0.1.0", "0.1.0", Compared::Same),
            ("0.1.0", "0.1.7", Compared::Near),
            ("0.1.0", "0.1.0-rc1", Compared::Near),
            ("0.1.0", "0.2.0", Compared::Apart),
            ("1.0.0", "2.0.0", Compared::Apart),
            ("0.1.0", "", Compared::Apart),
            ("0.1.0", "nonsense", Compared::Apart),
        ];
        for (ours, theirs, expected) in cases {
            assert_eq!(compare(ours, theirs), expected, "{ours} {theirs}");
        }
    }
}
