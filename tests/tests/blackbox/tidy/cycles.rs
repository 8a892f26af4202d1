//! No cycle between the modules of a crate.

use std::collections::BTreeSet;

use torc_tests::env::project_root;
use torc_tests::modules::{Modules, components, siblings};

const CRATES: [&str; 9] = ["crds", "core", "store", "slurm", "controller", "runner", "cli", "tests", "tests/sim"];

/// Modules that are in cycles still, as `crate module`. Lines leave this list, none joins it.
const KNOWN: &str = include_str!("cycles.txt");

#[test]
#[allow(clippy::print_stdout)]
fn no_modules_use_each_other_in_a_cycle() {
    let known: BTreeSet<&str> = KNOWN.lines().collect();
    let (mut found, mut new) = (BTreeSet::new(), Vec::new());
    for name in CRATES {
        let modules = Modules::read(project_root(), &format!("{name}/src/lib.rs")).unwrap();
        let components = components(&siblings(&modules.edges()));
        let count: usize = components.iter().map(|component| component.modules.len()).sum();
        println!("{name}: {count} of {} modules are in {} cycles", modules.len(), components.len());
        for component in components {
            print!("{component}");
            let lines: Vec<String> = component.modules.iter().map(|module| format!("{name} {module}")).collect();
            if !lines.iter().all(|line| known.contains(line.as_str())) {
                new.push(format!("{name}: {component}"));
            }
            found.extend(lines);
        }
    }
    for line in known.iter().filter(|line| !found.contains(**line)) {
        println!("remove from cycles.txt: {line}");
    }
    assert!(new.is_empty(), "these modules use each other:\n{}", new.join("\n"));
}
