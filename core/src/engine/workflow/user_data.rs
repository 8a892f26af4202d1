//! The user data of a workflow: declared values, and values that jobs and users have written.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::engine::tx::Tx;
use crate::expanded::Expanded;
use crate::ids::{JobId, WorkflowId};
use crate::lineage::{self, LoopState};
use crate::rows::UserDataRow;

/// The user data of a workflow by name. For the states of loops it keeps only the names; the store has their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::engine) struct Data {
    rows: BTreeMap<String, UserDataRow>,
}

impl Data {
    pub fn from_rows(rows: Vec<UserDataRow>) -> Self {
        Self { rows: rows.into_iter().map(|row| (row.name.clone(), row)).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&UserDataRow> {
        self.rows.get(name)
    }

    /// Returns the value that readers get.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.get(name)?.value()
    }

    /// Returns the latest generation of a loop; 0 before the first one.
    pub fn generation(&self, lineage: &str) -> i64 {
        let of_loop = |name: &String| match lineage::parse(name) {
            Some(LoopState::Generation(of, number)) if of == lineage => Some(number),
            _ => None,
        };
        let from = lineage::generation_name(lineage, 0);
        let names = self.rows.range(from..).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(lineage::PREFIX)).filter_map(of_loop).max().unwrap_or(0)
    }

    /// Returns whether a loop has ended.
    pub fn has_converged(&self, lineage: &str) -> bool {
        self.rows.contains_key(&lineage::final_name(lineage))
    }

    /// Stores a changed row. A row that is neither declared nor written is removed.
    pub fn put(&mut self, row: UserDataRow, tx: &mut Tx) {
        let row = UserDataRow { lease_id: tx.next_lease(), changed_ms: tx.now.wall_ms, ..row };
        if row.written.is_none() && !row.in_document {
            self.rows.remove(&row.name);
            return tx.changes.data_removed(row.workflow, row.name);
        }
        tx.changes.data(row.clone());
        // The states of loops are read from the store.
        let kept = if lineage::parse(&row.name).is_some() { None } else { row.written.clone() };
        self.rows.insert(row.name.clone(), UserDataRow { written: kept, ..row });
    }

    /// Adds the user data of a new or edited document. Written values stay unless the document declares new ones. The state of a loop is
    /// removed with the job that has stored it.
    pub fn declare(
        &mut self,
        workflow: WorkflowId,
        expanded: &Expanded,
        is_there: impl Fn(JobId) -> bool,
        tx: &mut Tx,
    ) {
        let declared: BTreeMap<&str, _> = expanded.user_data.iter().map(|data| (data.name.as_str(), data)).collect();
        self.remove(tx, |row| match lineage::parse(&row.name) {
            Some(_) => !row.job.is_some_and(&is_there),
            None => row.in_document && !declared.contains_key(row.name.as_str()),
        });
        for (name, data) in declared {
            let before = self.rows.get(name);
            let same =
                |row: &&UserDataRow| row.in_document && row.declared == data.data && row.ephemeral == data.is_ephemeral;
            if before.filter(same).is_some() {
                continue;
            }
            let is_redeclared = before.is_none_or(|row| row.declared != data.data) && data.data.is_some();
            let written = before.and_then(|row| row.written.clone()).filter(|_| !is_redeclared);
            let row = UserDataRow {
                in_document: true,
                ephemeral: data.is_ephemeral,
                declared: data.data.clone(),
                job: before.and_then(|row| row.job).filter(|_| written.is_some()),
                written,
                ..undeclared(workflow, name)
            };
            self.put(row, tx);
        }
    }

    /// Deletes the written values of ephemeral data, because a new run begins.
    pub fn forget_ephemeral(&mut self, tx: &mut Tx) {
        let ephemeral = |row: &&UserDataRow| row.ephemeral && row.written.is_some();
        let rows: Vec<UserDataRow> = self.rows.values().filter(ephemeral).cloned().collect();
        for row in rows {
            self.put(UserDataRow { written: None, job: None, ..row }, tx);
        }
    }

    /// Deletes the states of loops that these jobs have stored.
    pub fn forget_states_of(&mut self, is_caller: impl Fn(JobId) -> bool, tx: &mut Tx) {
        self.remove(tx, |row| lineage::parse(&row.name).is_some() && row.job.is_some_and(&is_caller));
    }

    fn remove(&mut self, tx: &mut Tx, matches: impl Fn(&UserDataRow) -> bool) {
        for (name, row) in self.rows.extract_if(.., |_, row| matches(row)) {
            tx.changes.data_removed(row.workflow, name);
        }
    }
}

/// Returns user data that is neither declared nor written.
pub(in crate::engine) fn undeclared(workflow: WorkflowId, name: &str) -> UserDataRow {
    UserDataRow { workflow, name: name.to_owned(), ..UserDataRow::default() }
}
