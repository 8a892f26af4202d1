//! `torc copy-program`: brings this program into a folder, for containers that do not have it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Copy this program into a folder.
///
/// Jobs of a runner pool run in an image of the user's choice, in which there is no `torc`: the Pod's first container puts it into a volume
/// that both share.
#[derive(Debug, Args)]
pub struct CopyProgramArgs {
    /// The folder; it is made when it is not there.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Runs the verb.
pub fn run(context: &CommandContext, args: &CopyProgramArgs) -> Result<ExitStatus, CliError> {
    let path = args.folder.join("torc");
    let failed = |error| CliError::unexpected(format!("could not copy this program to {}", path.display()), error);
    let program = std::env::current_exe().map_err(failed)?;
    copy(&program, &path).map_err(failed)?;
    context.output.value(&json!({ "path": path }), || format!("{}\n", path.display()))?;
    Ok(ExitStatus::Success)
}

/// A program that runs cannot be written to, but it can be replaced: whoever looks sees the old one or the new one, whole.
fn copy(program: &Path, path: &Path) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    std::io::copy(&mut fs::File::open(program)?, &mut new)?;
    fs::set_permissions(new.path(), Permissions::from_mode(0o755))?;
    new.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_copy_replaces_what_is_there_and_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let (program, path) = (folder.path().join("p"), folder.path().join("new/bin/torc"));
        for content in ["one", "two"] {
            fs::write(&program, content).unwrap();
            copy(&program, &path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}
