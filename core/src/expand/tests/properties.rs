//! Tests of properties that every document has.

use super::*;

/// Returns a document of a few families with all kinds of references, which only point backwards and so form no cycle.
fn any_document() -> impl Strategy<Value = Value> {
    let family = (1usize..5, 0usize..6, any::<bool>(), 0usize..4);
    prop::collection::vec(family, 1..6).prop_map(|families| {
        let mut jobs = Vec::new();
        let mut files = Vec::new();
        for (at, (rows, style, zip, target)) in families.into_iter().enumerate() {
            let parameters =
                json!({"i": format!("1:{rows}"), "k": if zip { format!("1:{rows}") } else { "[a,b]".into() }});
            files.push(json!({"name": format!("f{at}_{{i}}{{k}}"), "path": "p", "parameters": parameters,
                "parameterMode": if zip { "zip" } else { "product" }}));
            let mut job = json!({
                "name": format!("j{at}_{{i}}{{k}}"), "command": "run {i} {k:03d}", "parameters": parameters,
                "parameterMode": if zip { "zip" } else { "product" }, "outputFiles": [format!("f{at}_{{i}}{{k}}")],
            });
            if at > 0 {
                let target = target % at;
                let first = jobs.get(target).and_then(|job: &Value| job["parameterMode"].as_str()) == Some("zip");
                let named = if first { "1" } else { "a" };
                let reference = match style {
                    0 => json!({"dependsOn": [format!("j{target}_1{named}"), format!("j{target}_1{named}")]}),
                    1 => json!({"dependsOnRegexes": [format!("^j{target}_"), format!("j{target}_1")]}),
                    2 => json!({"inputFiles": [format!("f{target}_1{named}")]}),
                    3 => json!({"inputFileRegexes": [format!("^f{target}_\\w+$")]}),
                    4 => json!({"command": format!("cat ${{files.input.f{target}_1{named}}}")}),
                    _ => json!({}),
                };
                job.as_object_mut().unwrap().extend(reference.as_object().unwrap().clone());
            }
            jobs.push(job);
        }
        json!({"jobs": jobs, "files": files})
    })
}

fn count(document: &Value) -> usize {
    let jobs = document["jobs"].as_array().unwrap();
    let rows = |job: &Value| {
        let length = |name: &str| match job["parameters"][name].as_str().unwrap() {
            "[a,b]" => 2,
            range => range.trim_start_matches("1:").parse::<usize>().unwrap(),
        };
        if job["parameterMode"] == "zip" { length("i") } else { length("i") * length("k") }
    };
    jobs.iter().map(rows).sum()
}

proptest! {
    #[test]
    fn the_same_document_gives_the_same_jobs(document in any_document()) {
        let (first, second) = (expanded(document.clone()), expanded(document));
        prop_assert_eq!(crate::hash::digest(&first), crate::hash::digest(&second));
        prop_assert_eq!(first, second);
    }

    #[test]
    fn families_have_the_size_of_their_parameters(document in any_document()) {
        let expanded = expanded(document.clone());
        prop_assert_eq!(expanded.jobs.len(), count(&document));
        prop_assert_eq!(expanded.files.len(), count(&document));
    }

    #[test]
    fn references_are_sorted_unique_and_valid(document in any_document()) {
        let expanded = expanded(document);
        for (number, job) in expanded.jobs.iter().enumerate() {
            for (list, count) in [(&job.depends_on, expanded.jobs.len()), (&job.input_files, expanded.files.len())] {
                prop_assert!(list.is_sorted_by(|a, b| a < b));
                prop_assert!(list.iter().all(|target| (*target as usize) < count));
            }
            prop_assert!(!job.depends_on.contains(&(number as u32)));
        }
    }

    #[test]
    fn readers_wait_for_writers(document in any_document()) {
        let expanded = expanded(document);
        for job in &expanded.jobs {
            for file in &job.input_files {
                for (writer, other) in (0u32..).zip(&expanded.jobs) {
                    if other.output_files.contains(file) && !std::ptr::eq(other, job) {
                        prop_assert!(job.depends_on.contains(&writer));
                    }
                }
            }
        }
        prop_assert_eq!(graph::stages(&expanded).concat().len(), expanded.jobs.len());
    }

    #[test]
    fn a_file_means_what_its_content_means(values in prop::collection::vec("[a-z]{1,4}|[0-9]{1,3}|[0-9]\\.[1-9]", 1..6)) {
        let unique: std::collections::BTreeSet<_> = values.iter().map(|v| v.trim_start_matches('0').to_owned()).collect();
        let values: Vec<String> = unique.into_iter().filter(|v| !v.is_empty()).collect();
        let document = |parameters: Value| json!({"jobs": [{"name": "j_{v}", "command": "{v:03d}", "parameters": parameters}]});
        let mut listed = spec(document(json!({"v": "@list.txt"})));
        prop_assert_eq!(embed(&mut listed, &mut |_| Ok(values.join("\n"))), []);
        let mut tabled = spec(json!({"jobs": [{"name": "j_{v}", "command": "{v:03d}", "parametersFile": "t.csv"}]}));
        let text = format!("v\n{}\n", values.join("\n"));
        if !values.is_empty() {
            prop_assert_eq!(embed(&mut tabled, &mut |_| Ok(text.clone())), []);
            let inline = expand(&spec(document(json!({"v": format!("[{}]", values.join(","))}))), &ExpansionLimits::default());
            prop_assert_eq!(&expand(&tabled, &ExpansionLimits::default()), &inline);
            prop_assert_eq!(&expand(&listed, &ExpansionLimits::default()), &inline);
        }
    }

    /// No text of a document makes expansion panic.
    #[test]
    fn any_text_is_either_expanded_or_reported(
        name in "\\PC{0,12}", parameter in "\\PC{0,12}", pattern in "\\PC{0,12}", variable in "\\PC{0,12}",
    ) {
        let document = json!({
            "variables": {"v": variable.clone()},
            "files": [{"name": name.clone(), "path": "{i}{v}", "parameters": {"i": parameter.clone()}}],
            "jobs": [
                {"name": name.clone(), "command": format!("{variable}{{i}}{pattern}"), "parameters": {"i": parameter}},
                {"name": "z", "command": pattern.clone(), "dependsOnRegexes": [pattern], "inputFileRegexes": [name]},
            ],
        });
        let limits = ExpansionLimits { max_jobs: 1_000, max_files: 1_000, max_dependencies: 1_000 };
        if let Err(problems) = expand(&spec(document), &limits) {
            prop_assert!(problems.iter().all(|problem| problem.field.starts_with("spec")));
            prop_assert!(!problems.is_empty());
        }
    }
}
