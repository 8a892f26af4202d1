//! Expands jobs: renders every text and resolves every reference.

use std::collections::{BTreeMap, HashMap, HashSet};

use torc_api::job::JobSpec;
use torc_api::nearest::nearest;
use torc_api::problem::{Problem, ProblemKind};
use torc_api::workflow::WorkflowSpec;

use crate::expanded::{ExpandedFile, ExpandedJob, ExpandedUserData, Requirements};

use super::actions::with_suggestion;
use super::names::Names;
use super::parameter_space::ParameterSpace;
use super::report::ProblemCollector;
use super::template::Template;
use super::tokens::{self, Resolved, TokenTargets};

/// All objects that a job can refer to.
pub struct Symbols<'a> {
    pub jobs: Names<'a>,
    pub file_names: Names<'a>,
    pub data_names: Names<'a>,
    pub files: &'a [ExpandedFile],
    pub user_data: &'a [ExpandedUserData],
    pub requirements: HashMap<&'a str, u32>,
    pub failure_handlers: HashSet<&'a str>,
    pub schedulers: HashSet<&'a str>,
    pub env: BTreeMap<String, String>,
}

impl<'a> Symbols<'a> {
    /// Returns the index of each name; of duplicate names the first counts.
    pub fn by_name(requirements: &'a [Requirements]) -> HashMap<&'a str, u32> {
        let mut numbers = HashMap::new();
        for (number, entry) in (0u32..).zip(requirements) {
            numbers.entry(entry.name.as_str()).or_insert(number);
        }
        numbers
    }
}

/// Expands the jobs of all entries, except for the dependencies that files and data imply.
///
/// `families` has the rows of each entry. Stops at more than `most_edges` dependencies.
pub fn expand(
    spec: &WorkflowSpec,
    families: &[ParameterSpace],
    symbols: &mut Symbols<'_>,
    most_edges: usize,
    report: &mut ProblemCollector,
) -> Vec<ExpandedJob> {
    let total = families.iter().map(ParameterSpace::rows).sum();
    let mut jobs = Vec::with_capacity(total);
    let mut edges = 0;
    let mut scratch = String::new();
    for (entry, (job, family)) in spec.jobs.iter().zip(families).enumerate() {
        let templates = CompiledTemplates::compile(job, family);
        let mut expander =
            JobExpander { spec, entry, job, family, templates: &templates, symbols, report, scratch: &mut scratch };
        for row in 0..family.rows() {
            let made = expander.make(row, jobs.len());
            edges += made.depends_on.len();
            jobs.push(made);
        }
        if edges > most_edges {
            report.add(too_many_edges(most_edges));
            break;
        }
    }
    jobs
}

/// Returns the problem of a document with too many dependencies.
pub fn too_many_edges(most: usize) -> Problem {
    let message = format!("more than {most} dependencies, which is the limit");
    Problem::error("spec.jobs", message)
        .kind(ProblemKind::TooLarge)
        .hint("add a job between the two stages that depends on the first stage, and let the second stage depend on it")
}

/// The compiled texts of a job.
struct CompiledTemplates<'a> {
    command: Template<'a>,
    invocation_script: Option<Template<'a>>,
    env: Vec<(&'a str, Template<'a>)>,
    requirements: Option<Template<'a>>,
    scheduler: Option<Template<'a>>,
    labels: Vec<Template<'a>>,
    depends_on: Reference<'a>,
    input_files: Reference<'a>,
    output_files: Reference<'a>,
    input_user_data: Reference<'a>,
    output_user_data: Reference<'a>,
}

/// A list of names and a list of regular expressions for the same kind of reference.
struct Reference<'a> {
    names: Vec<Template<'a>>,
    patterns: Vec<Template<'a>>,
    name_field: &'static str,
    pattern_field: &'static str,
}

impl<'a> CompiledTemplates<'a> {
    fn compile(job: &'a JobSpec, family: &ParameterSpace) -> Self {
        let one = |text: &'a Option<String>| text.as_deref().map(|text| Template::compile(text, family));
        let many = |texts: &'a [String]| texts.iter().map(|text| Template::compile(text, family)).collect();
        let some = |texts: &'a Option<Vec<String>>| many(texts.as_deref().unwrap_or_default());
        let reference = |names, patterns, (name_field, pattern_field)| Reference {
            names: some(names),
            patterns: some(patterns),
            name_field,
            pattern_field,
        };
        Self {
            command: Template::compile(&job.command, family),
            invocation_script: one(&job.invocation_script),
            env: job.env.iter().map(|(key, text)| (key.as_str(), Template::compile(text, family))).collect(),
            requirements: one(&job.resource_requirements),
            scheduler: one(&job.scheduler),
            labels: many(&job.labels),
            depends_on: Reference {
                names: many(&job.depends_on),
                patterns: many(&job.depends_on_regexes),
                name_field: "dependsOn",
                pattern_field: "dependsOnRegexes",
            },
            input_files: reference(&job.input_files, &job.input_file_regexes, ("inputFiles", "inputFileRegexes")),
            output_files: reference(&job.output_files, &job.output_file_regexes, ("outputFiles", "outputFileRegexes")),
            input_user_data: reference(
                &job.input_user_data,
                &job.input_user_data_regexes,
                ("inputUserData", "inputUserDataRegexes"),
            ),
            output_user_data: reference(
                &job.output_user_data,
                &job.output_user_data_regexes,
                ("outputUserData", "outputUserDataRegexes"),
            ),
        }
    }
}

/// Expands the jobs of one entry.
struct JobExpander<'m, 'a> {
    spec: &'m WorkflowSpec,
    entry: usize,
    job: &'m JobSpec,
    family: &'m ParameterSpace,
    templates: &'m CompiledTemplates<'m>,
    symbols: &'m mut Symbols<'a>,
    report: &'m mut ProblemCollector,
    scratch: &'m mut String,
}

/// The kind of object that a reference names.
#[derive(Clone, Copy)]
enum ReferenceKind {
    JobSpec,
    File,
    Data,
}

impl ReferenceKind {
    fn word(self) -> &'static str {
        match self {
            Self::JobSpec => "job",
            Self::File => "file",
            Self::Data => "user data",
        }
    }
}

impl JobExpander<'_, '_> {
    /// Creates the job of a row without its name, which the caller adds.
    fn make(&mut self, row: usize, number: usize) -> ExpandedJob {
        let (templates, family) = (self.templates, self.family);
        let command = templates.command.text(family, row);
        let script = templates.invocation_script.as_ref().map(|script| script.text(family, row));
        let in_command = self.tokens(&command);
        let in_script = script.as_deref().and_then(|script| self.tokens(script));
        let lists = self.lists(row, number, in_command.as_ref(), in_script.as_ref());
        let mut env = self.symbols.env.clone();
        env.extend(templates.env.iter().map(|(key, text)| ((*key).to_owned(), text.text(family, row))));
        let scheduler = templates.scheduler.as_ref().map(|name| name.text(family, row));
        let labels = self.labels(row);
        self.check_placement(scheduler.as_deref(), &labels);
        ExpandedJob {
            name: String::new(),
            command: in_command.map_or(command, |resolved| resolved.text),
            invocation_script: in_script.map(|resolved| resolved.text).or(script),
            env,
            requirements: self.requirements(row),
            cancel_on_blocking_job_failure: self.job.cancel_on_blocking_job_failure.unwrap_or(true),
            failure_handler: self.failure_handler(),
            scheduler,
            priority: self.job.priority.unwrap_or(0),
            labels,
            stdio: self.job.stdio.clone(),
            tasks_per_node: self.job.tasks_per_node,
            ..lists
        }
    }

    fn tokens(&self, text: &str) -> Option<Resolved> {
        let targets = TokenTargets {
            file_names: &self.symbols.file_names,
            files: self.symbols.files,
            data_names: &self.symbols.data_names,
            user_data: self.symbols.user_data,
        };
        tokens::resolve(text, &targets)
    }

    /// Creates a job with its references only. Tokens in the command replace the list of their kind.
    fn lists(
        &mut self,
        row: usize,
        number: usize,
        command: Option<&Resolved>,
        script: Option<&Resolved>,
    ) -> ExpandedJob {
        let templates = self.templates;
        let mut list = |kind, reference, pick: fn(&Resolved) -> &Vec<u32>| {
            let named = command.map(pick).filter(|named| !named.is_empty());
            let mut numbers = self.refer(kind, reference, row, number, named);
            numbers.extend(script.map(pick).into_iter().flatten());
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        ExpandedJob {
            depends_on: list(ReferenceKind::JobSpec, &templates.depends_on, |_| const { &Vec::new() }),
            input_files: list(ReferenceKind::File, &templates.input_files, |resolved| &resolved.input_files),
            output_files: list(ReferenceKind::File, &templates.output_files, |resolved| &resolved.output_files),
            input_user_data: list(ReferenceKind::Data, &templates.input_user_data, |resolved| {
                &resolved.input_user_data
            }),
            output_user_data: list(ReferenceKind::Data, &templates.output_user_data, |resolved| {
                &resolved.output_user_data
            }),
            ..ExpandedJob::default()
        }
    }

    fn refer(
        &mut self,
        kind: ReferenceKind,
        reference: &Reference<'_>,
        row: usize,
        number: usize,
        instead: Option<&Vec<u32>>,
    ) -> Vec<u32> {
        let mut numbers = instead.cloned().unwrap_or_default();
        if instead.is_none() {
            numbers.reserve(reference.names.len());
            for (at, name) in reference.names.iter().enumerate() {
                let name = name.render(self.family, row, self.scratch);
                match self.symbols.names(kind).find(name) {
                    Some(found) => numbers.push(found),
                    None => {
                        let name = name.to_owned();
                        self.unknown(kind, &format!("{}[{at}]", reference.name_field), &name, number);
                    }
                }
            }
        }
        for (at, pattern) in reference.patterns.iter().enumerate() {
            let pattern = pattern.render(self.family, row, self.scratch);
            let found = self.symbols.names(kind).matching(pattern);
            let others = |found: &u32| !(matches!(kind, ReferenceKind::JobSpec) && *found as usize == number);
            let before = numbers.len();
            numbers.extend(found.iter().flat_map(|found| found.iter().copied()).filter(others));
            if numbers.len() == before {
                let pattern = pattern.to_owned();
                self.unmatched(kind, &format!("{}[{at}]", reference.pattern_field), &pattern, number, found.err());
            }
        }
        numbers
    }

    fn field(&self, name: &str) -> String {
        format!("spec.jobs[{}].{name}", self.entry)
    }

    fn unknown(&mut self, kind: ReferenceKind, field: &str, name: &str, number: usize) {
        let job = self.symbols.jobs.name(number);
        let message = format!("job `{job}` refers to {} `{name}`, which does not exist", kind.word());
        let near = if self.report.may_show_hint() { self.symbols.names(kind).nearest(name) } else { None };
        self.report.add(with_suggestion(Problem::error(self.field(field), message), near));
    }

    fn unmatched(&mut self, kind: ReferenceKind, field: &str, pattern: &str, number: usize, error: Option<String>) {
        let job = self.symbols.jobs.name(number);
        let message = match error {
            Some(error) => format!("not a regular expression: {error}"),
            None => format!(
                "`{pattern}` of job `{job}` matches no {}",
                if let ReferenceKind::JobSpec = kind { "other job" } else { kind.word() }
            ),
        };
        self.report.add(Problem::error(self.field(field), message));
    }

    fn requirements(&mut self, row: usize) -> u32 {
        let Some(name) = &self.templates.requirements else { return 0 };
        let name = name.render(self.family, row, self.scratch);
        if let Some(number) = self.symbols.requirements.get(name) {
            return *number;
        }
        let known = self.spec.resource_requirements.iter().map(|entry| entry.name.as_str());
        let problem = Problem::error(
            format!("spec.jobs[{}].resourceRequirements", self.entry),
            format!("there are no resource requirements `{name}`"),
        );
        self.report.add(with_suggestion(problem, nearest(name, known)));
        0
    }

    fn failure_handler(&mut self) -> Option<String> {
        let name = self.job.failure_handler.as_ref()?;
        if !self.symbols.failure_handlers.contains(name.as_str()) {
            let known = self.spec.failure_handlers.iter().map(|handler| handler.name.as_str());
            let problem = Problem::error(self.field("failureHandler"), format!("there is no failure handler `{name}`"));
            self.report.add(with_suggestion(problem, nearest(name, known)));
        }
        Some(name.clone())
    }

    fn labels(&mut self, row: usize) -> Vec<String> {
        let mut labels: Vec<String> = self.templates.labels.iter().map(|label| label.text(self.family, row)).collect();
        for (at, label) in labels.iter().enumerate() {
            if label.is_empty() || label.contains(',') || label.trim() != label {
                let message = format!(
                    "`{label}` is not a label: a label is not empty, contains no comma, and has no blank at its start or end"
                );
                self.report.add(Problem::error(self.field(&format!("labels[{at}]")), message));
            }
        }
        labels.sort_unstable();
        labels.dedup();
        labels
    }

    fn check_placement(&mut self, scheduler: Option<&str>, labels: &[String]) {
        let Some(name) = scheduler else { return };
        if !self.symbols.schedulers.contains(name) {
            let known = self.spec.slurm_schedulers.iter().filter_map(|scheduler| scheduler.name.as_deref());
            let problem = Problem::error(self.field("scheduler"), format!("there is no Slurm scheduler `{name}`"));
            self.report.add(with_suggestion(problem, nearest(name, known)));
        } else if !labels.is_empty() {
            self.report.add(Problem::error(self.field("labels"), "a job has either labels or a scheduler, not both"));
        }
    }
}

impl<'a> Symbols<'a> {
    fn names(&mut self, kind: ReferenceKind) -> &mut Names<'a> {
        match kind {
            ReferenceKind::JobSpec => &mut self.jobs,
            ReferenceKind::File => &mut self.file_names,
            ReferenceKind::Data => &mut self.data_names,
        }
    }
}
