//! Fingerprints: of a job, to know whether it must run again; of a document, to know whether anything changed.
//!
//! Names go into them, never numbers: a job keeps its fingerprint when others are added before it.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::expanded::{Expanded, ExpandedJob};

/// Returns a hash of what a job does: its command, script, environment, dependencies, files, data, and the content of
/// its input data. Resources and priority are left out, because they only change where and when it runs.
pub fn job_hash(expanded: &Expanded, job: usize) -> [u8; 32] {
    let mut hash = FieldHasher::new("torc job 1");
    if let Some(job) = expanded.jobs.get(job) {
        add_work(&mut hash, expanded, job);
    }
    hash.finish()
}

/// Returns a hash of what a spawned job does. It includes the spawning job, so it differs from every job of the
/// document.
pub fn spawned_job_hash(expanded: &Expanded, job: usize, lineage: &str) -> [u8; 32] {
    let mut hash = FieldHasher::new("torc spawned job 1");
    hash.text(lineage);
    if let Some(job) = expanded.jobs.get(job) {
        add_work(&mut hash, expanded, job);
    }
    hash.finish()
}

/// Returns a hash of the expanded document, as 64 hexadecimal digits.
pub fn digest(expanded: &Expanded) -> String {
    let mut hash = FieldHasher::new("torc workflow 1");
    hash.count(expanded.jobs.len());
    for job in &expanded.jobs {
        hash.text(&job.name);
        add_work(&mut hash, expanded, job);
        add_terms(&mut hash, expanded, job);
    }
    hash.count(expanded.files.len());
    for file in &expanded.files {
        hash.text(&file.name).text(&file.path).optional(file.identifier.as_deref());
    }
    hash.count(expanded.user_data.len());
    for data in &expanded.user_data {
        hash.text(&data.name).flag(data.is_ephemeral).flag(data.data.is_some());
        data.data.iter().for_each(|value| hash.value(value));
    }
    hash.count(expanded.requirements.len());
    for requirements in &expanded.requirements {
        add_requirements(&mut hash, requirements);
    }
    hash.finish().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn add_work(hash: &mut FieldHasher, expanded: &Expanded, job: &ExpandedJob) {
    hash.text(&job.command).optional(job.invocation_script.as_deref()).count(job.env.len());
    for (key, value) in &job.env {
        hash.text(key).text(value);
    }
    let parent = |number: &u32| expanded.jobs.get(*number as usize).map(|job| (job.name.as_str(), ""));
    hash.pairs(job.depends_on.iter().filter_map(parent).collect());
    let file = |number: &u32| expanded.files.get(*number as usize).map(|file| (file.name.as_str(), file.path.as_str()));
    hash.pairs(job.input_files.iter().filter_map(file).collect());
    hash.pairs(job.output_files.iter().filter_map(file).collect());
    let data = |number: &u32| expanded.user_data.get(*number as usize);
    let name = |number: &u32| data(number).map(|data| (data.name.as_str(), ""));
    hash.pairs(job.input_user_data.iter().filter_map(name).collect());
    hash.pairs(job.output_user_data.iter().filter_map(name).collect());
    let mut inputs: Vec<_> = job.input_user_data.iter().filter_map(data).collect();
    inputs.sort_unstable_by_key(|data| data.name.as_str());
    for input in inputs {
        hash.flag(input.data.is_some());
        input.data.iter().for_each(|value| hash.value(value));
    }
}

fn add_terms(hash: &mut FieldHasher, expanded: &Expanded, job: &ExpandedJob) {
    hash.count(job.requirements as usize);
    expanded.requirements.get(job.requirements as usize).into_iter().for_each(|entry| add_requirements(hash, entry));
    hash.flag(job.cancel_on_blocking_job_failure)
        .optional(job.failure_handler.as_deref())
        .optional(job.scheduler.as_deref())
        .number(job.priority)
        .pairs(job.labels.iter().map(|label| (label.as_str(), "")).collect());
    hash.flag(job.stdio.is_some());
    if let Some(stdio) = &job.stdio {
        hash.text(&format!("{:?}", stdio.mode)).text(&format!("{:?}", stdio.delete_on_success));
    }
    hash.flag(job.tasks_per_node.is_some()).number(job.tasks_per_node.unwrap_or_default().into());
}

fn add_requirements(hash: &mut FieldHasher, requirements: &crate::expanded::Requirements) {
    hash.text(&requirements.name)
        .number(requirements.num_cpus)
        .number(requirements.memory_bytes)
        .number(requirements.num_gpus)
        .number(requirements.num_nodes)
        .number(requirements.runtime_seconds);
}

/// Feeds fields one after another, each with its length, so that no two sequences of fields look the same.
struct FieldHasher(Sha256);

impl FieldHasher {
    fn new(purpose: &str) -> Self {
        let mut fields = Self(Sha256::new());
        fields.text(purpose);
        fields
    }

    fn count(&mut self, count: usize) -> &mut Self {
        self.0.update((count as u64).to_le_bytes());
        self
    }

    fn number(&mut self, number: i64) -> &mut Self {
        self.0.update(number.to_le_bytes());
        self
    }

    fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.update([u8::from(flag)]);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len()).0.update(text.as_bytes());
        self
    }

    fn optional(&mut self, text: Option<&str>) -> &mut Self {
        self.flag(text.is_some());
        match text {
            Some(text) => self.text(text),
            None => self,
        }
    }

    fn pairs(&mut self, mut pairs: Vec<(&str, &str)>) -> &mut Self {
        pairs.sort_unstable();
        self.count(pairs.len());
        for (first, second) in pairs {
            self.text(first).text(second);
        }
        self
    }

    /// Adds JSON with sorted keys, independent of the parser's order.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.text("[").count(items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| key.as_str());
                self.text("{").count(entries.len());
                for (key, item) in entries {
                    self.text(key).value(item);
                }
            }
            scalar => {
                self.text(&scalar.to_string());
            }
        }
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expanded::{ExpandedFile, ExpandedUserData, Requirements};

    fn example() -> Expanded {
        let job = |name: &str, depends_on: &[u32]| ExpandedJob {
            name: name.into(),
            command: "run".into(),
            depends_on: depends_on.into(),
            ..Default::default()
        };
        let mut expanded = Expanded {
            jobs: vec![job("a", &[]), job("b", &[]), job("c", &[0, 1])],
            files: vec![ExpandedFile { name: "f".into(), path: "/f".into(), identifier: None }],
            user_data: vec![ExpandedUserData { name: "d".into(), data: Some(json!({"x": 1})), is_ephemeral: false }],
            requirements: vec![Requirements::default()],
        };
        expanded.jobs[2].input_files = vec![0];
        expanded.jobs[2].input_user_data = vec![0];
        expanded.jobs[2].env.insert("E".into(), "v".into());
        expanded
    }

    /// A change of a workflow.
    type Change = fn(&mut Expanded);

    #[test]
    fn work_counts_and_terms_do_not() {
        let work: [(&str, Change); 15] = [
            ("value of a variable", |e| drop(e.jobs[2].env.insert("E".into(), "w".into()))),
            ("name of a file", |e| e.files[0].name = "g".into()),
            ("a file that it writes", |e| e.jobs[2].output_files = vec![0]),
            ("name of data", |e| e.user_data[0].name = "e".into()),
            ("data that it writes", |e| e.jobs[2].output_user_data = vec![0]),
            ("kind of data", |e| e.user_data[0].data = Some(json!([["x", 1]]))),
            ("command", |e| e.jobs[2].command = "walk".into()),
            ("script", |e| e.jobs[2].invocation_script = Some(String::new())),
            ("env", |e| drop(e.jobs[2].env.insert("K".into(), "v".into()))),
            ("dependency", |e| e.jobs[2].depends_on.truncate(1)),
            ("name of a dependency", |e| e.jobs[0].name = "z".into()),
            ("path of a file", |e| e.files[0].path = "/g".into()),
            ("direction of a file", |e| e.jobs[2].output_files = std::mem::take(&mut e.jobs[2].input_files)),
            ("content of data", |e| e.user_data[0].data = Some(json!({"x": 2}))),
            ("absence of data", |e| e.user_data[0].data = None),
        ];
        let terms: [(&str, Change); 17] = [
            ("name of requirements", |e| e.requirements[0].name = "r".into()),
            ("CPUs", |e| e.requirements[0].num_cpus = 9),
            ("GPUs", |e| e.requirements[0].num_gpus = 9),
            ("nodes", |e| e.requirements[0].num_nodes = 9),
            ("runtime", |e| e.requirements[0].runtime_seconds = 9),
            ("failure of a parent", |e| e.jobs[2].cancel_on_blocking_job_failure = true),
            ("handler", |e| e.jobs[2].failure_handler = Some("h".into())),
            ("tasks", |e| e.jobs[2].tasks_per_node = Some(0)),
            ("output", |e| e.jobs[2].stdio = Some(torc_api::execution::Stdio::default())),
            ("output of successes", |e| {
                e.jobs[2].stdio = Some(torc_api::execution::Stdio { mode: None, delete_on_success: Some(false) });
            }),
            ("identifier of a file", |e| e.files[0].identifier = Some("doi".into())),
            ("ephemeral data", |e| e.user_data[0].is_ephemeral = true),
            ("a file that no job uses", |e| e.files.push(ExpandedFile::default())),
            ("priority", |e| e.jobs[2].priority = 7),
            ("labels", |e| e.jobs[2].labels = vec!["gpu".into()]),
            ("memory", |e| e.requirements[0].memory_bytes = 1),
            ("scheduler", |e| e.jobs[2].scheduler = Some("s".into())),
        ];
        let (job, all) = (job_hash(&example(), 2), digest(&example()));
        let changed = |change: Change| {
            let mut other = example();
            change(&mut other);
            (job_hash(&other, 2) != job, digest(&other) != all)
        };
        for (what, change) in work {
            assert_eq!(changed(change), (true, true), "{what}");
        }
        for (what, change) in terms {
            assert_eq!(changed(change), (false, true), "{what}");
        }
        assert_eq!(changed(|_| ()), (false, false));
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn the_place_in_the_document_does_not_count() {
        let before = example();
        let mut after = example();
        after.jobs.swap(0, 1);
        after.files.insert(0, ExpandedFile::default());
        after.jobs[2].input_files = vec![1];
        assert_eq!(job_hash(&before, 2), job_hash(&after, 2));
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let mut one = example();
        one.jobs[0].command = "ab".into();
        one.jobs[0].invocation_script = Some("c".into());
        let mut other = example();
        other.jobs[0].command = "a".into();
        other.jobs[0].invocation_script = Some("bc".into());
        assert_ne!(job_hash(&one, 0), job_hash(&other, 0));
    }

    #[test]
    fn values_differ_by_kind_order_and_depth() {
        let values = [
            json!(null),
            json!(1),
            json!("1"),
            json!([]),
            json!({}),
            json!([1, 2]),
            json!([2, 1]),
            json!([[1], 2]),
            json!([[1, 2]]),
            json!({"a": 1, "b": 2}),
            json!({"a": {"b": 2}}),
            json!({"a": 2, "b": 1}),
            json!(["a", 1, "b", 2]),
        ];
        let hashes: std::collections::BTreeSet<[u8; 32]> = values
            .iter()
            .map(|value| {
                let mut expanded = example();
                expanded.user_data[0].data = Some(value.clone());
                job_hash(&expanded, 2)
            })
            .collect();
        assert_eq!(hashes.len(), values.len());
    }
}
