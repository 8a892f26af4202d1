//! No cycle between the modules of a crate.

use torc_tests::env::project_root;
use torc_tests::modules::{Modules, components, siblings};

const CRATES: [&str; 9] = ["crds", "core", "store", "slurm", "controller", "runner", "cli", "tests", "tests/sim"];

#[test]
fn no_modules_use_each_other_in_a_cycle() {
    let mut found = Vec::new();
    for name in CRATES {
        let modules = Modules::read(project_root(), &format!("{name}/src/lib.rs")).unwrap();
        let cycles = components(&siblings(&modules.edges()));
        found.extend(cycles.into_iter().map(|cycle| format!("{name}: {cycle}")));
    }
    assert!(found.is_empty(), "these modules use each other:\n{}", found.join("\n"));
}
