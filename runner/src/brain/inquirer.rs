//! Asks Slurm beside the loop: an answer that takes its time holds nobody up.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use torc_slurm::call::Call;
use torc_slurm::exec::Slurm;
use torc_slurm::{allocation, sacct, sbatch, scontrol, squeue, sstat};
use tracing::debug;

use crate::clock;
use crate::inquiry::{Inquiry, SlurmAnswer};
use crate::state::Event;

/// The way to Slurm, and the allocation that is asked about.
#[derive(Clone, Debug)]
pub struct Inquirer {
    slurm: Slurm,
    job_id: String,
}

impl Inquirer {
    /// Asks the Slurm of this machine, or what stands in for its programs.
    pub fn new(job_id: &str) -> Self {
        let slurm = Slurm::default().replaced_by(|name| std::env::var(name).ok());
        Self { slurm, job_id: job_id.to_owned() }
    }

    /// Asks; the answer becomes an event.
    pub fn ask(&self, inquiry: Inquiry, events: UnboundedSender<Event>) {
        let own = self.clone();
        tokio::spawn(async move {
            let answer = own.answer(inquiry).await;
            let _ = events.send(Event::SlurmAnswered(Box::new(answer)));
        });
    }

    async fn answer(&self, inquiry: Inquiry) -> SlurmAnswer {
        match inquiry {
            Inquiry::StepNumbers => {
                let text = self.text(&squeue::steps(&self.job_id)).await;
                SlurmAnswer::StepNumbers(text.map(|text| squeue::read_steps(&text)).unwrap_or_default())
            }
            Inquiry::StepUsage(steps) => self.usage(&steps).await,
            Inquiry::Accounts(steps) => {
                let began = clock::now();
                let answer = self.slurm.ask(&sacct::steps(&self.job_id, &steps)).await;
                let found = answer.map(|answer| sacct::read_steps(&answer.text));
                SlurmAnswer::Accounts(found, clock::now().since(began))
            }
            Inquiry::TimeLeft => {
                let text = self.text(&allocation::ask_time_left(&self.job_id)).await;
                let seconds = text.and_then(|text| allocation::time_left(&text));
                SlurmAnswer::TimeLeft(seconds.map(Duration::from_secs))
            }
            Inquiry::Signal { step, signal } => {
                let call = sbatch::signal(&format!("{}.{step}", self.job_id), &signal);
                let sent = sbatch::read_cancelled(self.slurm.ask(&call).await);
                SlurmAnswer::Signal(
                    sent.err().map(|trouble| format!("a step could not be warned of its end: {trouble}")),
                )
            }
            Inquiry::Extend { key, step, minutes } => {
                let call = scontrol::extend_step(&format!("{}.{step}", self.job_id), minutes);
                let trouble = self.slurm.ask(&call).await.err();
                let sentence = |trouble| format!("a step keeps its time although the allocation got more: {trouble}");
                SlurmAnswer::Extended(key, minutes, trouble.map(sentence))
            }
            Inquiry::Preemption => {
                let text = self.text(&scontrol::job(&self.job_id)).await;
                let job = text.and_then(|text| scontrol::read_jobs(&text).into_iter().next());
                SlurmAnswer::Preemption(job.map(|job| job.preempted.is_some()))
            }
        }
    }

    /// Steps end between the question and the answer all the time, and `sstat` then complains: that is worth a remark for
    /// debugging and nothing else.
    async fn usage(&self, steps: &[u32]) -> SlurmAnswer {
        let mut found = Vec::new();
        for call in sstat::calls(&self.job_id, steps) {
            let (samples, remarks) = sstat::read(self.slurm.ask(&call).await);
            found.extend(samples);
            remarks.iter().for_each(|remark| debug!("sstat: {remark}"));
        }
        SlurmAnswer::StepUsage(clock::now(), found)
    }

    async fn text(&self, call: &Call) -> Option<String> {
        match self.slurm.ask(call).await {
            Ok(answer) => Some(answer.text),
            Err(trouble) => {
                debug!("{}: {trouble}", call.tool.name());
                None
            }
        }
    }
}
