//! The table of schedules, for a terminal and for the book.

use std::fmt::Write;

use super::results::{Goals, ShapeResult};

const HEADINGS: [&str; 12] = [
    "shape",
    "makespan",
    "worst",
    "declared",
    "bound",
    "used %",
    "idle %",
    "worst %",
    "moves/job",
    "syncs/job",
    "on/off",
    "missed goals",
];

/// Returns the table with aligned columns.
pub fn text(results: &[ShapeResult]) -> String {
    let mut text = String::new();
    for cells in std::iter::once(HEADINGS.map(str::to_owned)).chain(results.iter().map(cells)) {
        let [shape, figures @ .., missed] = &cells;
        let figures: String = figures.iter().map(|figure| format!(" {figure:>9}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{shape:<16}{figures}  {missed}");
    }
    text
}

/// Returns the table in Markdown.
pub fn markdown(results: &[ShapeResult]) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(&HEADINGS.map(str::to_owned));
    line(&HEADINGS.map(|heading| if heading == "shape" { "---" } else { "--:" }.to_owned()));
    results.iter().for_each(|result| line(&cells(result)));
    let _ = writeln!(text);
    for result in results {
        let _ = writeln!(text, "* `{}`: {}", result.shape.name, result.shape.description);
    }
    text
}

fn cells(result: &ShapeResult) -> [String; 12] {
    let missed = result.missed(&Goals::default());
    [
        result.shape.name.to_owned(),
        format!("{:.3}", result.ratio()),
        format!("{:.3}", result.worst_ratio()),
        format!("{:.3}", result.declared_ratio()),
        format!("{:.3}", result.bound_ratio()),
        format!("{:.1}", result.utilization_percent()),
        format!("{:.2}", result.idle_percent()),
        format!("{:.2}", result.worst_idle_percent()),
        format!("{:.3}", result.moves_per_job()),
        format!("{:.3}", result.syncs_per_job()),
        format!("{:.3}", result.prefetch_ratio()),
        if missed.is_empty() { "-".to_owned() } else { missed.join(", ") },
    ]
}
