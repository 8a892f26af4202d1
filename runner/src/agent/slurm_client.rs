//! Sends queries to Slurm in tasks of their own, so that slow answers delay nothing.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use torc_slurm::call::CommandSpec;
use torc_slurm::exec::Slurm;
use torc_slurm::{allocation, sacct, sbatch, scontrol, squeue, sstat};
use tracing::debug;

use crate::clock;
use crate::slurm_query::{SlurmAnswer, SlurmQuery};
use crate::state::AgentEvent;

/// A client for queries about one allocation.
#[derive(Clone, Debug)]
pub struct SlurmClient {
    slurm: Slurm,
    job_id: String,
}

impl SlurmClient {
    /// Creates a client for the Slurm of this machine, or for the programs that replace it in tests.
    pub fn new(job_id: &str) -> Self {
        let slurm = Slurm::default().replaced_by(|name| std::env::var(name).ok());
        Self { slurm, job_id: job_id.to_owned() }
    }

    /// Sends a query. The answer becomes an event.
    pub fn ask(&self, query: SlurmQuery, events: UnboundedSender<AgentEvent>) {
        let own = self.clone();
        tokio::spawn(async move {
            let answer = own.answer(query).await;
            let _ = events.send(AgentEvent::SlurmAnswered(Box::new(answer)));
        });
    }

    async fn answer(&self, query: SlurmQuery) -> SlurmAnswer {
        match query {
            SlurmQuery::StepNumbers => {
                let text = self.text(&squeue::steps(&self.job_id)).await;
                SlurmAnswer::StepNumbers(text.map(|text| squeue::read_steps(&text)).unwrap_or_default())
            }
            SlurmQuery::StepUsage(steps) => self.usage(&steps).await,
            SlurmQuery::Accounts(steps) => {
                let began = clock::now();
                let answer = self.slurm.ask(&sacct::steps(&self.job_id, &steps)).await;
                let found = answer.map(|answer| sacct::read_steps(&answer.text));
                SlurmAnswer::Accounts(found, clock::now().since(began))
            }
            SlurmQuery::TimeLeft => {
                let text = self.text(&allocation::time_left_query(&self.job_id)).await;
                let seconds = text.and_then(|text| allocation::time_left(&text));
                SlurmAnswer::TimeLeft(seconds.map(Duration::from_secs))
            }
            SlurmQuery::Signal { step, signal } => {
                let call = sbatch::signal(&format!("{}.{step}", self.job_id), &signal);
                let sent = sbatch::read_canceled(self.slurm.ask(&call).await);
                SlurmAnswer::Signal(
                    sent.err().map(|error| format!("cannot warn step {step} of its time limit: {error}")),
                )
            }
            SlurmQuery::Extend { key, step, minutes } => {
                let call = scontrol::extend_step(&format!("{}.{step}", self.job_id), minutes);
                let answer = self.slurm.ask(&call).await.map(|_| minutes);
                SlurmAnswer::Extended(
                    key,
                    answer.map_err(|error| format!("cannot extend step {step} with the allocation: {error}")),
                )
            }
            SlurmQuery::Preemption => {
                let text = self.text(&scontrol::job(&self.job_id)).await;
                let job = text.and_then(|text| scontrol::read_jobs(&text).into_iter().next());
                SlurmAnswer::Preemption(job.map(|job| job.preempted.is_some()))
            }
        }
    }

    /// Returns the usage of steps. Steps often end between query and answer. Then `sstat` prints a warning, which is
    /// logged at level debug.
    async fn usage(&self, steps: &[u32]) -> SlurmAnswer {
        let mut found = Vec::new();
        for call in sstat::calls(&self.job_id, steps) {
            let (samples, remarks) = sstat::read(self.slurm.ask(&call).await);
            found.extend(samples);
            remarks.iter().for_each(|remark| debug!("sstat: {remark}"));
        }
        SlurmAnswer::StepUsage(clock::now(), found)
    }

    async fn text(&self, call: &CommandSpec) -> Option<String> {
        match self.slurm.ask(call).await {
            Ok(answer) => Some(answer.text),
            Err(trouble) => {
                debug!("{}: {trouble}", call.tool.name());
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;
    use torc_api::wire::AttemptKey;

    use super::*;

    /// Replacements of Slurm's programs: each records its arguments and prints its answer, or fails without one.
    struct FakeSlurm {
        folder: TempDir,
    }

    impl FakeSlurm {
        fn new(answers: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for (tool, answer) in answers {
                let path = folder.path().join(tool);
                let calls = folder.path().join("calls");
                let script =
                    format!("#!/bin/bash\necho \"{tool} $*\" >>{}\ncat <<'END'\n{answer}\nEND\n", calls.display());
                std::fs::write(&path, script).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            Self { folder }
        }

        /// Returns a client that calls these programs. A missing program fails.
        fn slurm_client(&self) -> SlurmClient {
            let path = |name: &str| {
                let tool = name.trim_start_matches("TORC_FAKE_").to_lowercase();
                Some(self.folder.path().join(tool).to_string_lossy().into_owned())
            };
            SlurmClient { slurm: Slurm::default().replaced_by(path), job_id: "42".to_owned() }
        }

        fn calls(&self) -> Vec<String> {
            let text = std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        }
    }

    // S07, X10, X11
    #[tokio::test]
    async fn questions_about_the_allocation_and_their_answers() {
        let job = "JobId=42 JobState=RUNNING PreemptTime=2026-11-16T09:46:30";
        let slurm =
            FakeSlurm::new(&[("squeue", "42.7|wf1_j2_r1_a1\n42.batch|batch"), ("scontrol", job), ("scancel", "")]);
        let slurm_client = slurm.slurm_client();
        let numbers = slurm_client.answer(SlurmQuery::StepNumbers).await;
        assert_eq!(numbers, SlurmAnswer::StepNumbers(vec![("wf1_j2_r1_a1".to_owned(), 7)]));
        assert_eq!(slurm_client.answer(SlurmQuery::TimeLeft).await, SlurmAnswer::TimeLeft(None), "that is no time");
        let warn = SlurmQuery::Signal { step: 7, signal: "TERM".to_owned() };
        assert_eq!(slurm_client.answer(warn).await, SlurmAnswer::Signal(None));
        assert_eq!(slurm_client.answer(SlurmQuery::Preemption).await, SlurmAnswer::Preemption(Some(true)));
        let key = AttemptKey::default();
        let extend = SlurmQuery::Extend { key, step: 7, minutes: 90 };
        assert_eq!(slurm_client.answer(extend).await, SlurmAnswer::Extended(key, Ok(90)));
        assert_eq!(
            slurm.calls(),
            [
                "squeue --steps -h -o %i|%j -j 42",
                "squeue -h -j 42 -o %L",
                "scancel --signal TERM 42.7",
                "scontrol -o show job 42",
                "scontrol update StepId=42.7 TimeLimit=90",
            ]
        );
        let calm = FakeSlurm::new(&[("squeue", "59:30"), ("scontrol", "JobId=42 JobState=RUNNING PreemptTime=None")]);
        assert_eq!(calm.slurm_client().answer(SlurmQuery::Preemption).await, SlurmAnswer::Preemption(Some(false)));
        let left = SlurmAnswer::TimeLeft(Some(Duration::from_secs(3_570)));
        assert_eq!(calm.slurm_client().answer(SlurmQuery::TimeLeft).await, left);
    }

    // S19
    #[tokio::test]
    async fn a_slurm_that_does_not_answer_says_nothing() {
        let slurm_client = FakeSlurm::new(&[]).slurm_client();
        assert_eq!(slurm_client.answer(SlurmQuery::StepNumbers).await, SlurmAnswer::StepNumbers(Vec::new()));
        assert_eq!(slurm_client.answer(SlurmQuery::TimeLeft).await, SlurmAnswer::TimeLeft(None));
        assert_eq!(slurm_client.answer(SlurmQuery::Preemption).await, SlurmAnswer::Preemption(None));
        let SlurmAnswer::StepUsage(_, samples) = slurm_client.answer(SlurmQuery::StepUsage(vec![1, 2])).await else {
            panic!("an answer about use")
        };
        assert!(samples.is_empty());
        let SlurmAnswer::Accounts(found, _) = slurm_client.answer(SlurmQuery::Accounts(Vec::new())).await else {
            panic!("an answer of the accounting")
        };
        assert!(found.is_err());
        let warned = slurm_client.answer(SlurmQuery::Signal { step: 1, signal: "TERM".to_owned() }).await;
        assert!(
            matches!(&warned, SlurmAnswer::Signal(Some(why)) if why.starts_with("cannot warn step 1")),
            "{warned:?}"
        );
        let extend = SlurmQuery::Extend { key: AttemptKey::default(), step: 1, minutes: 5 };
        let extended = slurm_client.answer(extend).await;
        assert!(
            matches!(&extended, SlurmAnswer::Extended(_, Err(why)) if why.starts_with("cannot extend step 1")),
            "{extended:?}"
        );
    }

    #[tokio::test]
    async fn an_answer_becomes_an_event() {
        let slurm = FakeSlurm::new(&[("squeue", "10")]);
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        slurm.slurm_client().ask(SlurmQuery::TimeLeft, sender);
        let Some(AgentEvent::SlurmAnswered(answer)) = events.recv().await else { panic!("an answer") };
        assert_eq!(*answer, SlurmAnswer::TimeLeft(Some(Duration::from_secs(10))));
    }

    // S08, S10, S11
    #[tokio::test]
    async fn what_steps_use_is_asked_for_and_read() {
        let used = "42.3|00:00:07|5K\n42.4|00:00:09|11K\n42.batch|00:00:01|1K";
        let account =
            "wf1_j2_r1_a1|2K|3K|4K|5K|00:00:06|n[1-2]|COMPLETED\nwf1_j2_r1_a2|7K|8K|9K|10K|00:00:11|n3|FAILED";
        let slurm = FakeSlurm::new(&[("sstat", used), ("sacct", account)]);
        let slurm_client = slurm.slurm_client();
        let SlurmAnswer::StepUsage(_, samples) = slurm_client.answer(SlurmQuery::StepUsage(vec![3, 4])).await else {
            panic!("an answer about use")
        };
        let samples: Vec<_> = samples.iter().map(|one| (one.step, one.cpu_seconds, one.memory_bytes)).collect();
        assert_eq!(samples, [(3, Some(7.0), Some(5 << 10)), (4, Some(9.0), Some(11 << 10))]);
        let SlurmAnswer::Accounts(Ok(found), _) = slurm_client.answer(SlurmQuery::Accounts(vec![3, 4])).await else {
            panic!("an answer of the accounting")
        };
        let peaks = ["wf1_j2_r1_a1", "wf1_j2_r1_a2"].map(|name| found[name].max_rss_bytes);
        assert_eq!((found.len(), peaks), (2, [Some(2 << 10), Some(7 << 10)]));
        let calls = slurm.calls();
        assert_eq!(calls[0], "sstat -j 42.3,42.4 --format=JobID,AveCPU,MaxRSS -P -n");
        assert!(calls[1].starts_with("sacct -j 42.3,42.4 --format=JobName,MaxRSS,"), "{}", calls[1]);
    }

    // S08
    #[tokio::test]
    async fn many_steps_are_asked_for_in_several_calls() {
        let slurm = FakeSlurm::new(&[("sstat", "42.3|00:00:07|5K")]);
        let most = u32::try_from(sstat::MAX_STEPS_PER_CALL).unwrap();
        for (steps, calls) in [(most, 1), (most + 1, 2)] {
            let before = slurm.calls().len();
            let answer = slurm.slurm_client().answer(SlurmQuery::StepUsage((0..steps).collect())).await;
            let SlurmAnswer::StepUsage(_, samples) = answer else { panic!("an answer about use") };
            assert_eq!((samples.len(), slurm.calls().len() - before), (calls, calls), "{steps} steps");
        }
    }
}
