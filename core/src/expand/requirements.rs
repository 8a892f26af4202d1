//! Converts named resource requirements to numbers.

use std::collections::HashMap;

use torc_api::problem::Problem;
use torc_api::quantity::{parse_duration, parse_memory};
use torc_api::resources::{DEFAULT_REQUIREMENTS, ResourceRequirements};

use crate::expanded::Requirements;

use super::report::ProblemCollector;

/// The runtime of requirements that declare none: one hour, as in Torc 1.0.
const DEFAULT_RUNTIME_SECONDS: i64 = 3_600;

/// Returns the requirements of a document, preceded by the default ones.
pub fn expand(written: &[ResourceRequirements], report: &mut ProblemCollector) -> Vec<Requirements> {
    let mut requirements = vec![Requirements::default()];
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (at, entry) in written.iter().enumerate() {
        let field = |name: &str| format!("spec.resourceRequirements[{at}].{name}");
        if entry.name == DEFAULT_REQUIREMENTS {
            let message = format!("`{DEFAULT_REQUIREMENTS}` is reserved: jobs without resource requirements use it");
            report.add(Problem::error(field("name"), message).hint("choose another name"));
        }
        if let Some(first) = seen.insert(&entry.name, at) {
            let message = format!("the name `{}` is already used by spec.resourceRequirements[{first}]", entry.name);
            report.add(Problem::error(field("name"), message));
        }
        let memory = parse_memory(&entry.memory);
        let runtime = entry.runtime.as_deref().map_or(Ok(DEFAULT_RUNTIME_SECONDS), parse_duration);
        if let Err(error) = &memory {
            report.add(Problem::error(field("memory"), error.to_string()).hint(error.hint()));
        }
        if let Err(error) = &runtime {
            report.add(Problem::error(field("runtime"), error.to_string()).hint(error.hint()));
        }
        requirements.push(Requirements {
            name: entry.name.clone(),
            num_cpus: entry.num_cpus,
            memory_bytes: memory.unwrap_or_default(),
            num_gpus: entry.num_gpus.unwrap_or(0),
            num_nodes: entry.num_nodes.unwrap_or(1),
            runtime_seconds: runtime.unwrap_or_default(),
        });
    }
    requirements
}

#[cfg(test)]
mod tests {
    use super::*;

    // J07
    #[test]
    fn default_requirements_are_one_cpu_1_mib_and_a_minute() {
        let expected = Requirements {
            name: DEFAULT_REQUIREMENTS.to_owned(),
            num_cpus: 1,
            memory_bytes: 1_048_576,
            num_gpus: 0,
            num_nodes: 1,
            runtime_seconds: 60,
        };
        assert_eq!(expand(&[], &mut ProblemCollector::default()), [expected]);
    }

    #[test]
    fn what_requirements_do_not_say() {
        let written = ResourceRequirements {
            name: "small".to_owned(),
            num_cpus: 2,
            memory: "3m".to_owned(),
            ..ResourceRequirements::default()
        };
        let expected = Requirements {
            name: "small".to_owned(),
            num_cpus: 2,
            memory_bytes: 3 << 20,
            num_gpus: 0,
            num_nodes: 1,
            runtime_seconds: 3_600,
        };
        assert_eq!(expand(&[written], &mut ProblemCollector::default())[1], expected);
    }

    #[test]
    fn requirements_keep_every_number() {
        let written = ResourceRequirements {
            name: "big".to_owned(),
            num_cpus: 2,
            memory: "3m".to_owned(),
            num_gpus: Some(4),
            num_nodes: Some(5),
            runtime: Some("PT6M".to_owned()),
        };
        let expected = Requirements {
            name: "big".to_owned(),
            num_cpus: 2,
            memory_bytes: 3 << 20,
            num_gpus: 4,
            num_nodes: 5,
            runtime_seconds: 360,
        };
        assert_eq!(expand(&[written], &mut ProblemCollector::default())[1], expected);
    }
}
