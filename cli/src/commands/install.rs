//! `torc install`: copy this program into a folder, for containers without it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Copy this program into a folder
///
/// Runner pools use images of the user, which do not contain `torc`. The init container of the Pod copies it into a shared volume.
#[derive(Debug, Args)]
pub struct InstallProgramArgs {
    /// Folder to copy to; created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
}

pub fn run(context: &CommandContext, args: &InstallProgramArgs) -> Result<ExitStatus, CliError> {
    let path = args.to.join("torc");
    let failed = |error| CliError::unexpected(format!("could not copy this program to {}", path.display()), error);
    let program = std::env::current_exe().map_err(failed)?;
    replace_file(&path, &program).map_err(failed)?;
    context.output.value(&json!({ "path": path }), || format!("{}\n", path.display()))?;
    Ok(ExitStatus::Success)
}

/// Replaces the file atomically, because a running program cannot be overwritten.
fn replace_file(path: &Path, program: &Path) -> std::io::Result<()> {
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
            replace_file(&path, &program).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}
