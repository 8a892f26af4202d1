//! Workflows of all namespaces in one table: where each is comes first, as kubectl has it.

use serde::Serialize;

use super::table::{Listed, Tabular};

/// A row whose namespace is no matter of course.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Anywhere<T>(pub T);

impl<T: Tabular> Listed for Anywhere<T> {
    type Row = T;
    const FIRST: Option<&'static str> = Some("NAMESPACE");

    fn row(&self) -> &T {
        &self.0
    }
}
