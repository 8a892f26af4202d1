//! Arguments that several commands share.

use std::path::PathBuf;

use clap::Args;

use crate::output::Format;

/// Flags of every verb.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Talk to this server instead of the store of this folder.
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// The file with the server's token.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust servers that the certificates of this file vouch for, and no others.
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,
    /// Trust the server whose certificate has this fingerprint, and no other.
    #[arg(long, global = true, value_name = "HEX")]
    pub certificate_sha256: Option<String>,
    /// Talk to the Kubernetes cluster of this context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Talk to the Kubernetes cluster of this kubeconfig.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How results are printed.
    #[arg(short = 'o', long = "output", global = true, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// The namespace of the workflows (that of the kubeconfig's context, else `default`, when absent).
    #[arg(short = 'n', long, global = true)]
    pub namespace: Option<String>,
    /// Log more to standard error: -v for info, -vv for debug, -vvv for everything.
    #[arg(short = 'v', long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Which documents.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// A file, a folder, or `-` for standard input; may be given several times.
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE", num_args = 1..)]
    pub files: Vec<PathBuf>,
}

/// Parses a duration on the command line.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let seconds = torc_api::quantity::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(seconds).map(std::time::Duration::from_secs).map_err(|_| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_on_the_command_line_have_a_unit() {
        for (text, seconds) in [
            ("0s", Some(0)),
            ("90s", Some(90)),
            ("1h", Some(3_600)),
            ("30d", Some(30 * 86_400)),
            ("90", None),
            ("-5s", None),
        ] {
            assert_eq!(parse_duration(text).ok().map(|time| time.as_secs()), seconds, "{text}");
        }
    }
}
