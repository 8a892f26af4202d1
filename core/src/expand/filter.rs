//! Filters problems that may only follow from others.
//!
//! All problems are reported at once, except for consequences of others: a dependency on `b` is a problem only if the
//! names of all jobs are known.

use torc_api::nearest::nearest;
use torc_api::problem::Problem;
use torc_api::workflow::WorkflowSpec;

/// Fields that determine the rows of an entry and the values in its texts.
const PARAMETERS: [&str; 7] = [
    "parameters",
    "parameterMode",
    "useParameters",
    "parametersFile",
    "useParametersFile",
    "parameterTable",
    "variables",
];

/// The list that each field of a job refers to. A reference can be checked only if that list has no problems.
const REFERENCES: [(&str, &str); 14] = [
    ("dependsOn", "jobs"),
    ("dependsOnRegexes", "jobs"),
    ("jobs", "jobs"),
    ("jobNameRegexes", "jobs"),
    ("inputFiles", "files"),
    ("inputFileRegexes", "files"),
    ("outputFiles", "files"),
    ("outputFileRegexes", "files"),
    ("inputUserData", "userData"),
    ("inputUserDataRegexes", "userData"),
    ("outputUserData", "userData"),
    ("outputUserDataRegexes", "userData"),
    ("resourceRequirements", "resourceRequirements"),
    ("failureHandler", "failureHandlers"),
];

/// The fields with known problems.
pub struct ProblemFilter<'a> {
    spec: &'a WorkflowSpec,
    wrong: Vec<String>,
}

impl<'a> ProblemFilter<'a> {
    /// Creates a filter from the fields that are wrong, e.g. `spec.jobs[2].comand`.
    pub fn new(spec: &'a WorkflowSpec, wrong: Vec<String>) -> Self {
        Self { spec, wrong }
    }

    /// Returns whether a problem does not depend on the fields with known problems.
    pub fn is_known(&self, problem: &Problem) -> bool {
        if self.wrong.is_empty() {
            return true;
        }
        let repeated = self.wrong.iter().any(|wrong| is_within(&problem.field, wrong));
        let open = problem.message.contains('{') && self.wrong.iter().any(|wrong| concerns_parameters(wrong));
        !repeated && !open && referred_list(&problem.field).is_none_or(|list| self.has_known_names(list))
    }

    fn has_known_names(&self, list: &str) -> bool {
        let names = self.names(list);
        let is_open = |name: &&str| name.contains('{');
        !self.wrong.iter().any(|wrong| {
            let Some(rest) = wrong.strip_prefix("spec.") else { return wrong == "spec" };
            let (key, inner) = rest.split_once('.').map_or((rest, None), |(key, inner)| (key, Some(inner)));
            let (key, entry) = key.split_once('[').map_or((key, None), |(key, at)| (key, at.strip_suffix(']')));
            if key != list {
                // A missing list may be the one whose name is misspelled. Shared parameters affect only names with
                // tokens.
                let is_misspelled = names.is_empty() && inner.is_none() && entry.is_none();
                return is_misspelled || entry.is_none() && concerns_parameters(key) && names.iter().any(is_open);
            }
            let (Some(entry), Some(inner)) = (entry, inner) else { return true };
            let name = entry.parse().ok().and_then(|at: usize| names.get(at).copied());
            inner == "name" || concerns_parameters(inner) && name.is_none_or(|name| is_open(&name))
        })
    }

    fn names(&self, list: &str) -> Vec<&str> {
        let spec = self.spec;
        match list {
            "jobs" => spec.jobs.iter().map(|job| job.name.as_str()).collect(),
            "files" => spec.files.iter().map(|file| file.name.as_str()).collect(),
            "userData" => spec.user_data.iter().map(|data| data.name.as_deref().unwrap_or_default()).collect(),
            "resourceRequirements" => spec.resource_requirements.iter().map(|entry| entry.name.as_str()).collect(),
            "failureHandlers" => spec.failure_handlers.iter().map(|handler| handler.name.as_str()).collect(),
            _ => spec.slurm_schedulers.iter().map(|entry| entry.name.as_deref().unwrap_or_default()).collect(),
        }
    }
}

/// Returns whether a field is `other` or part of it.
fn is_within(field: &str, other: &str) -> bool {
    field.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns whether a field is about parameters or variables.
fn concerns_parameters(field: &str) -> bool {
    field.split('.').any(|key| {
        let key = key.split('[').next().unwrap_or(key);
        PARAMETERS.contains(&key) || nearest(key, PARAMETERS.into_iter()).is_some()
    })
}

/// Returns the list that a field of an entry refers to.
fn referred_list(field: &str) -> Option<&'static str> {
    let entry = field.strip_prefix("spec.")?;
    let Some((_, key)) = entry.split_once('.') else { return entry.starts_with("actions[").then_some("jobs") };
    let key = key.split(['[', '.']).next()?;
    if key == "scheduler" {
        return Some("slurmSchedulers");
    }
    REFERENCES.iter().find(|(name, _)| *name == key).map(|(_, list)| *list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(jobs: &[&str]) -> WorkflowSpec {
        let job = |name: &&str| torc_api::job::JobSpec { name: (*name).to_owned(), ..Default::default() };
        WorkflowSpec { jobs: jobs.iter().map(job).collect(), ..WorkflowSpec::default() }
    }

    fn is_known(jobs: &[&str], wrong: &str, field: &str, message: &str) -> bool {
        ProblemFilter::new(&spec(jobs), vec![wrong.to_owned()]).is_known(&Problem::error(field, message))
    }

    #[test]
    fn references_need_names() {
        let unknown = ("spec.jobs[1].dependsOn[0]", "there is no job `x`");
        for (wrong, expected) in [
            ("spec.jobs[0].comand", true),
            ("spec.jobs[0].runtime", true),
            ("spec.files[0].name", true),
            ("metadata.name", true),
            ("spec.jobs[0].name", false),
            ("spec.jobs[0]", false),
            ("spec.jobs", false),
            ("spec", false),
            ("spec.jobs[1].dependsOn", false),
            ("spec.jobs[1].dependsOn[0]", false),
            ("spec.jobs[1].dependsOn[1]", true),
        ] {
            assert_eq!(is_known(&["a", "b"], wrong, unknown.0, unknown.1), expected, "{wrong}");
        }
    }

    #[test]
    fn names_with_parameters_need_parameters() {
        let field = "spec.jobs[1].dependsOn[0]";
        assert!(!is_known(&["a_{i}", "b"], "spec.jobs[0].parametres", field, "there is no job `a_1`"));
        assert!(!is_known(&["a_{i}", "b"], "spec.parameters.i", field, "there is no job `a_1`"));
        assert!(is_known(&["a", "b"], "spec.jobs[0].parametres", field, "there is no job `x`"));
        assert!(!is_known(&["a", "b"], "spec.jobs[1].parameters.i", field, "there is no job `a_{i}`"));
    }

    #[test]
    fn a_list_that_is_not_there_may_be_misspelt() {
        let field = "spec.jobs[1].inputFiles[0]";
        assert!(!is_known(&["a", "b"], "spec.file", field, "there is no file `x`"));
        assert!(is_known(&["a", "b"], "spec.jobs[0].comand", field, "there is no file `x`"));
    }

    #[test]
    fn a_problem_needs_the_list_that_it_refers_to() {
        let cases = [
            ("spec.jobs[1].dependsOnRegexes[0]", "jobs"),
            ("spec.actions[0]", "jobs"),
            ("spec.actions[0].jobs[0]", "jobs"),
            ("spec.actions[0].jobNameRegexes[0]", "jobs"),
            ("spec.jobs[1].inputFiles[0]", "files"),
            ("spec.jobs[1].inputFileRegexes[0]", "files"),
            ("spec.jobs[1].outputFiles[0]", "files"),
            ("spec.jobs[1].outputFileRegexes[0]", "files"),
            ("spec.jobs[1].inputUserData[0]", "userData"),
            ("spec.jobs[1].inputUserDataRegexes[0]", "userData"),
            ("spec.jobs[1].outputUserData[0]", "userData"),
            ("spec.jobs[1].outputUserDataRegexes[0]", "userData"),
            ("spec.jobs[1].resourceRequirements", "resourceRequirements"),
            ("spec.jobs[1].failureHandler", "failureHandlers"),
            ("spec.jobs[1].scheduler", "slurmSchedulers"),
            ("spec.actions[1].scheduler", "slurmSchedulers"),
        ];
        let lists = ["jobs", "files", "userData", "resourceRequirements", "failureHandlers", "slurmSchedulers"];
        let spec: WorkflowSpec = serde_json::from_value(serde_json::json!({
            "jobs": [{"name": "a", "command": "x"}, {"name": "b", "command": "x"}],
            "files": [{"name": "f", "path": "f"}],
            "userData": [{"name": "d"}],
            "resourceRequirements": [{"name": "r", "numCpus": 1, "memory": "1g"}],
            "failureHandlers": [{"name": "h", "rules": []}],
            "slurmSchedulers": [{"name": "s", "account": "a"}],
        }))
        .expect("a document");
        for (field, needed) in cases {
            for list in lists {
                let filter = ProblemFilter::new(&spec, vec![format!("spec.{list}[0].name")]);
                let is_known = filter.is_known(&Problem::error(field, "there is no such thing"));
                assert_eq!(is_known, list != needed, "{field} with a wrong name in {list}");
            }
        }
        let plain = Problem::error("spec.jobs[1].labels[0]", "no label");
        assert!(
            ProblemFilter::new(&spec, vec!["spec.jobs[0].name".to_owned()]).is_known(&plain),
            "it refers to nothing"
        );
    }

    #[test]
    fn names_of_other_lists_decide_only_by_shared_parameters() {
        let field = "spec.jobs[1].dependsOn[0]";
        let unknown = "there is no job `x`";
        assert!(is_known(&["a_{i}", "b"], "spec.files[0].parameters", field, unknown), "it is about files");
        assert!(!is_known(&["a_{i}", "b"], "spec.variables", field, unknown), "all entries share these");
        assert!(is_known(&["a", "b"], "spec.variables", field, unknown), "no name has a variable");
        assert!(!is_known(&["a_{i}", "b"], "spec.jobs[0].parameters", field, unknown));
        assert!(is_known(&["a_{i}", "b"], "spec.jobs[1].parameters", field, unknown), "its own name is fixed");
        assert!(!is_known(&["a"], "spec.jobs[7].parameters", field, unknown), "the entry is not there");
        assert!(!is_known(&[], "spec.job", field, unknown), "the list may be misspelt");
        assert!(is_known(&[], "spec.job.x", field, unknown));
        assert!(is_known(&[], "spec.job[0]", field, unknown));
    }
}
