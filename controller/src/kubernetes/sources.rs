//! Parameter tables in ConfigMaps: they are embedded into the document, like files by the command line.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use torc_api::condition::ConditionReason;
use torc_api::workflow::{Source, WorkflowSpec};
use torc_core::expand::embed;

use super::rejection::Rejection;

/// The result of embedding tables into a document.
pub(super) enum Embedded {
    /// The document, and the versions of the ConfigMaps.
    Whole(Box<WorkflowSpec>, Vec<String>),
    /// A table is missing or invalid.
    Refused(Rejection),
}

/// Returns the versions of the ConfigMaps that a document refers to, so that a change is noticed.
pub(super) async fn versions(maps: &Api<ConfigMap>, spec: &WorkflowSpec) -> kube::Result<Vec<String>> {
    let mut versions = Vec::new();
    for name in names(spec) {
        let found = maps.get_metadata_opt(name).await?;
        versions.push(found.and_then(|map| map.metadata.resource_version).unwrap_or_default());
    }
    Ok(versions)
}

/// Reads all ConfigMaps and embeds their tables.
pub(super) async fn read(maps: Option<&Api<ConfigMap>>, spec: &WorkflowSpec) -> kube::Result<Embedded> {
    let mut found = BTreeMap::new();
    let mut versions = Vec::new();
    if let Some(maps) = maps {
        for name in names(spec) {
            let map = maps.get_opt(name).await?;
            versions.push(map.as_ref().and_then(|map| map.metadata.resource_version.clone()).unwrap_or_default());
            found.insert(name.to_owned(), map);
        }
    }
    Ok(match embedded(spec, maps.is_some(), &found) {
        Ok(spec) => Embedded::Whole(Box::new(spec), versions),
        Err(rejection) => Embedded::Refused(rejection),
    })
}

/// Returns the names of the ConfigMaps, each once.
fn names(spec: &WorkflowSpec) -> impl Iterator<Item = &str> {
    let mut names: Vec<&str> = spec.sources.iter().map(|source| source.config_map_name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter()
}

/// Embeds tables into a document.
fn embedded(
    spec: &WorkflowSpec,
    is_allowed: bool,
    maps: &BTreeMap<String, Option<ConfigMap>>,
) -> Result<WorkflowSpec, Rejection> {
    if !is_allowed && !spec.sources.is_empty() {
        let message = "`sources` is switched off: the chart's value `sources.enabled` lets the server read ConfigMaps";
        return Err(Rejection::new(ConditionReason::SourceMissing, message));
    }
    for source in &spec.sources {
        text(source, maps).map_err(|message| Rejection::new(ConditionReason::SourceMissing, message))?;
    }
    let mut whole = spec.clone();
    let problems = embed(&mut whole, &mut |path| {
        let source = spec.sources.iter().find(|source| source.name == path);
        let source = source.ok_or_else(|| format!("there is no source '{path}'; files can only be read by `torc`"))?;
        text(source, maps).map(str::to_owned)
    });
    if problems.is_empty() { Ok(whole) } else { Err(Rejection::of_problems(&problems)) }
}

fn text<'a>(source: &Source, maps: &'a BTreeMap<String, Option<ConfigMap>>) -> Result<&'a str, String> {
    let Source { name, config_map_name, key } = source;
    let map = maps.get(config_map_name).and_then(Option::as_ref);
    let map = map.ok_or_else(|| format!("source '{name}': there is no ConfigMap '{config_map_name}'"))?;
    let value = map.data.as_ref().and_then(|data| data.get(key));
    value
        .map(String::as_str)
        .ok_or_else(|| format!("source '{name}': ConfigMap '{config_map_name}' has no key '{key}'"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn spec() -> WorkflowSpec {
        serde_json::from_value(json!({
            "sources": [{"name": "sweep.csv", "configMapName": "tables", "key": "sweep"}],
            "jobs": [{"name": "j_{lr}", "command": "true", "parametersFile": "sweep.csv"}],
        }))
        .unwrap()
    }

    fn maps(data: serde_json::Value) -> BTreeMap<String, Option<ConfigMap>> {
        BTreeMap::from([("tables".to_owned(), serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap())])
    }

    #[test]
    fn tables_come_from_config_maps() {
        let whole = embedded(&spec(), true, &maps(json!({"sweep": "lr\n0.1\n0.2\n"}))).unwrap();
        let table = whole.jobs[0].parameterization.parameter_table.as_ref().unwrap();
        assert_eq!(serde_json::to_value(table).unwrap()["rows"].as_array().unwrap().len(), 2);
        assert_eq!(embedded(&WorkflowSpec::default(), false, &BTreeMap::new()).unwrap(), WorkflowSpec::default());
    }

    #[test]
    fn each_source_is_its_own_table_and_each_map_is_read_once() {
        let mut spec = spec();
        let other = Source { name: "other.csv".to_owned(), key: "other".to_owned(), ..spec.sources[0].clone() };
        spec.sources.push(other);
        spec.jobs[0].parameterization.parameters_file = Some("other.csv".to_owned());
        let whole = embedded(&spec, true, &maps(json!({"sweep": "lr\n1\n", "other": "lr\n1\n2\n3\n"}))).unwrap();
        let table = whole.jobs[0].parameterization.parameter_table.as_ref().unwrap();
        assert_eq!(serde_json::to_value(table).unwrap()["rows"].as_array().unwrap().len(), 3);
        assert_eq!(names(&spec).collect::<Vec<_>>(), ["tables"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let nothing = BTreeMap::from([("tables".to_owned(), None)]);
        for (is_allowed, maps, reason, part) in [
            (false, maps(json!({})), ConditionReason::SourceMissing, "switched off"),
            (true, nothing, ConditionReason::SourceMissing, "there is no ConfigMap 'tables'"),
            (true, maps(json!({"other": ""})), ConditionReason::SourceMissing, "has no key 'sweep'"),
            (true, maps(json!({"sweep": "a,b\n1\n"})), ConditionReason::InvalidSpec, "is not a table"),
        ] {
            let rejection = embedded(&spec(), is_allowed, &maps).unwrap_err();
            assert_eq!(rejection.reason, reason);
            assert!(rejection.message.contains(part), "{}", rejection.message);
        }
    }
}
