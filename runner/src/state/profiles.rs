//! Launch profiles: what the jobs of one profile share, resolved for this host. Each profile of the server becomes one template for
//! the shim.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use torc_api::execution::{ExecutionConfig, ExecutionMode};
use torc_api::wire::{LeaseRole, Profile, Resources};
use torc_core::ledger::NodeScope;
use torc_slurm::srun::{self, StepLimits};

use super::AgentSettings;
use super::usage_stats::memory_limit;
use crate::command::{self, ShellSetup};
use crate::mode::{self, LaunchMode};
use crate::protocol::StartTemplate;
use crate::tokens;

/// Longest lead of a task. Tasks also run when a worker ends, with little time left.
const TASK_LEAD_MS: u64 = 5_000;
/// Longest headroom of a task, for the same reason.
const TASK_HEADROOM_MS: u64 = 10_000;

/// A profile as this runner starts its jobs. `wire::Profile` has the values of the document; `LaunchProfile` adds the
/// mode, paths and signals of this host. The template is the part that the shim needs.
#[derive(Debug)]
pub(super) struct LaunchProfile {
    pub template: Arc<StartTemplate>,
    pub class: u32,
    pub invocation_script: Option<String>,
    pub shell: ShellSetup,
    /// The options of `srun`; absent when the runner starts the jobs itself.
    pub step: Option<StepLaunch>,
}

/// Options of `srun` that the jobs of a profile share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepLaunch {
    pub limits: Option<StepLimits>,
    pub tasks_per_node: Option<i32>,
    pub signal: Option<String>,
    pub bind_cpus: bool,
}

impl LaunchProfile {
    /// The class of tasks: they take no resources, so no job can follow them.
    pub const NO_CLASS: u32 = u32::MAX;

    pub fn resources(&self) -> &Resources {
        &self.template.resources
    }

    /// Returns the nodes on which its jobs may run.
    pub fn node_scope(&self) -> NodeScope {
        if self.template.in_step { NodeScope::AnyNode } else { NodeScope::FirstNode }
    }
}

/// The launch profiles of a runner, and its resource classes.
#[derive(Debug, Default)]
pub(super) struct ProfileCache {
    known: HashMap<(i64, String), Arc<LaunchProfile>>,
    classes: Vec<ResourceClassKey>,
    templates: u32,
    /// Workflows of which the runner has had work.
    workflows: HashSet<i64>,
}

#[derive(Debug, PartialEq, Eq)]
struct ResourceClassKey {
    resources: Resources,
    /// True if its jobs are steps, which may run on any node.
    in_step: bool,
}

impl ProfileCache {
    /// Returns true for the first work of a workflow, and false from then on.
    pub fn is_new_workflow(&mut self, workflow: i64) -> bool {
        self.workflows.insert(workflow)
    }

    /// Returns the launch profile of a workflow's jobs.
    pub fn of(&mut self, workflow: i64, profile: &Profile, settings: &AgentSettings) -> Arc<LaunchProfile> {
        // Serializing plain data cannot fail; if it did, the template would only be sent twice.
        let content = serde_json::to_string(profile).unwrap_or_default();
        if let Some(launch) = self.known.get(&(workflow, content.clone())) {
            return Arc::clone(launch);
        }
        self.templates += 1;
        let mut template = template(workflow, profile, settings);
        template.id = self.templates;
        let launch = Arc::new(LaunchProfile {
            class: self.class(&template),
            step: template.in_step.then(|| step_launch(profile)),
            template: Arc::new(template),
            invocation_script: profile.invocation_script.clone(),
            shell: settings.shell.with(&profile.env),
        });
        self.known.insert((workflow, content), Arc::clone(&launch));
        launch
    }

    /// Returns the launch profile of a task. A task may run until shortly before the runner's end.
    pub fn of_task(&mut self, workflow: i64, profile: &Profile, settings: &AgentSettings) -> Arc<LaunchProfile> {
        let content = format!("task {}", serde_json::to_string(profile).unwrap_or_default());
        if let Some(launch) = self.known.get(&(workflow, content.clone())) {
            return Arc::clone(launch);
        }
        self.templates += 1;
        // A task is never a step: it takes nothing from the allocation.
        let config = profile.execution_config.clone().unwrap_or_default();
        let config = ExecutionConfig { mode: Some(ExecutionMode::Direct), ..config };
        let mut template = template(workflow, &Profile { execution_config: Some(config), ..profile.clone() }, settings);
        template.id = self.templates;
        template.resources = Resources::default();
        template.lead_ms = template.lead_ms.min(TASK_LEAD_MS);
        template.headroom_ms = template.headroom_ms.min(TASK_HEADROOM_MS);
        let launch = Arc::new(LaunchProfile {
            class: LaunchProfile::NO_CLASS,
            step: None,
            template: Arc::new(template),
            invocation_script: None,
            shell: settings.shell.with(&profile.env),
        });
        self.known.insert((workflow, content), Arc::clone(&launch));
        launch
    }

    /// Returns the profile of a job that another agent started. Such a job can only be ended.
    pub fn of_running(&mut self, role: LeaseRole, template: StartTemplate) -> Arc<LaunchProfile> {
        Arc::new(LaunchProfile {
            class: if role.is_job() { self.class(&template) } else { LaunchProfile::NO_CLASS },
            template: Arc::new(template),
            invocation_script: None,
            shell: ShellSetup::default(),
            step: None,
        })
    }

    /// Returns the number of the class of these jobs.
    fn class(&mut self, template: &StartTemplate) -> u32 {
        let class = ResourceClassKey { resources: template.resources, in_step: template.in_step };
        let at = self.classes.iter().position(|known| *known == class).unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        u32::try_from(at).unwrap_or(LaunchProfile::NO_CLASS)
    }
}

fn step_launch(profile: &Profile) -> StepLaunch {
    let Resources { cpus, memory_bytes, gpus, .. } = profile.resources;
    let config = profile.execution_config.clone().unwrap_or_default();
    StepLaunch {
        limits: (!profile.unlimited).then_some(StepLimits { cpus, memory_bytes, gpus }),
        tasks_per_node: profile.tasks_per_node,
        signal: config.srun_termination_signal,
        bind_cpus: config.enable_cpu_bind.unwrap_or(false),
    }
}

fn template(workflow: i64, profile: &Profile, settings: &AgentSettings) -> StartTemplate {
    let working_dir = if profile.working_dir.is_empty() { &settings.working_dir } else { &profile.working_dir };
    // The variables of Torc come last and win: the shim finds processes by them.
    let mut env: Vec<(String, String)> = profile.env.clone().into_iter().collect();
    if let Some(url) = &settings.api_url {
        env.push(("TORC_API_URL".to_owned(), url.clone()));
        env.push(("TORC_TOKEN_FILE".to_owned(), tokens::path(&settings.token_dir, workflow)));
    }
    env.extend(settings.server_file.iter().map(|path| ("TORC_SERVER_FILE".to_owned(), path.clone())));
    env.extend([
        ("TORC_WORKFLOW_ID".to_owned(), workflow.to_string()),
        ("TORC_OUTPUT_DIR".to_owned(), settings.output_dir.clone()),
        ("TORC_WORKFLOW_SUBMISSION_DIR".to_owned(), working_dir.to_owned()),
    ]);
    let config = profile.execution_config.clone().unwrap_or_default();
    let stdio = profile.stdio.clone().or(config.stdio.clone()).unwrap_or_default();
    let defaults = StartTemplate::default();
    let in_step = mode::effective(&config, settings.allocation.is_some()) == LaunchMode::Slurm;
    if in_step && profile.resources.gpus == 0 {
        env.push((srun::NO_GPUS.0.to_owned(), srun::NO_GPUS.1.to_owned()));
    }
    // The runner's own token is not for jobs: they have one in a file.
    let mut unset = vec!["TORC_TOKEN".to_owned()];
    if in_step {
        unset.extend(srun::INHERITED_OPTIONS.map(str::to_owned));
    }
    // A step always gets SIGTERM, with which `srun` ends it at once. The declared signal becomes Slurm's early warning.
    let signal = config.termination_signal.as_deref().filter(|_| !in_step);
    let milliseconds = |seconds: Option<i64>, default: u64| {
        seconds.map_or(default, |seconds| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000))
    };
    StartTemplate {
        id: 0,
        working_dir: working_dir.to_owned(),
        env,
        unset,
        log_dir: format!("{}/job_stdio", settings.output_dir),
        stdio: stdio.mode.unwrap_or_default(),
        resources: Resources { nodes: profile.resources.nodes.max(1), ..profile.resources },
        runtime_seconds: profile.runtime_seconds,
        enforce_runtime: config.enforce_runtime.unwrap_or(false),
        input_files: profile.input_files.clone(),
        output_files: profile.output_files.clone(),
        hash_large_files: profile.hash_large_files,
        delete_on_success: stdio.delete_on_success.unwrap_or(false),
        signal: command::termination_signal(signal),
        lead_ms: milliseconds(config.sigterm_lead_seconds, defaults.lead_ms),
        headroom_ms: milliseconds(config.sigkill_headroom_seconds, defaults.headroom_ms),
        timeout_exit_code: config.timeout_exit_code.unwrap_or(defaults.timeout_exit_code),
        in_step,
        warning: config.srun_termination_signal.clone().filter(|_| in_step),
        monitor: profile.resource_monitor.clone().unwrap_or_default().plan(),
        memory_limit_bytes: memory_limit(profile).filter(|_| !in_step),
        oom_exit_code: config.oom_exit_code.unwrap_or(defaults.oom_exit_code),
    }
}
