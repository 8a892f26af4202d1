//! Checks that a runner and a server have compatible versions.

use torc_api::wire::PROTOCOL;

use crate::client::Client;
use crate::error::{CliError, ExitStatus};

/// The difference between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skew {
    None,
    /// Only the patch number differs: both versions are compatible.
    Patch,
    Release,
}

fn compare(ours: &str, theirs: &str) -> Skew {
    let release = |version: &str| {
        let numbers = version.split(['-', '+']).next().unwrap_or_default();
        let (line, _) = numbers.rsplit_once('.').unwrap_or((numbers, ""));
        line.to_owned()
    };
    if ours == theirs {
        Skew::None
    } else if release(ours) == release(theirs) {
        Skew::Patch
    } else {
        Skew::Release
    }
}

/// Checks the server's version before a runner takes work from it. Another release is an error unless `skip` is set.
pub async fn check(client: &Client, skip: bool) -> Result<(), CliError> {
    let server = client.version().await?;
    let ours = env!("CARGO_PKG_VERSION");
    let protocol = match server.protocol {
        PROTOCOL => String::new(),
        theirs => format!("; its runner protocol is {theirs}, this runner's is {PROTOCOL}"),
    };
    match compare(ours, &server.version) {
        Skew::None => Ok(()),
        Skew::Patch => {
            tracing::warn!(
                runner = ours,
                server = server.version,
                "runner and server have different patch versions{protocol}"
            );
            Ok(())
        }
        Skew::Release if skip => {
            tracing::warn!(
                runner = ours,
                server = server.version,
                "runner and server have different releases{protocol}"
            );
            Ok(())
        }
        Skew::Release => {
            let message =
                format!("the server has version {}, this runner has version {ours}{protocol}", server.version);
            let hint =
                "use the same release of torc on both sides, or pass --skip-version-check if they are compatible";
            Err(CliError::new(ExitStatus::Refused, message).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // J10
    #[test]
    fn a_patch_number_does_not_make_another_release() {
        let cases = [
            ("0.1.0", "0.1.0", Skew::None),
            ("0.1.0", "0.1.7", Skew::Patch),
            ("0.1.0", "0.1.0-rc1", Skew::Patch),
            ("0.1.0", "0.2.0", Skew::Release),
            ("1.0.0", "2.0.0", Skew::Release),
            ("0.1.0", "", Skew::Release),
            ("0.1.0", "nonsense", Skew::Release),
        ];
        for (ours, theirs, expected) in cases {
            assert_eq!(compare(ours, theirs), expected, "{ours} {theirs}");
        }
    }
}
