//! The static program of the container image, built like in the Dockerfile and run in an empty root.

use std::path::PathBuf;
use std::process::{Command, Output};

use torc_tests::env::{TestEnv, project_root};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {printed}");
    output
}

#[test]
fn the_static_program_needs_no_library_and_runs_workflows() {
    let packaging = project_root().join("packaging");
    // `tests/run` has built it, so this only prints its path.
    let built = run(Command::new(packaging.join("static-build")).arg("dev"));
    let folder = PathBuf::from(String::from_utf8(built.stdout).unwrap().trim_end());
    let program = folder.join("torc");
    let ldd = Command::new("ldd").arg(&program).output().unwrap();
    let printed = [ldd.stdout, ldd.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(printed.contains("statically linked") || printed.contains("not a dynamic executable"), "{printed}");
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo ran > ran'}]\n");
    env.call_program(&program, "apply -f w.yaml").run().exits(0);
    assert_eq!(env.lines("ran"), ["ran"]);

    // The image has neither a shell nor libraries, and neither has the chroot.
    let image = env.path("image");
    run(Command::new(packaging.join("image-files")).arg(&image).arg(&program));
    assert!(!image.join("bin/sh").exists() && !image.join("usr/bin/sh").exists());
    let version = run(Command::new("chroot").arg(&image).args(["/usr/bin/torc", "--version"]));
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("torc "), "{version:?}");
    let runner = run(Command::new("chroot").arg(&image).args(["/usr/bin/torc-slurm-job-runner", "--version"]));
    assert!(String::from_utf8_lossy(&runner.stdout).starts_with("torc-slurm-job-runner "), "{runner:?}");
}
