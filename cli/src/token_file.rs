//! Reads tokens from files.

use std::path::Path;

use crate::error::{CliError, ExitStatus};

/// Reads a token from a file.
pub fn read_token(path: &Path) -> Result<String, CliError> {
    match std::fs::read_to_string(path) {
        Ok(token) => Ok(token.trim().to_owned()),
        Err(error) => {
            let kind = if error.kind() == std::io::ErrorKind::NotFound {
                ExitStatus::NotFound
            } else {
                ExitStatus::Unexpected
            };
            Err(CliError::new(kind, format!("could not read the token file {}", path.display())).because(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_token_file_is_not_found() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), " word \n").expect("a file");
        assert_eq!(read_token(&folder.path().join("token")).expect("a token"), "word");
        assert_eq!(read_token(&folder.path().join("none")).expect_err("no file").kind, ExitStatus::NotFound);
        assert_eq!(read_token(folder.path()).expect_err("a folder").kind, ExitStatus::Unexpected);
    }
}
