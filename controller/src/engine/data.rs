//! Files, user data, spawned jobs and provenance.

use std::collections::{BTreeMap, HashMap, HashSet};

use torc_api::api::Page;
use torc_api::data::{
    DataUse, File, FileUse, SpawnRequest, SpawnResponse, Staleness, UserData, UserDataWritten, WriteUserData,
};
use torc_api::document::WorkflowDocument;
use torc_api::filter::{JobFilter, ResultFilter, RunnerFilter};
use torc_api::job::JobSpec;
use torc_core::engine::Spawn;
use torc_core::expand::expand_files;
use torc_core::expanded::ExpandedFile;
use torc_core::files::{FileList, uses};
use torc_core::ids::{JobId, WorkflowId};
use torc_core::ro_crate::{CrateInput, ro_crate};
use torc_core::rows::{FileRow, UserDataRow};
use torc_core::time::rfc3339;
use torc_store::JobView;

use super::{EngineError, EngineHandle};

/// Number of jobs that one query reads.
const BATCH: u32 = 10_000;

impl EngineHandle {
    /// Returns the files of a workflow as they were last seen.
    pub async fn files(&self, id: WorkflowId) -> Result<Vec<File>, EngineError> {
        let declared = self.declared_files(id).await?;
        let mut list = FileList::default();
        let mut cursor = None;
        loop {
            let (jobs, files, next) = self.jobs_with_files(id, cursor, Some(BATCH)).await?;
            for (view, seen) in jobs.iter().zip(split(&jobs, &files)) {
                list.add(&view.job, &view.profile, seen);
            }
            cursor = next;
            if cursor.is_none() {
                return Ok(list.finish(declared));
            }
        }
    }

    /// Returns the files that jobs read and write, with the state that jobs saw. Pages are divided by jobs.
    pub async fn file_uses(
        &self,
        id: WorkflowId,
        cursor: Option<String>,
        limit: Option<u32>,
    ) -> Result<Page<FileUse>, EngineError> {
        let (jobs, files, next) = self.jobs_with_files(id, cursor, limit).await?;
        let items = jobs.iter().zip(split(&jobs, &files)).flat_map(|(view, seen)| uses(&view.job, &view.profile, seen));
        Ok(Page { items: items.collect(), next })
    }

    async fn jobs_with_files(
        &self,
        id: WorkflowId,
        cursor: Option<String>,
        limit: Option<u32>,
    ) -> Result<(Vec<JobView>, Vec<FileRow>, Option<String>), EngineError> {
        let filter = JobFilter { workflow: Some(id.0), cursor, limit, ..JobFilter::default() };
        let page = self.store.jobs(&filter).await?;
        let range = page.items.first().zip(page.items.last()).map(|(first, last)| first.job.id..=last.job.id);
        let files = match range {
            Some(range) => self.store.files(id, range).await?,
            None => Vec::new(),
        };
        Ok((page.items, files, page.next))
    }

    /// Returns the files of the document. Expanding a large document takes a while, so it runs on a blocking thread.
    async fn declared_files(&self, id: WorkflowId) -> Result<Vec<ExpandedFile>, EngineError> {
        let document = self.read(move |engine| Ok(engine.document(id)?.to_owned())).await?;
        let limits = self.limits;
        let task = tokio::task::spawn_blocking(move || {
            let document: WorkflowDocument = serde_json::from_str(&document).map_err(super::unwritable)?;
            expand_files(&document.spec, &limits).map_err(EngineError::invalid)
        });
        task.await.map_err(|error| EngineError::internal(format!("expansion ended early: {error}")))?
    }

    /// Returns the user data of a workflow.
    pub async fn user_data(&self, id: WorkflowId) -> Result<Vec<UserData>, EngineError> {
        let rows = self.store.user_data(id, None).await?;
        self.show_data(rows).await
    }

    pub async fn one_user_data(&self, id: WorkflowId, name: &str) -> Result<UserData, EngineError> {
        let rows = self.store.user_data(id, Some(name)).await?;
        let mut shown = self.show_data(rows).await?;
        shown.pop().ok_or_else(|| EngineError::no_data(name))
    }

    async fn show_data(&self, rows: Vec<UserDataRow>) -> Result<Vec<UserData>, EngineError> {
        let writers: Vec<JobId> = rows.iter().filter_map(|row| row.job).collect();
        let names = self.store.job_names(&writers).await?;
        let show = |row: UserDataRow| UserData {
            data: row.value().cloned(),
            in_document: row.in_document,
            is_ephemeral: row.ephemeral,
            written: row.written.is_some(),
            written_by: row.job.and_then(|job| names.get(&job).cloned()),
            change_time: rfc3339(row.changed_ms),
            name: row.name,
        };
        Ok(rows.into_iter().map(show).collect())
    }

    /// Writes a value; without one, deletes the written value.
    pub async fn write_user_data(
        &self,
        id: WorkflowId,
        name: &str,
        request: Option<WriteUserData>,
    ) -> Result<UserDataWritten, EngineError> {
        let name = name.to_owned();
        let (data, job) = request.map_or((None, None), |request| (Some(request.data), request.job));
        self.write(move |engine, tx| {
            let written = engine.write_data(id, &name, data, job.as_deref(), tx)?;
            Ok(UserDataWritten { changed: written.changed, stale_jobs: written.stale_jobs })
        })
        .await
    }

    /// Returns completed jobs whose input data has changed since, and jobs whose input data is missing.
    pub async fn staleness(&self, id: WorkflowId) -> Result<Staleness, EngineError> {
        self.read(move |engine| {
            let shown = |(job, data): (String, String)| DataUse { job, data };
            let missing = engine.missing_data(id)?.into_iter().map(|(data, job)| DataUse { job, data });
            Ok(Staleness {
                changed_data: engine.stale_jobs(id)?.into_iter().map(shown).collect(),
                missing_data: missing.collect(),
            })
        })
        .await
    }

    /// Replaces the commands of jobs by those that a start would use now, with the current user data filled in.
    pub(super) async fn fill_commands(&self, jobs: &mut [JobView]) -> Result<(), EngineError> {
        let reads = |view: &&JobView| !view.profile.input_user_data.is_empty();
        let readers: Vec<(WorkflowId, JobId)> =
            jobs.iter().filter(reads).map(|view| (view.job.workflow, view.job.id)).collect();
        if readers.is_empty() {
            return Ok(());
        }
        let filled: HashMap<JobId, String> = self
            .read(move |engine| {
                let fill = |(workflow, job)| Some((job, engine.filled_command(workflow, job)?));
                Ok(readers.into_iter().filter_map(fill).collect())
            })
            .await?;
        for view in jobs {
            if let Some(command) = filled.get(&view.job.id) {
                view.job.command.clone_from(command);
            }
        }
        Ok(())
    }

    /// Adds jobs to the workflow of a running job.
    pub async fn spawn(&self, id: WorkflowId, job: &str, request: SpawnRequest) -> Result<SpawnResponse, EngineError> {
        let document = self.read(move |engine| Ok(engine.document(id)?.to_owned())).await?;
        let mut document: WorkflowDocument = serde_json::from_str(&document).map_err(super::unwritable)?;
        document.spec.actions.clear();
        let siblings = self.names_of(document.clone(), &request.jobs).await?;
        let wanted = References::of(&request.jobs);
        let known = self
            .read(move |engine| Ok(engine.known_jobs(id, |name| wanted.names(name) && !siblings.contains(name))?))
            .await?;
        let known_count = known.len();
        document.spec.jobs = request.jobs;
        document.spec.jobs.extend(known.into_iter().map(reference_to));
        let expanded = self.expand_document(document).await?;
        let (caller, max_jobs) = (job.to_owned(), self.limits.max_jobs);
        self.write(move |engine, tx| {
            let spawn = Spawn {
                caller: &caller,
                run: request.run_id,
                attempt: request.attempt,
                lineage: &request.lineage,
                expanded: &expanded,
                known: known_count,
                state: request.state,
                max_jobs,
            };
            Ok(engine.spawn(id, &spawn, tx)?)
        })
        .await
    }

    /// Returns the names of the jobs that `jobs` expand to.
    async fn names_of(&self, mut document: WorkflowDocument, jobs: &[JobSpec]) -> Result<HashSet<String>, EngineError> {
        let alone = |job: &JobSpec| JobSpec { depends_on: Vec::new(), depends_on_regexes: Vec::new(), ..job.clone() };
        document.spec.jobs = jobs.iter().map(alone).collect();
        Ok(self.expand_document(document).await?.jobs.into_iter().map(|job| job.name).collect())
    }

    /// Returns the provenance of a workflow as an RO-Crate.
    pub async fn ro_crate(&self, id: WorkflowId) -> Result<serde_json::Value, EngineError> {
        let workflow = self.workflow(id).await?;
        let declared = self.declared_files(id).await?;
        let (mut jobs, mut files) = (BTreeMap::new(), Vec::new());
        let mut cursor = None;
        loop {
            let (views, seen, next) = self.jobs_with_files(id, cursor, Some(BATCH)).await?;
            jobs.extend(views.into_iter().map(|view| (view.job.id, view.profile)));
            files.extend(seen);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        let mut attempts = Vec::new();
        let mut filter = ResultFilter { workflow: Some(id.0), limit: Some(BATCH), ..ResultFilter::default() };
        loop {
            let page = self.store.results(&filter).await?;
            attempts.extend(page.items.into_iter().map(|view| (view.result, view.job_name)));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
        let runners = self.store.runners(RunnerFilter { all: true }).await?;
        let source = CrateInput {
            workflow: &workflow,
            declared: &declared,
            jobs: &jobs,
            attempts: &attempts,
            runners: &runners,
            files: &files,
        };
        Ok(ro_crate(&source))
    }
}

/// Returns the files of each job. Both lists are in the order of jobs.
fn split<'a>(jobs: &'a [JobView], files: &'a [FileRow]) -> impl Iterator<Item = &'a [FileRow]> {
    let mut rest = files;
    jobs.iter().map(move |view| {
        let start = rest.partition_point(|row| row.job < view.job.id);
        let end = rest.partition_point(|row| row.job <= view.job.id);
        let own = &rest[start..end];
        rest = &rest[end..];
        own
    })
}

/// The existing jobs that new jobs refer to.
struct References {
    names: HashSet<String>,
    /// `true` if an expression or a parameter may refer to any job.
    any: bool,
}

impl References {
    fn of(jobs: &[JobSpec]) -> Self {
        let names: HashSet<String> = jobs.iter().flat_map(|job| job.depends_on.iter().cloned()).collect();
        let any =
            jobs.iter().any(|job| !job.depends_on_regexes.is_empty()) || names.iter().any(|name| name.contains('{'));
        Self { names, any }
    }

    fn names(&self, name: &str) -> bool {
        self.any || self.names.contains(name)
    }
}

/// Returns a placeholder for an existing job, so that new jobs can refer to it.
fn reference_to(name: String) -> JobSpec {
    JobSpec { name, command: "true".to_owned(), ..JobSpec::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views;

    fn job(name: &str, depends_on: &[&str], regexes: &[&str]) -> JobSpec {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        JobSpec {
            name: name.to_owned(),
            depends_on: texts(depends_on),
            depends_on_regexes: texts(regexes),
            ..JobSpec::default()
        }
    }

    #[test]
    fn new_jobs_refer_to_what_they_name_or_to_anything() {
        for (jobs, named, other) in [
            (vec![job("a", &[], &[])], false, false),
            (vec![job("a", &["x"], &[])], true, false),
            (vec![job("a", &["y"], &[]), job("b", &["x"], &[])], true, false),
            (vec![job("a", &["x_{i}"], &[])], true, true),
            (vec![job("a", &[], &[]), job("b", &[], &["x.*"])], true, true),
        ] {
            let references = References::of(&jobs);
            assert_eq!((references.names("x"), references.names("z")), (named, other), "{jobs:?}");
        }
    }

    #[test]
    fn files_are_those_of_their_job() {
        let view = |id: i64| JobView {
            job: torc_core::rows::JobRow { id: JobId(id), ..views::tests::job_row() },
            profile: Default::default(),
        };
        let file = |job: i64, path: &str| FileRow { job: JobId(job), path: path.to_owned(), ..FileRow::default() };
        let jobs = [view(2), view(4), view(5), view(9)];
        let files = [file(1, "a"), file(2, "b"), file(2, "c"), file(3, "d"), file(5, "e"), file(9, "f"), file(10, "g")];
        let found: Vec<String> =
            split(&jobs, &files).map(|own| own.iter().map(|row| row.path.as_str()).collect()).collect();
        assert_eq!(found, ["bc", "", "e", "f"]);
    }
}
