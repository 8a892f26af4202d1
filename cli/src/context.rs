//! The values that every command works with.

use std::path::PathBuf;

use crate::output::Output;
use crate::settings::Settings;

/// Settings, output and current folder of a command.
pub struct Context {
    /// The resolved settings.
    pub settings: Settings,
    /// The printer of results.
    pub output: Output,
    /// The current folder.
    pub folder: PathBuf,
    /// The server is that of a cluster: files on the disks of its runners are not on this machine.
    pub in_cluster: bool,
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use super::*;
    use crate::output::Format;
    use crate::settings::{self, Handed, Layers, Surroundings};

    /// Returns a context with default settings.
    pub fn context() -> Context {
        let folder = PathBuf::from("/folder");
        let surroundings = Surroundings { variable: &|_| None, folder: &folder, system: Path::new("/nowhere") };
        let (layers, _) = settings::gather(Layers::default(), &surroundings).expect("settings");
        let settings = settings::resolve(&layers, Handed::default()).expect("settings");
        Context { settings, output: Output::new(Format::Table), folder, in_cluster: false }
    }
}
