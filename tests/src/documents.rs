//! The commands, blocks and names of Torc 1.0's five documents, each with its outcome here. The fast tier runs those without Slurm,
//! the lab the others. The documents are `runners` (job runners), `prefetch` (several jobs a request), `modes` (execution modes),
//! `recovery` (workflow recovery) and `steps` (monitoring of Slurm steps).

mod modes;
mod prefetch;
mod recovery;
mod runners;
mod steps;

/// A text that one of the documents prints, and its outcomes.
pub struct Literal {
    /// The text as printed; line breaks and indentation as its format needs them.
    pub printed: &'static str,
    /// Its outcomes here. A literal without one fails a test.
    pub outcomes: &'static [Outcome],
}

/// The expected effect of a literal.
pub enum Outcome {
    /// A command line that is run.
    Command(Command),
    /// A part of a document that is run.
    Block(Block),
    /// A part of `torc.toml`, and words of `torc config show`.
    Setting(&'static [&'static str]),
    /// An HTTP request without a version, and the path that its answer names.
    Route(&'static str),
    /// A page of the book that has the name of Torc 1.0 and today's name.
    Page {
        /// The page of the book, below `docs/`.
        page: &'static str,
        /// The name or the command of today.
        equivalent: &'static str,
    },
    /// A test that shows the outcome, as `file.rs::name`.
    Test(&'static str),
}

/// A command line with its expected outcome.
pub struct Command {
    /// The state of the store and of the machine before the command.
    pub given: Given,
    /// Placeholders in the text, and their values.
    pub fill: &'static [(&'static str, &'static str)],
    pub exits: i32,
    /// Words of the output.
    pub says: &'static [&'static str],
}

/// The state of the store and of the machine before a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A stored workflow `w` with number 1 that has not run.
    Stored,
    /// Workflow `w` with number 1, whose first run has succeeded.
    Finished,
    /// Workflow `w` with number 1 and a failed job.
    Failed,
    /// A file `w.yaml` without schedulers, and programs in place of Slurm's.
    File,
    /// Workflow `w` with number 1 and a scheduler, and programs in place of Slurm's.
    Scheduled,
    /// A server with workflow `w`, a list `workers.txt`, and a program in place of ssh.
    Workers,
    /// A real Slurm, and workflow `w` whose allocation has ended. Only the lab has it.
    Slurm,
    /// A real Slurm and a running step. Only the lab has it.
    Step,
}

impl Given {
    /// Returns whether a real Slurm is needed.
    pub const fn needs_slurm(self) -> bool {
        matches!(self, Self::Slurm | Self::Step)
    }
}

/// A part of a document.
pub struct Block {
    /// The rest of the document.
    pub rest: &'static str,
    /// Flags of `torc run`.
    pub flags: &'static str,
    /// Runs in an allocation, with a program in place of `srun`.
    pub is_in_allocation: bool,
    pub exits: i32,
    /// Words of the output, of the runner's log or of the `srun` lines.
    pub finds: &'static [&'static str],
}

/// The literals of every document.
pub const DOCUMENTS: [(&str, &[Literal]); 5] = [
    ("runners", runners::LITERALS),
    ("prefetch", prefetch::LITERALS),
    ("modes", modes::LITERALS),
    ("recovery", recovery::LITERALS),
    ("steps", steps::LITERALS),
];

/// Returns every literal with the name of its document.
pub fn literals() -> impl Iterator<Item = (&'static str, &'static Literal)> {
    DOCUMENTS.into_iter().flat_map(|(name, literals)| literals.iter().map(move |literal| (name, literal)))
}

/// Returns a row of the table.
const fn row(printed: &'static str, outcomes: &'static [Outcome]) -> Literal {
    Literal { printed, outcomes }
}

/// Returns a command that exits with 0.
const fn runs(given: Given, fill: &'static [(&'static str, &'static str)], says: &'static [&'static str]) -> Outcome {
    Outcome::Command(Command { given, fill, exits: 0, says })
}

/// Returns a block of a document whose job succeeds outside an allocation.
const fn block(finds: &'static [&'static str]) -> Outcome {
    Outcome::Block(Block { rest: JOB, flags: "", is_in_allocation: false, exits: 0, finds })
}

/// Returns a block of a document whose job succeeds inside an allocation.
const fn block_in_allocation(finds: &'static [&'static str]) -> Outcome {
    Outcome::Block(Block { rest: JOB, flags: "", is_in_allocation: true, exits: 0, finds })
}

const fn page(page: &'static str, equivalent: &'static str) -> Outcome {
    Outcome::Page { page, equivalent }
}

/// Returns the page for users of Torc 1.0 with the name of today.
const fn torc_1(equivalent: &'static str) -> Outcome {
    page("how-to/torc-1.0.md", equivalent)
}

const JOB: &str = "jobs: [{name: a, command: 'true'}]\n";

/// Returns the words of a command line with its placeholders filled in. A backslash at the end of a line joins it with the next one.
pub fn words(literal: &Literal, command: &Command) -> Vec<String> {
    let filled = command.fill.iter().fold(literal.printed.to_owned(), |text, (part, typed)| text.replace(part, typed));
    filled.replace("\\\n", " ").split_whitespace().map(str::to_owned).collect()
}
