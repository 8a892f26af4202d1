//! Arguments that several commands share.

use std::path::PathBuf;

use clap::Args;
use torc_api::setting::FlagGroup;

use crate::logging::LogFormat;
use crate::settings::{Flags, bit};

/// Flags of every command.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    #[command(flatten)]
    pub settings: Flags<{ bit(FlagGroup::Global) }>,
    /// Log more to standard error: -v for info, -vv for debug, -vvv for trace
    #[arg(short = 'v', long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Format of log lines on standard error
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
}

/// The documents of a command.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// File, folder, or `-` for standard input; may be repeated
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
