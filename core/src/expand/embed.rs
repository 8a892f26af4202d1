//! Embeds the content of parameter files in the document, so that it means the same on every machine.
//!
//! The only side effect is `read`. It gets each path once, as written in the document with variables replaced.

use std::collections::BTreeMap;

use serde_json::Value;
use torc_api::parameters::{ParameterTable, Parameterization};
use torc_api::problem::Problem;
use torc_api::workflow::WorkflowSpec;

use super::{table, value, variables};

/// A function that reads the file at a path; the error is the reason in words.
pub type Read<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// Replaces `@file` values by lists and reads every `parametersFile` into a table. Existing tables do not change.
pub fn embed(spec: &mut WorkflowSpec, read: &mut Read<'_>) -> Vec<Problem> {
    let constants = WorkflowSpec { variables: spec.variables.clone(), ..Default::default() };
    let mut embedder = Embedder { constants, read, texts: BTreeMap::new(), problems: Vec::new() };
    embedder.lists("spec.parameters", &mut spec.parameters);
    embedder.table("spec", spec.parameters_file.as_deref(), &mut spec.parameter_table);
    for (at, job) in spec.jobs.iter_mut().enumerate() {
        embedder.entry("jobs", at, &mut job.parameterization);
    }
    for (at, file) in spec.files.iter_mut().enumerate() {
        embedder.entry("files", at, &mut file.parameterization);
    }
    for (at, data) in spec.user_data.iter_mut().enumerate() {
        embedder.entry("userData", at, &mut data.parameterization);
    }
    embedder.problems
}

struct Embedder<'a, 'r> {
    constants: WorkflowSpec,
    read: &'a mut Read<'r>,
    texts: BTreeMap<String, Result<String, String>>,
    problems: Vec<Problem>,
}

impl Embedder<'_, '_> {
    fn entry(&mut self, list: &str, at: usize, entry: &mut Parameterization) {
        if entry.parameters.is_empty() && entry.parameters_file.is_none() {
            return;
        }
        let field = format!("spec.{list}[{at}]");
        self.lists(&format!("{field}.parameters"), &mut entry.parameters);
        self.table(&field, entry.parameters_file.as_deref(), &mut entry.parameter_table);
    }

    fn lists(&mut self, field: &str, parameters: &mut BTreeMap<String, Value>) {
        for (name, written) in parameters {
            let Some(file) = value::file_name(written).map(str::to_owned) else { continue };
            let field = format!("{field}.{name}");
            if file.is_empty() {
                self.problems.push(Problem::error(field, value::ValueError::FileName.to_string()));
                continue;
            }
            if let Some(text) = self.text(&field, &file) {
                *written = Value::Array(table::parse_list(&text));
            }
        }
    }

    fn table(&mut self, field: &str, file: Option<&str>, place: &mut Option<ParameterTable>) {
        let (Some(file), None) = (file, place.as_ref()) else { return };
        let field = format!("{field}.parametersFile");
        let Some(text) = self.text(&field, file) else { return };
        match table::parse(file, &text) {
            Ok(read) => *place = Some(read),
            Err(error) => self.problems.push(Problem::error(field, format!("`{file}` is not a table: {error}"))),
        }
    }

    fn text(&mut self, field: &str, file: &str) -> Option<String> {
        let path = variables::in_text(&self.constants, file.trim());
        let read = &mut self.read;
        match self.texts.entry(path.clone()).or_insert_with(|| read(&path)) {
            Ok(text) => Some(text.clone()),
            Err(error) => {
                self.problems.push(Problem::error(field, format!("cannot read `{path}`: {error}")));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn files(path: &str) -> Result<String, String> {
        match path {
            "/data/runs.txt" => Ok("1\n# no\n2\n".to_owned()),
            "sweep.csv" => Ok("lr,n\n0.1,2\n".to_owned()),
            "bad.csv" => Ok("lr,n\n0.1\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }

    #[test]
    fn content_replaces_names_of_files() {
        let mut spec: WorkflowSpec = serde_json::from_value(json!({
            "variables": {"dir": "/data"},
            "parameters": {"i": "@{dir}/runs.txt", "k": "1:3"},
            "parametersFile": "sweep.csv",
            "jobs": [
                {"name": "a", "command": "a", "parameters": {"i": " @ /data/runs.txt"}},
                {"name": "b", "command": "b", "parametersFile": "sweep.csv"},
            ],
        }))
        .unwrap();
        let mut reads = Vec::new();
        let problems = embed(&mut spec, &mut |path| {
            reads.push(path.to_owned());
            files(path)
        });
        assert_eq!(problems, []);
        assert_eq!(reads, ["/data/runs.txt", "sweep.csv"], "each file is read once");
        assert_eq!(spec.parameters["i"], json!([1, 2]));
        assert_eq!(spec.parameters["k"], json!("1:3"));
        assert_eq!(spec.jobs[0].parameterization.parameters["i"], json!([1, 2]));
        let table = ParameterTable { columns: vec!["lr".into(), "n".into()], rows: vec![vec![json!(0.1), json!(2)]] };
        assert_eq!(spec.parameter_table, Some(table.clone()));
        assert_eq!(spec.jobs[1].parameterization.parameter_table, Some(table));
    }

    #[test]
    fn every_unreadable_file_is_reported() {
        let mut spec: WorkflowSpec = serde_json::from_value(json!({
            "jobs": [
                {"name": "a", "command": "a", "parameters": {"i": "@missing.txt", "j": "@"}},
                {"name": "b", "command": "b", "parametersFile": "bad.csv"},
            ],
            "files": [{"name": "f", "path": "f", "parametersFile": "gone.json"}],
        }))
        .unwrap();
        let problems = embed(&mut spec, &mut files);
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.jobs[0].parameters.i",
                "spec.jobs[0].parameters.j",
                "spec.jobs[1].parametersFile",
                "spec.files[0].parametersFile"
            ]
        );
    }

    #[test]
    fn a_table_that_is_there_stays_and_all_lists_are_read() {
        let mut spec: WorkflowSpec = serde_json::from_value(json!({
            "parametersFile": "sweep.csv",
            "parameterTable": {"columns": ["old"], "rows": [[1]]},
            "jobs": [{"name": "a", "command": "a"}],
            "files": [{"name": "f", "path": "f", "parameters": {"i": "@/data/runs.txt"}}],
            "userData": [
                {"name": "d", "parametersFile": "sweep.csv"},
                {"name": "e", "parameters": {"i": "@missing.txt"}},
            ],
        }))
        .unwrap();
        let problems = embed(&mut spec, &mut files);
        let told: Vec<_> = problems.iter().map(|problem| (problem.field.as_str(), problem.message.as_str())).collect();
        assert_eq!(told, [("spec.userData[1].parameters.i", "cannot read `missing.txt`: no such file")]);
        assert_eq!(spec.parameter_table.map(|table| table.columns), Some(vec!["old".to_owned()]));
        assert_eq!(spec.files[0].parameterization.parameters["i"], json!([1, 2]));
        let read = spec.user_data[0].parameterization.parameter_table.as_ref().map(|table| table.columns.len());
        assert_eq!(read, Some(2));
        assert_eq!(spec.user_data[1].parameterization.parameters["i"], json!("@missing.txt"));
    }
}
