//! The values that every command works with.

use std::path::PathBuf;

use crate::output::Printer;
use crate::settings::Settings;

/// Settings, output and current folder of a command.
pub struct CommandContext {
    /// The settings of this call, from all sources.
    pub settings: Settings,
    /// The printer of results.
    pub output: Printer,
    /// The folder in which the program was called.
    pub folder: PathBuf,
    /// True if the server is in a Kubernetes cluster. Files of its runners are then not on this machine.
    pub in_cluster: bool,
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use super::*;
    use crate::output::OutputFormat;
    use crate::settings::{self, EnvCredentials, Environment, Layers};

    /// Returns a context with default settings.
    pub fn context() -> CommandContext {
        let folder = PathBuf::from("/folder");
        let environment = Environment { variable: &|_| None, folder: &folder, system: Path::new("/nowhere") };
        let (layers, _) = settings::gather(Layers::default(), &environment).expect("settings");
        let settings = settings::resolve(&layers, EnvCredentials::default()).expect("settings");
        CommandContext { settings, output: Printer::new(OutputFormat::Table), folder, in_cluster: false }
    }
}
