//! `torc unpack`: write packed logs to separate files.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use torc_runner::packs::{self, PackEntry, Stream};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Write packed logs to separate files, with the names of unpacked logs
///
/// Reads every pack in a folder, with or without its index. Ignores an incomplete record that a crash left at the end of a pack.
#[derive(Debug, Args)]
pub struct UnpackArgs {
    /// Folder of the packs
    #[arg(value_name = "FOLDER", default_value = "torc_output/job_stdio")]
    pub folder: PathBuf,
    /// Folder for the files (default: the folder of the packs)
    #[arg(long, value_name = "FOLDER")]
    pub into: Option<PathBuf>,
    /// Unpack only this attempt, e.g. `wf1_j2_r1_a1`
    #[arg(long, value_name = "ATTEMPT")]
    pub attempt: Option<String>,
    /// List the packed logs without writing them
    #[arg(long)]
    pub list: bool,
}

pub fn run(context: &CommandContext, args: &UnpackArgs) -> Result<ExitStatus, CliError> {
    let into = args.into.as_ref().unwrap_or(&args.folder);
    let mut found = Vec::new();
    for pack in packs_in(&args.folder)? {
        let failed = |error| CliError::unexpected(format!("could not read {}", pack.display()), error);
        for entry in packs::entries(&pack).map_err(failed)? {
            if args.attempt.as_ref().is_none_or(|wanted| *wanted == entry.label) {
                found.push((pack.clone(), entry));
            }
        }
    }
    if !args.list {
        fs::create_dir_all(into)
            .map_err(|error| CliError::unexpected(format!("could not create {}", into.display()), error))?;
        for (pack, entry) in &found {
            write(pack, entry, into)?;
        }
    }
    let items: Vec<_> = found.iter().map(|(pack, entry)| item(pack, entry)).collect();
    context.output.value(&json!({ "items": items }), || {
        if args.list {
            return found
                .iter()
                .map(|(_, entry)| format!("{}  {}\n", file_name(entry), human::bytes(size(entry))))
                .collect();
        }
        format!(
            "{} written to {}\n",
            human::count(i64::try_from(found.len()).unwrap_or(i64::MAX), "log"),
            into.display()
        )
    })?;
    Ok(ExitStatus::Success)
}

fn packs_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let entries = fs::read_dir(folder).map_err(|error| {
        CliError::not_found(format!("could not read the folder {}", folder.display()))
            .because(error)
            .hint("select the folder `job_stdio` in the output folder")
    })?;
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|extension| extension == packs::PACK);
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_pack).collect();
    found.sort();
    Ok(found)
}

fn write(pack: &Path, entry: &PackEntry, into: &Path) -> Result<(), CliError> {
    let path = into.join(file_name(entry));
    packs::read(pack, entry.offset)
        .and_then(|output| fs::write(&path, output))
        .map_err(|error| CliError::unexpected(format!("could not write {}", path.display()), error))
}

fn file_name(entry: &PackEntry) -> String {
    let extension = match entry.stream {
        Stream::Out => "o",
        Stream::Err => "e",
    };
    format!("job_{}.{extension}", entry.label)
}

fn size(entry: &PackEntry) -> i64 {
    i64::try_from(entry.length).unwrap_or(i64::MAX)
}

fn item(pack: &Path, entry: &PackEntry) -> serde_json::Value {
    json!({ "name": file_name(entry), "pack": pack, "offset": entry.offset, "sizeBytes": entry.length })
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn unpacked_logs_are_named_as_if_they_had_never_been_packed() {
        let entry = |stream| PackEntry { label: "wf1_j2_r1_a1".to_owned(), stream, offset: 5, length: 7 };
        assert_eq!(file_name(&entry(Stream::Out)), "job_wf1_j2_r1_a1.o");
        assert_eq!(file_name(&entry(Stream::Err)), "job_wf1_j2_r1_a1.e");
        let expected = json!({ "name": "job_wf1_j2_r1_a1.e", "pack": "/p", "offset": 5, "sizeBytes": 7 });
        assert_eq!(item(Path::new("/p"), &entry(Stream::Err)), expected);
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.pack", "a.pack", "a.o"] {
            fs::write(folder.path().join(name.replace("pack", packs::PACK)), "").expect("a file");
        }
        let found = packs_in(folder.path()).expect("packs");
        let names: Vec<&str> = found.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(packs_in(&folder.path().join("none")).expect_err("no folder").kind, ExitStatus::NotFound);
    }
}
