#![allow(clippy::unwrap_used)]

use super::*;
use crate::error::ExitStatus;

const ONE: &str = "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {name: one}\nspec: {jobs: [{name: a, command: 'true'}]}\n";

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_folder_gives_its_documents_in_order() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "b.yaml", &ONE.replace("one", "two"));
    write(root.path(), "a.yml", ONE);
    write(root.path(), "notes.txt", "not a document");
    let (workflows, report) = read(&[root.path().to_owned()], None).unwrap();
    assert!(!report.has_errors(), "{report:?}");
    let names: Vec<&str> = workflows.iter().map(LoadedWorkflow::name).collect();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn a_file_may_contain_several_documents() {
    let root = tempfile::tempdir().unwrap();
    let text = format!("{ONE}---\n{}", ONE.replace("one", "two"));
    let path = write(root.path(), "both.yaml", &text);
    let (workflows, _) = read(&[path], None).unwrap();
    assert_eq!(workflows.len(), 2);
}

#[test]
fn the_same_workflow_twice_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "a.yaml", &format!("{ONE}---\n{ONE}"));
    let (_, report) = read(&[path], None).unwrap();
    assert!(report.has_errors());
}

#[test]
fn problems_of_all_files_are_reported_with_positions() {
    let root = tempfile::tempdir().unwrap();
    let first = write(root.path(), "a.yaml", &ONE.replace("command", "comand"));
    let second = write(root.path(), "b.yaml", "{");
    let (_, report) = read(&[first.clone(), second.clone()], None).unwrap();
    let error = report.into_result().unwrap_err();
    assert_eq!(error.kind, ExitStatus::InvalidInput);
    let plain = anstream::adapter::strip_str(&error.render()).to_string();
    assert!(plain.contains(&format!("{}:4:", first.display())), "{plain}");
    assert!(plain.contains(&format!("{}:", second.display())), "{plain}");
}

#[test]
fn missing_files_and_empty_folders_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let missing = read(&[root.path().join("none.yaml")], None).unwrap_err();
    assert_eq!(missing.kind, ExitStatus::NotFound);
    let empty = read(&[root.path().to_owned()], None).unwrap_err();
    assert_eq!(empty.kind, ExitStatus::InvalidInput);
}

#[test]
fn the_namespace_of_the_command_line_must_agree() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "a.yaml", ONE);
    let (workflows, report) = read(std::slice::from_ref(&path), Some("lab")).unwrap();
    assert!(!report.has_errors());
    assert_eq!(workflows[0].document.metadata.namespace(), "lab");
    let other = write(root.path(), "b.yaml", &ONE.replace("name: one", "name: one, namespace: else"));
    assert!(read(&[other], Some("lab")).unwrap().1.has_errors());
}
