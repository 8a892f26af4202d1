//! Tables of all namespaces, with the namespace as the first column, as kubectl prints them.

use serde::Serialize;

use super::table::{AsRow, Tabular};

/// A row that shows its namespace.
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
