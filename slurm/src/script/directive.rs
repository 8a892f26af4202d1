//! Writes the lines of a batch script that begin with `#SBATCH`.

use serde_json::Value;

/// An option that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{option}` {reason}")]
pub struct BadDirective {
    option: String,
    reason: &'static str,
}

impl BadDirective {
    pub(super) fn new(option: &str, reason: &'static str) -> Self {
        Self { option: option.to_owned(), reason }
    }
}

#[derive(Default)]
pub(super) struct Directives {
    text: String,
}

impl Directives {
    pub(super) fn option(&mut self, option: &str, value: &Value) -> Result<(), BadDirective> {
        let option = option.trim_start_matches('-').replace('_', "-");
        if option.is_empty() || !option.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(BadDirective::new(&option, "is not an option of sbatch"));
        }
        match value {
            Value::Bool(true) => self.text.push_str(&format!("#SBATCH --{option}\n")),
            Value::Bool(false) | Value::Null => {}
            Value::Number(number) => self.text.push_str(&format!("#SBATCH --{option}={number}\n")),
            Value::String(text) => {
                self.text.push_str(&format!("#SBATCH --{option}={}\n", quote(&option, text)?));
            }
            Value::Array(_) | Value::Object(_) => {
                return Err(BadDirective::new(&option, "must be a text, a number or a boolean"));
            }
        }
        Ok(())
    }

    pub(super) fn text(&mut self, option: &str, value: Option<&str>) -> Result<(), BadDirective> {
        value.map_or(Ok(()), |value| self.option(option, &Value::from(value)))
    }

    pub(super) fn number(&mut self, option: &str, value: Option<i64>) -> Result<(), BadDirective> {
        value.map_or(Ok(()), |value| self.option(option, &Value::from(value)))
    }

    /// Adds options as the user wrote them, on one line or several, with or without `#SBATCH`.
    pub(super) fn raw(&mut self, text: &str) -> Result<(), BadDirective> {
        if text.contains('\0') {
            return Err(BadDirective::new("extra", "contains a NUL character"));
        }
        for line in text.lines() {
            let options = line.trim();
            let options = options.strip_prefix("#SBATCH").unwrap_or(options).trim();
            if !options.is_empty() && !options.starts_with('#') {
                self.text.push_str(&format!("#SBATCH {options}\n"));
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Quotes a value for `sbatch`, which knows double quotes and backslashes and treats `#` as the start of a comment.
fn quote(option: &str, value: &str) -> Result<String, BadDirective> {
    if value.chars().any(char::is_control) {
        return Err(BadDirective::new(option, "must not contain line breaks or other control characters"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=@%+".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return Ok(value.to_owned());
    }
    Ok(format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Returns a limit as `D-HH:MM:SS`, at least a minute: Slurm counts whole minutes.
pub(super) fn time_limit(seconds: i64) -> String {
    let minutes = seconds.max(60).saturating_add(59) / 60;
    format!("{}-{:02}:{:02}:00", minutes / 1_440, minutes / 60 % 24, minutes % 60)
}
