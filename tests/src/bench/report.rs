//! Figures and their bars.

use serde::Serialize;

/// All figures of a run.
#[derive(Default, Serialize)]
pub struct Report {
    figures: Vec<Figure>,
}

/// A measured value, with its bar if it has one.
#[derive(Serialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    /// `None` if any value is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<Bar>,
}

/// The limit of a figure.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl Report {
    /// Adds a figure without a bar.
    pub fn record(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit, bar: None });
    }

    /// Adds a figure with a bar.
    pub fn record_with_bar(&mut self, name: impl Into<String>, value: f64, unit: &'static str, bar: Bar) {
        self.figures.push(Figure { name: name.into(), value, unit, bar: Some(bar) });
    }

    /// Prints a line for each figure.
    pub fn print(&self) {
        for figure in &self.figures {
            let bar = match figure.bar {
                None => String::new(),
                Some(bar) => {
                    let (word, limit) = match bar {
                        Bar::AtMost(limit) => ("at most", limit),
                        Bar::AtLeast(limit) => ("at least", limit),
                    };
                    let status = if bar.holds(figure.value) { "ok" } else { "MISSED" };
                    format!("  (bar: {word} {limit} {}: {status})", figure.unit)
                }
            };
            println!("{:<62} {:>12.3} {}{bar}", figure.name, figure.value, figure.unit);
        }
    }
}
