//! Comparison of the definition in a cluster with the definition of this program.

use serde_json::Value;
use torc_api::definition::VERSION_ANNOTATION;

use crate::error::ExitStatus;

/// The result of a comparison, ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CrdStatus {
    /// The same as in this program.
    Current,
    /// From a later version, which supports all fields of this one.
    Newer,
    /// From an earlier version, or changed.
    Older,
    /// Not installed in the cluster.
    Missing,
}

impl CrdStatus {
    /// Returns the word in JSON output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::Newer => "Newer",
            Self::Older => "Older",
            Self::Missing => "Missing",
        }
    }

    /// Returns the text in tables and messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Current => "is up to date",
            Self::Newer => "is newer than this program",
            Self::Older => "is older than this program",
            Self::Missing => "is missing",
        }
    }

    pub const fn needs_install(self) -> bool {
        matches!(self, Self::Older | Self::Missing)
    }

    pub const fn exit_status(self) -> ExitStatus {
        match self {
            Self::Current | Self::Newer => ExitStatus::Success,
            Self::Older => ExitStatus::Different,
            Self::Missing => ExitStatus::NotFound,
        }
    }
}

/// Compares the installed definition with ours.
pub(super) fn compare(ours: &Value, installed: Option<&Value>) -> CrdStatus {
    let Some(installed) = installed else { return CrdStatus::Missing };
    if holds(&installed["spec"], &ours["spec"]) {
        return CrdStatus::Current;
    }
    match version(installed) > version(ours) {
        true => CrdStatus::Newer,
        false => CrdStatus::Older,
    }
}

/// Returns whether `theirs` contains all of `ours`. An API server adds defaults, but never fields to a schema.
fn holds(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => ours.iter().all(|(key, ours)| {
            let Some(theirs) = theirs.get(key) else { return false };
            let same_fields =
                || theirs.as_object().map(serde_json::Map::len) == ours.as_object().map(serde_json::Map::len);
            holds(theirs, ours) && (key != "properties" || same_fields())
        }),
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(theirs, ours)| holds(theirs, ours))
        }
        (Value::Number(theirs), Value::Number(ours)) => theirs.as_f64() == ours.as_f64(),
        (theirs, ours) => theirs == ours,
    }
}

/// Returns the numbers in the version of a definition.
fn version(definition: &Value) -> Vec<u64> {
    let text = definition["metadata"]["annotations"][VERSION_ANNOTATION].as_str().unwrap_or_default();
    text.split(['.', '-']).map_while(|part| part.parse().ok()).collect()
}

/// Returns whether the API server serves the definition.
pub(super) fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == "Established" && found["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(version: &str, schema: &Value) -> Value {
        json!({ "metadata": { "annotations": { VERSION_ANNOTATION: version } }, "spec": { "schema": schema } })
    }

    #[test]
    fn what_is_installed_is_compared_field_by_field() {
        let ours = definition("1.2.0", &json!({ "properties": { "a": { "minimum": 1 }, "b": { "enum": ["x"] } } }));
        assert_eq!(compare(&ours, None), CrdStatus::Missing);
        let cases = [
            ("1.2.0", json!({ "properties": { "a": { "minimum": 1.0 }, "b": { "enum": ["x"] } } }), CrdStatus::Current),
            ("1.1.9", json!({ "properties": { "a": { "minimum": 1 }, "b": { "enum": ["x"] } } }), CrdStatus::Current),
            ("1.2.0", json!({ "properties": { "a": { "minimum": 1 } } }), CrdStatus::Older),
            ("1.2.0", json!({ "properties": { "a": { "minimum": 2 }, "b": { "enum": ["x"] } } }), CrdStatus::Older),
            (
                "1.2.0",
                json!({ "properties": { "a": { "minimum": 1 }, "b": { "enum": ["x", "y"] } } }),
                CrdStatus::Older,
            ),
            (
                "1.10.0",
                json!({ "properties": { "a": { "minimum": 1 }, "b": { "enum": ["x", "y"] } } }),
                CrdStatus::Newer,
            ),
            (
                "1.10.0",
                json!({ "properties": { "a": { "minimum": 1 }, "b": { "enum": ["x"] }, "c": {} } }),
                CrdStatus::Newer,
            ),
        ];
        for (version, schema, expected) in cases {
            assert_eq!(compare(&ours, Some(&definition(version, &schema))), expected, "{version} {schema}");
        }
        let mut bare = ours.clone();
        bare["metadata"] = json!({});
        bare["spec"]["schema"]["properties"]["a"] = json!({});
        assert_eq!(compare(&ours, Some(&bare)), CrdStatus::Older);
    }

    #[test]
    fn the_worst_of_all_decides() {
        let order = [CrdStatus::Current, CrdStatus::Newer, CrdStatus::Older, CrdStatus::Missing];
        assert!(order.is_sorted());
        assert_eq!(order.map(|found| found.exit_status().code()), [0, 0, 9, 5]);
    }

    #[test]
    fn each_status_has_its_words() {
        let all = [
            (CrdStatus::Current, "Current", "is up to date", false),
            (CrdStatus::Newer, "Newer", "is newer than this program", false),
            (CrdStatus::Older, "Older", "is older than this program", true),
            (CrdStatus::Missing, "Missing", "is missing", true),
        ];
        for (status, word, words, needs_install) in all {
            assert_eq!((status.word(), status.text(), status.needs_install()), (word, words, needs_install));
        }
        for (kind, status, expected) in
            [("Established", "True", true), ("Established", "False", false), ("NamesAccepted", "True", false)]
        {
            let definition = json!({ "status": { "conditions": [{ "type": "X", "status": "True" }, { "type": kind, "status": status }] } });
            assert_eq!(is_established(&definition), expected, "{kind} {status}");
        }
        for (text, expected) in [("1.10.0-rc1", vec![1, 10, 0]), ("2", vec![2]), ("", vec![])] {
            assert_eq!(version(&definition(text, &json!({}))), expected, "{text}");
        }
    }
}
