//! JSON for programs.

use serde::Serialize;
use serde_json::json;

/// Indented, with a line end.
pub fn pretty(value: &impl Serialize) -> String {
    format!("{:#}\n", json!(value))
}

/// On one line.
pub fn line(value: &impl Serialize) -> String {
    format!("{}\n", json!(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes() {
        let value = json!({ "items": [1] });
        assert_eq!(pretty(&value), "{\n  \"items\": [\n    1\n  ]\n}\n");
        assert_eq!(line(&value), "{\"items\":[1]}\n");
    }
}
