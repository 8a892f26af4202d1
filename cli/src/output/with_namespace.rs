//! Workflows of all namespaces in one table: where each is comes first, as kubectl has it.

use serde::Serialize;

use super::table::{AsRow, Tabular};

/// A row whose namespace is no matter of course.
#[derive(Serialize)]
#[serde(transparent)]
pub struct WithNamespace<T>(pub T);

impl<T: Tabular> AsRow for WithNamespace<T> {
    type Item = T;
    const FIRST: Option<&'static str> = Some("NAMESPACE");

    fn row(&self) -> &T {
        &self.0
    }
}
