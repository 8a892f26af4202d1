//! What a command has to say, in the format the person asked for. No command asks which format that is.
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
pub use schedulers::{AllocationPlanRow, SchedulerRow, WayRow};
pub use sites::{MatchRow, PartitionRow, SiteRow};
use table::{AsRow, Widths};
pub use with_namespace::WithNamespace;

use crate::error::CliError;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON for programs.
    Json,
    /// YAML.
    Yaml,
}

impl OutputFormat {
    /// Names on the command line and in files, each with its meaning.
    pub const CHOICES: &[(&str, &str)] =
        &[("table", "Columns for people"), ("wide", "More columns"), ("json", "JSON for programs"), ("yaml", "YAML")];

    /// The format of a name.
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

/// A list for programs.
#[derive(Debug, Serialize)]
pub struct ItemList<'a, T> {
    /// What is listed.
    pub items: &'a [T],
}

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    format: OutputFormat,
}

impl Printer {
    /// Prints in this format.
    pub fn new(format: OutputFormat) -> Self {
        Self { format }
    }

    /// A list: a table, or `{"items": […]}`.
    pub fn list<T: AsRow + Serialize>(&self, items: &[T]) -> Result<(), CliError> {
        Listing::new(*self).print(items)
    }

    /// One thing: a text for people, or the value itself.
    pub fn value(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Table | OutputFormat::Wide => write_out(&text()),
            OutputFormat::Json => write_out(&json::pretty(value)?),
            OutputFormat::Yaml => write_out(&yaml::to_yaml(&json!(value))),
        }
    }

    /// A table as a part of a text for people.
    pub fn table<T: AsRow>(&self, items: &[T]) -> String {
        let wide = self.format == OutputFormat::Wide;
        table::render(items, wide, jiff::Timestamp::now(), true, &mut Widths::new())
    }

    /// A sentence that only people need; programs see that the command has succeeded.
    pub fn note(&self, text: &str) -> Result<(), CliError> {
        if self.format.is_structured() {
            return Ok(());
        }
        write_out(&format!("{text}\n"))
    }

    /// Text that is the same in every format, e.g. a log or a script.
    pub fn raw(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    }

    /// A document as YAML, unless JSON was asked for.
    pub fn document(&self, value: &Value) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Json => write_out(&json::pretty(value)?),
            _ => write_out(&yaml::to_yaml(value)),
        }
    }

    /// An error, on standard error.
    pub fn error(&self, error: &CliError) {
        if error.silent {
            return;
        }
        match json::line(&error.to_json()) {
            Ok(text) if self.format.is_structured() => say(&text),
            _ => say(&error.render()),
        }
    }

    /// Something odd, on standard error.
    pub fn warning(&self, text: &str) {
        let style = anstyle::AnsiColor::Yellow.on_default().bold();
        say(&format!("{style}warning:{style:#} {text}\n"));
    }

    /// What is going on, on standard error.
    pub fn progress(&self, text: &str) {
        say(&format!("{text}\n"));
    }
}

/// A list that may go on: the first print has a header, later ones line up with it.
#[derive(Debug)]
pub struct Listing {
    output: Printer,
    widths: Widths,
    begun: bool,
}

impl Listing {
    /// Nothing has been printed yet.
    pub fn new(output: Printer) -> Self {
        Self { output, widths: Widths::new(), begun: false }
    }

    /// First a table, or `{"items": […]}`; then rows without a header, or one object a line.
    pub fn print<T: AsRow + Serialize>(&mut self, items: &[T]) -> Result<(), CliError> {
        let first = !std::mem::replace(&mut self.begun, true);
        match (self.output.format, first) {
            (OutputFormat::Table | OutputFormat::Wide, true) if items.is_empty() => {
                say("nothing found\n");
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

/// An object for programs without the fields that are not known: they are absent, never `null`.
pub fn known(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

/// YAML of a value, for comparing documents.
pub fn document_text(value: &Value) -> String {
    yaml::to_yaml(value)
}

fn write_out(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn say(text: &str) {
    let mut out = anstream::stderr().lock();
    // Nobody is left to tell when standard error is gone.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests;
