//! Figures with their bars.

use serde::Serialize;

/// Everything that was measured.
#[derive(Default, Serialize)]
pub struct Report {
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it has to be at most, or at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<Bar>,
}

/// What a figure is held to.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bar {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
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
    /// Adds a figure that is only told.
    pub fn tell(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit, bar: None });
    }

    /// Adds a figure that has a bar.
    pub fn hold(&mut self, name: impl Into<String>, value: f64, unit: &'static str, bar: Bar) {
        self.figures.push(Figure { name: name.into(), value, unit, bar: Some(bar) });
    }

    /// A line for each figure.
    pub fn print(&self) {
        for figure in &self.figures {
            let bar = match figure.bar {
                None => String::new(),
                Some(bar) => {
                    let (word, limit) = match bar {
                        Bar::AtMost(limit) => ("at most", limit),
                        Bar::AtLeast(limit) => ("at least", limit),
                    };
                    let verdict = if bar.holds(figure.value) { "ok" } else { "MISSED" };
                    format!("  (bar: {word} {limit} {}: {verdict})", figure.unit)
                }
            };
            println!("{:<62} {:>12.3} {}{bar}", figure.name, figure.value, figure.unit);
        }
    }
}
