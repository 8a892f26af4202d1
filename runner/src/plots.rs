//! Plots of the usage of jobs and nodes, as HTML pages without external files.
//!
//! The number of points of a curve and the row of each job are computed here. The script in the page only draws.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;
use thiserror::Error;
use torc_api::api::JobResult;
use torc_api::wire::Usage;

use crate::series::{self, JobUsageRow, NodePoint, Series, SeriesError};

mod lanes;
mod page;
mod thin;

/// Maximum number of points of all curves of a page: more make the page slow without making it more readable.
const MAX_POINTS_PER_PAGE: usize = 300_000;
/// Smallest and largest number of points of one curve.
const POINTS_PER_CURVE: (usize, usize) = (24, 600);

/// The error of a plot.
#[derive(Debug, Error)]
pub enum PlotError {
    /// A measurement file cannot be used.
    #[error("{error}{}", reason(error))]
    Series { error: SeriesError },
    /// A page cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

impl From<SeriesError> for PlotError {
    fn from(error: SeriesError) -> Self {
        Self::Series { error }
    }
}

fn reason(error: &SeriesError) -> String {
    std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"))
}

/// The content of the plots.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlotPage {
    pub title: String,
    /// Attempts, ordered by start.
    pub jobs: Vec<PlottedJob>,
    pub nodes: Vec<PlottedNode>,
}

/// An attempt that ended. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlottedJob {
    pub id: i64,
    pub name: String,
    pub attempt: i32,
    pub node: String,
    pub start: i64,
    pub end: i64,
    pub code: i32,
    /// The cause of the failure; none after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// The row in the timeline of its node, from 0.
    pub lane: usize,
    #[serde(flatten)]
    pub usage: Usage,
    /// Number of requested CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<i64>,
    /// Seconds since 1970, CPU in percent, and bytes of memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(i64, f64, i64)>,
    /// Seconds since 1970, and GPU usage in percent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_curve: Vec<(i64, f64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlottedNode {
    pub name: String,
    pub total_memory: i64,
    /// Seconds since 1970, CPU in percent of all cores, and bytes of memory.
    pub curve: Vec<(i64, Option<f64>, Option<i64>)>,
    /// Total memory of the runner's GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_gpu_memory: Option<i64>,
    /// Seconds since 1970, usage of all GPUs in percent, and bytes of their memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_curve: Vec<(i64, f64, i64)>,
}

/// Reads the measurement files at these places, and writes their plots into a folder. `only` limits the plots to one
/// workflow and run. Returns the paths of the pages.
pub async fn make(places: &[PathBuf], only: Option<(i64, i32)>, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let mut picture = PlotPage::default();
    for path in series::files_in(places)? {
        let series = series::read(&path).await?;
        if only.is_none_or(|only| only == (series.workflow, series.run)) {
            picture.title = format!("Workflow {}, run {}", series.workflow, series.run);
            picture.add(series);
        }
    }
    picture.write(folder)
}

impl PlotPage {
    /// Adds the content of a file.
    pub fn add(&mut self, series: Series) {
        let Series { host, jobs, mut samples, node, .. } = series;
        for row in jobs {
            let curve = samples.remove(&(row.key.job, row.key.attempt)).unwrap_or_default();
            let gpu_curve = curve.iter().filter_map(|(at, point)| Some((*at, point.gpu_percent?))).collect();
            let curve = curve.into_iter().map(|(at, point)| (at, point.cpu_percent, point.memory_bytes)).collect();
            self.jobs.push(PlottedJob { curve, gpu_curve, ..job(row, &host) });
        }
        if !node.is_empty() {
            let total_memory = node.iter().filter_map(|(_, point)| point.total_memory_bytes).max().unwrap_or_default();
            let total_gpu_memory = node.iter().filter_map(|(_, point)| point.total_gpu_memory_bytes).max();
            let gpus = |(at, point): &(i64, NodePoint)| Some((*at, point.gpu_percent?, point.gpu_memory_bytes?));
            let gpu_curve = node.iter().filter_map(gpus).collect();
            let curve = node.into_iter().map(|(at, point)| (at, point.cpu_percent, point.memory_bytes)).collect();
            self.nodes.push(PlottedNode { name: host, total_memory, curve, total_gpu_memory, gpu_curve });
        }
    }

    /// Adds results that are in no file: jobs without measurements, or on machines whose files are elsewhere.
    pub fn add_results(&mut self, results: &[JobResult]) {
        let known: std::collections::HashSet<(i64, i32)> = self.jobs.iter().map(|job| (job.id, job.attempt)).collect();
        let unknown = results.iter().filter(|result| !known.contains(&(result.job_id, result.attempt)));
        self.jobs.extend(unknown.filter_map(of_result));
    }

    /// Writes the pages and returns their paths.
    pub fn write(mut self, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.jobs.sort_by_key(|job| (job.start, job.id, job.attempt));
        lanes::assign(&mut self.jobs);
        self.thin();
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| PlotError::Write { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut written = Vec::new();
        for (name, html) in self.pages() {
            let path = folder.join(name);
            std::fs::write(&path, html).map_err(failed(&path))?;
            written.push(path);
        }
        Ok(written)
    }

    fn thin(&mut self) {
        let curves = self.jobs.iter().filter(|job| !job.curve.is_empty()).count().max(1);
        let each = (MAX_POINTS_PER_PAGE / curves).clamp(POINTS_PER_CURVE.0, POINTS_PER_CURVE.1);
        for job in &mut self.jobs {
            thin::downsample(&mut job.curve, each, |point| point.2);
            thin::downsample(&mut job.gpu_curve, each, |point| tenths(point.1));
        }
        for node in &mut self.nodes {
            thin::downsample(&mut node.curve, POINTS_PER_CURVE.1, |point| point.2);
            thin::downsample(&mut node.gpu_curve, POINTS_PER_CURVE.1, |point| tenths(point.1));
        }
    }

    /// Returns the pages by name. Only `jobs.html` contains the curves of jobs.
    fn pages(&self) -> Vec<(&'static str, String)> {
        let without = |job: &PlottedJob| PlottedJob { curve: Vec::new(), gpu_curve: Vec::new(), ..job.clone() };
        let without: Vec<PlottedJob> = self.jobs.iter().map(without).collect();
        let title = &self.title;
        vec![
            ("index.html", page::render("summary", title, &json!({ "jobs": without }))),
            ("timeline.html", page::render("timeline", title, &json!({ "jobs": without }))),
            ("jobs.html", page::render("jobs", title, &json!({ "jobs": self.jobs }))),
            ("nodes.html", page::render("nodes", title, &json!({ "nodes": self.nodes }))),
        ]
    }
}

/// Converts a percentage to an integer, so that it can be compared.
#[expect(clippy::cast_possible_truncation, reason = "percents are small")]
fn tenths(percent: f64) -> i64 {
    (percent * 10.0) as i64
}

fn job(row: JobUsageRow<i64>, host: &str) -> PlottedJob {
    PlottedJob {
        id: row.key.job,
        name: row.name,
        attempt: row.key.attempt,
        node: host.to_owned(),
        start: row.started,
        end: row.ended,
        code: row.return_code,
        cause: row.cause.map(|cause| cause.to_string()),
        gpus: row.devices,
        lane: 0,
        usage: row.usage,
        cpus: Some(row.resources.cpus),
        memory_limit: row.memory_limit_bytes,
        curve: Vec::new(),
        gpu_curve: Vec::new(),
    }
}

fn of_result(result: &JobResult) -> Option<PlottedJob> {
    let milliseconds = |text: &str| text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond());
    let end = milliseconds(&result.end_time)?;
    Some(PlottedJob {
        id: result.job_id,
        name: result.job.clone(),
        attempt: result.attempt,
        node: result.node.clone().unwrap_or_default(),
        start: result.start_time.as_deref().and_then(milliseconds).unwrap_or(end),
        end,
        code: result.return_code.unwrap_or_default(),
        cause: result.cause.map(|cause| cause.to_string()),
        usage: result.usage,
        ..PlottedJob::default()
    })
}

#[cfg(test)]
mod tests;
