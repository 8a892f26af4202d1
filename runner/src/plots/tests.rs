use std::collections::BTreeMap;

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, Resources, Usage};

use super::*;
use crate::series::{DataPoint, NodePoint};

fn row(job: i64, name: &str) -> JobUsageRow<i64> {
    JobUsageRow {
        key: AttemptKey { workflow: 1, job, run: 1, attempt: 1, lease_id: 0 },
        name: name.to_owned(),
        started: 1_000 * job,
        ended: 1_000 * job + 5_000,
        usage: Usage { peak_memory_bytes: Some(1 << 20), ..Usage::default() },
        resources: Resources { cpus: 1, ..Resources::default() },
        ..JobUsageRow::default()
    }
}

fn series(jobs: i64, points: i64) -> Series {
    let point = |at: i64| (at, DataPoint { cpu_percent: 50.0, memory_bytes: at, processes: 1, ..DataPoint::default() });
    Series {
        workflow: 1,
        run: 1,
        host: "node".to_owned(),
        jobs: (1..=jobs).map(|number| row(number, &format!("job</script>{number}"))).collect(),
        samples: (1..=jobs).map(|number| ((number, 1), (0..points).map(point).collect())).collect::<BTreeMap<_, _>>(),
        node: vec![(1, NodePoint { memory_bytes: Some(5), total_memory_bytes: Some(9), ..NodePoint::default() })],
        node_summary: None,
    }
}

fn pages(picture: PlotPage) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let written = picture.write(&folder.path().join("plots")).expect("written");
    let read = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("readable"))
    };
    written.iter().map(read).collect()
}

/// Returns the data of a page.
fn data(html: &str) -> serde_json::Value {
    let after = html.split("type=\"application/json\">").nth(1).expect("data");
    serde_json::from_str(after.split("</script>").next().expect("an end")).expect("JSON")
}

// J13
#[test]
fn pages_need_nothing_but_a_browser() {
    let mut picture = PlotPage { title: "a <b>".to_owned(), ..PlotPage::default() };
    picture.add(series(3, 4));
    let pages = pages(picture);
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["index.html", "timeline.html", "jobs.html", "nodes.html"]);
    for (name, html) in &pages {
        for outside in ["http:", "https:", "src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest"] {
            assert!(!html.contains(outside), "{name} contains {outside}");
        }
        assert!(html.contains("<title>a &lt;b&gt;</title>"), "{name}");
        assert_eq!(html.matches("</script>").count(), 2, "{name}: a name ends the script");
        data(html);
    }
    let jobs = data(&pages[2].1);
    assert_eq!(jobs["jobs"][0]["name"], "job</script>1");
    assert_eq!(jobs["jobs"][0]["curve"].as_array().map(Vec::len), Some(4));
    assert!(data(&pages[0].1)["jobs"][0].get("curve").is_none(), "curves are only where they are drawn");
    assert_eq!(data(&pages[3].1)["nodes"][0]["totalMemory"], 9);
}

#[test]
fn ten_thousand_jobs_make_a_page_that_a_browser_can_open() {
    let mut picture = PlotPage::default();
    picture.add(series(10_000, 360));
    let sizes: Vec<usize> = pages(picture).iter().map(|(_, html)| html.len()).collect();
    assert!(sizes.iter().all(|size| *size < 16 << 20), "{sizes:?}");
}

#[test]
fn results_fill_in_what_no_file_knows() {
    let result = |job_id: i64, end_time: &str| JobResult {
        workflow: "w".to_owned(),
        job: format!("job{job_id}"),
        job_id,
        run_id: 1,
        attempt: 1,
        status: JobState::Failed,
        return_code: Some(137),
        cause: Some(Cause::OutOfMemory),
        message: None,
        start_time: Some("1970-01-01T00:00:01Z".to_owned()),
        end_time: end_time.to_owned(),
        duration_seconds: 1.0,
        node: Some("other".to_owned()),
        runner: None,
        stdout: None,
        stderr: None,
        usage: Usage { peak_memory_bytes: Some(7), ..Usage::default() },
    };
    let mut picture = PlotPage::default();
    picture.add(series(1, 0));
    let end = "1970-01-01T00:00:02Z";
    picture.add_results(&[result(1, end), result(2, end), result(3, "some time")]);
    assert_eq!(picture.jobs.len(), 2);
    let added = &picture.jobs[1];
    assert_eq!((added.name.as_str(), added.start, added.end), ("job2", 1_000, 2_000));
    assert_eq!((added.cause.as_deref(), added.usage.peak_memory_bytes), (Some("OutOfMemory"), Some(7)));
}

// J13. Every field of a row is plotted.
#[test]
fn every_field_of_a_row_is_drawn_as_itself() {
    let usage = Usage { peak_memory_bytes: Some(1), average_cpu_percent: Some(2.5), ..Usage::default() };
    let row = JobUsageRow {
        key: AttemptKey { workflow: 9, job: 3, run: 8, attempt: 4, lease_id: 7 },
        name: "name".to_owned(),
        started: 5,
        ended: 6,
        return_code: 10,
        cause: Some(Cause::Timeout),
        usage,
        resources: Resources { cpus: 11, memory_bytes: 12, gpus: 13, nodes: 14 },
        memory_limit_bytes: Some(15),
        devices: vec!["GPU-16".to_owned()],
    };
    let expected = PlottedJob {
        id: 3,
        name: "name".to_owned(),
        attempt: 4,
        node: "host".to_owned(),
        start: 5,
        end: 6,
        code: 10,
        cause: Some("Timeout".to_owned()),
        gpus: vec!["GPU-16".to_owned()],
        lane: 0,
        usage,
        cpus: Some(11),
        memory_limit: Some(15),
        curve: Vec::new(),
        gpu_curve: Vec::new(),
    };
    assert_eq!(job(row, "host"), expected);
}

// J13. Attempts of one job have separate curves, and results fill in missing attempts.
#[test]
fn attempts_of_one_job_are_drawn_apart() {
    let attempt = |attempt| {
        let mut row = row(1, "job");
        row.key.attempt = attempt;
        row
    };
    let point = |memory_bytes, gpu| (1, DataPoint { memory_bytes, gpu_percent: gpu, ..DataPoint::default() });
    let mut picture = PlotPage::default();
    picture.add(Series {
        jobs: vec![attempt(1), attempt(2)],
        samples: BTreeMap::from([
            ((1, 1), vec![point(11, None)]),
            ((1, 2), vec![point(12, Some(5.0)), point(13, None)]),
        ]),
        ..Series::default()
    });
    let curves: Vec<_> =
        picture.jobs.iter().map(|job| (job.attempt, job.curve.clone(), job.gpu_curve.clone())).collect();
    assert_eq!(curves[0], (1, vec![(1, 0.0, 11)], vec![]));
    assert_eq!(curves[1], (2, vec![(1, 0.0, 12), (1, 0.0, 13)], vec![(1, 5.0)]));
    let result = |attempt| JobResult {
        workflow: "w".to_owned(),
        job: "job".to_owned(),
        job_id: 1,
        run_id: 1,
        attempt,
        status: JobState::Failed,
        return_code: Some(attempt),
        cause: None,
        message: None,
        start_time: None,
        end_time: "1970-01-01T00:00:02Z".to_owned(),
        duration_seconds: 1.0,
        node: None,
        runner: None,
        stdout: None,
        stderr: None,
        usage: Usage::default(),
    };
    picture.add_results(&[result(1), result(2), result(3)]);
    let attempts: Vec<_> = picture.jobs.iter().map(|job| (job.attempt, job.code)).collect();
    assert_eq!(attempts, [(1, 0), (2, 0), (3, 3)]);
    assert_eq!((picture.jobs[2].start, picture.jobs[2].end), (2_000, 2_000), "a start that is not known is its end");
}

// J13. The number of points is limited: 300,000 in all, 24 to 600 for each curve.
#[test]
fn curves_have_as_many_points_as_a_page_can_bear() {
    for (jobs, each) in [(1, 600), (500, 600), (501, 598), (1_000, 300)] {
        let mut picture = PlotPage::default();
        picture.add(series(jobs, 700));
        picture.thin();
        assert_eq!(picture.jobs[0].curve.len(), each, "{jobs} jobs");
    }
    let mut picture = PlotPage::default();
    picture.add(series(12_600, 30));
    picture.thin();
    assert_eq!(picture.jobs[0].curve.len(), 24, "24 at least");
}
