//! Workflows of all namespaces in one table: where each is comes first, as kubectl has it.

use jiff::Timestamp;
use serde::Serialize;
use torc_api::api::Workflow;

use super::table::{Column, TableCell, Tabular};

/// A row whose namespace is no matter of course.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Anywhere<T>(pub T);

const NAMESPACE: Column = Column::always("NAMESPACE");

/// The same columns, that of the namespace first.
const fn reordered<const N: usize>(columns: &[Column]) -> [Column; N] {
    let mut reordered = [NAMESPACE; N];
    let (mut from, mut to) = (0, 1);
    while from < columns.len() {
        if !is_namespace(columns[from].name) {
            reordered[to] = columns[from];
            to += 1;
        }
        from += 1;
    }
    reordered
}

const fn is_namespace(name: &str) -> bool {
    // Text cannot be compared in a constant, and no other heading is as long.
    name.len() == NAMESPACE.name.len() && name.as_bytes()[4] == b'S'
}

fn cells<T: Tabular>(row: &T, now: Timestamp) -> Vec<TableCell> {
    let mut cells = row.cells(now);
    if let Some(place) = T::COLUMNS.iter().position(|column| column.name == NAMESPACE.name) {
        cells[..=place].rotate_right(1);
    }
    cells
}

impl Tabular for Anywhere<Workflow> {
    const COLUMNS: &'static [Column] = &reordered::<{ Workflow::COLUMNS.len() }>(Workflow::COLUMNS);

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        cells(&self.0, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_is_comes_first_and_only_once() {
        let columns = Anywhere::<Workflow>::COLUMNS;
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let rest = Workflow::COLUMNS.iter().map(|column| column.name).filter(|name| *name != "NAMESPACE");
        let expected: Vec<&str> = std::iter::once("NAMESPACE").chain(rest).collect();
        assert_eq!(names, expected);
        assert!(!columns[0].wide);
    }
}
