//! Output of commands in the selected format. Commands do not depend on the format.
//!
//! Results go to standard output; progress, warnings and errors to standard error.

mod allocation_rows;
mod audit_rows;
mod data_rows;
pub mod human;
mod json;
mod rows;
mod schedulers;
mod sites;
pub mod table;
mod with_namespace;
mod yaml;

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

pub use rows::{SettingRow, event_text, status_word};
pub use schedulers::{AllocationPlanRow, EstimateRow, SchedulerRow};
pub use sites::{MatchRow, PartitionRow, SiteRow};
use table::{AsRow, Widths};
pub use with_namespace::WithNamespace;

use crate::error::CliError;

/// The format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    Json,
    Yaml,
}

impl OutputFormat {
    /// Names on the command line and in configuration files, with their help.
    pub const CHOICES: &[(&str, &str)] =
        &[("table", "A table"), ("wide", "A table with more columns"), ("json", "JSON"), ("yaml", "YAML")];

    /// Parses the name of a format.
    pub fn from_name(name: &str) -> Result<Self, String> {
        match name {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            _ => Err("must be table, wide, json or yaml".to_owned()),
        }
    }

    const fn is_structured(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }
}

/// The envelope of a list in JSON and YAML.
#[derive(Debug, Serialize)]
pub struct ItemList<'a, T> {
    pub items: &'a [T],
}

/// Prints results in one format.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    format: OutputFormat,
}

impl Printer {
    pub fn new(format: OutputFormat) -> Self {
        Self { format }
    }

    /// Prints a list: a table, or `{"items": […]}`.
    pub fn list<T: AsRow + Serialize>(&self, items: &[T]) -> Result<(), CliError> {
        Listing::new(*self).print(items)
    }

    /// Prints a value: as text in the table formats, else as JSON or YAML.
    pub fn value(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Table | OutputFormat::Wide => write_out(&text()),
            OutputFormat::Json => write_out(&json::pretty(value)?),
            OutputFormat::Yaml => write_out(&yaml::to_yaml(&json!(value))),
        }
    }

    /// Formats a table as a part of a longer text.
    pub fn table<T: AsRow>(&self, items: &[T]) -> String {
        let wide = self.format == OutputFormat::Wide;
        table::render(items, wide, jiff::Timestamp::now(), true, &mut Widths::new())
    }

    /// Prints a sentence in the table formats only; programs use the exit code.
    pub fn note(&self, text: &str) -> Result<(), CliError> {
        if self.format.is_structured() {
            return Ok(());
        }
        write_out(&format!("{text}\n"))
    }

    /// Prints bytes that are the same in every format, e.g. a log or a script.
    pub fn raw(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    }

    /// Prints a document as JSON with `-o json`, else as YAML.
    pub fn document(&self, value: &Value) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Json => write_out(&json::pretty(value)?),
            _ => write_out(&yaml::to_yaml(value)),
        }
    }

    /// Prints an error to standard error.
    pub fn error(&self, error: &CliError) {
        if error.silent {
            return;
        }
        match json::line(&error.to_json()) {
            Ok(text) if self.format.is_structured() => write_err(&text),
            _ => write_err(&error.render()),
        }
    }

    /// Prints a warning to standard error.
    pub fn warning(&self, text: &str) {
        let style = anstyle::AnsiColor::Yellow.on_default().bold();
        write_err(&format!("{style}warning:{style:#} {text}\n"));
    }

    /// Prints a progress line to standard error.
    pub fn progress(&self, text: &str) {
        write_err(&format!("{text}\n"));
    }
}

/// A list that may continue: the first print has a header, and later rows are aligned with it.
#[derive(Debug)]
pub struct Listing {
    output: Printer,
    widths: Widths,
    has_header: bool,
}

impl Listing {
    pub fn new(output: Printer) -> Self {
        Self { output, widths: Widths::new(), has_header: false }
    }

    /// Prints a table or `{"items": […]}` at first; later rows without a header, or one object per line.
    pub fn print<T: AsRow + Serialize>(&mut self, items: &[T]) -> Result<(), CliError> {
        let first = !std::mem::replace(&mut self.has_header, true);
        match (self.output.format, first) {
            (OutputFormat::Table | OutputFormat::Wide, true) if items.is_empty() => {
                write_err("nothing found\n");
                Ok(())
            }
            (OutputFormat::Table | OutputFormat::Wide, _) if items.is_empty() => Ok(()),
            (OutputFormat::Table | OutputFormat::Wide, first) => {
                let wide = self.output.format == OutputFormat::Wide;
                write_out(&table::render(items, wide, jiff::Timestamp::now(), first, &mut self.widths))
            }
            (OutputFormat::Json, true) => write_out(&json::pretty(&ItemList { items })?),
            (OutputFormat::Json, false) => items.iter().try_for_each(|item| write_out(&json::line(item)?)),
            (OutputFormat::Yaml, true) => write_out(&yaml::to_yaml(&json!({ "items": items }))),
            (OutputFormat::Yaml, false) => {
                items.iter().try_for_each(|item| write_out(&format!("---\n{}", yaml::to_yaml(&json!(item)))))
            }
        }
    }
}

/// Removes fields with the value `null` from an object: unknown fields are absent.
pub fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

/// Formats a value as YAML, for comparing documents.
pub fn document_text(value: &Value) -> String {
    yaml::to_yaml(value)
}

fn write_out(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn write_err(text: &str) {
    let mut out = anstream::stderr().lock();
    // An error of standard error cannot be reported.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests;
