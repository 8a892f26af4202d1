//! JSON output, with keys in the order of the fields.

use serde::Serialize;

use crate::error::CliError;

/// Formats a value with indentation.
pub fn pretty(value: &impl Serialize) -> Result<String, CliError> {
    finish(serde_json::to_string_pretty(value))
}

/// Formats a value on one line.
pub fn line(value: &impl Serialize) -> Result<String, CliError> {
    finish(serde_json::to_string(value))
}

fn finish(text: serde_json::Result<String>) -> Result<String, CliError> {
    match text {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(CliError::unexpected("could not write the result as JSON", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pet {
        name: &'static str,
        age: i32,
    }

    #[test]
    fn json_is_indented_or_on_one_line() {
        let pet = Pet { name: "cat", age: 3 };
        assert_eq!(pretty(&pet).expect("JSON"), "{\n  \"name\": \"cat\",\n  \"age\": 3\n}\n");
        assert_eq!(line(&pet).expect("JSON"), "{\"name\":\"cat\",\"age\":3}\n");
    }
}
