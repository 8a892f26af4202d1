#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use torc_api::cluster::SlurmClusterSpec;

use super::super::tests::FakeSlurm;
use super::*;
use crate::credentials::ServerTrust;
use crate::issuer::Issuer;
use crate::tests::token_key;

fn config(slurm: &FakeSlurm) -> SlurmConfig {
    SlurmConfig {
        serves: None,
        poll: Duration::from_secs(1),
        runner: Vec::new(),
        folder: slurm.path("handed"),
        output_dir: "output".into(),
        ssh_secrets: None,
        replaced: slurm.replaced(),
    }
}

fn credential_files() -> CredentialFiles {
    let issuer = Issuer::new(token_key(), None);
    CredentialFiles::new(CredentialIssuer::new(
        "https://s".to_owned(),
        issuer,
        Duration::from_secs(1_000),
        ServerTrust::default(),
    ))
}

fn to(workflow: i64, working_dir: &Path) -> CredentialTarget {
    let working_dir = working_dir.to_str().unwrap().to_owned();
    CredentialTarget { cluster: "local".to_owned(), workflow: WorkflowId(workflow), working_dir }
}

#[tokio::test]
async fn what_runners_read_is_renewed_at_half_of_its_life() {
    let slurm = FakeSlurm::new();
    let (mut clusters, mut credential_files, config) = (slurm.clusters(), credential_files(), config(&slurm));
    let cluster = clusters.get("local", None).unwrap();
    let (to, token) = (to(3, Path::new("/work")), slurm.path("handed/torc-wf3-0a1b.token"));
    let mut tokens = Vec::new();
    for now in [10_000, 10_499, 10_500, 10_999, 11_000] {
        let file = credential_files.deliver(&to, "0a1b", cluster, &config, now).await.unwrap();
        assert_eq!(Path::new(&file), slurm.path("handed/torc-wf3-0a1b.env"));
        tokens.push(std::fs::read_to_string(&token).unwrap());
    }
    assert!(tokens[0] == tokens[1] && tokens[1] != tokens[2] && tokens[2] == tokens[3] && tokens[3] != tokens[4]);
    assert!(tokens[0].ends_with('\n'));
    assert_eq!(std::fs::metadata(&token).unwrap().permissions().mode() & 0o077, 0, "only its owner reads it");
    let variables = std::fs::read_to_string(slurm.path("handed/torc-wf3-0a1b.env")).unwrap();
    assert!(variables.contains("https://s") && variables.contains(token.to_str().unwrap()), "{variables}");
    assert!(!variables.contains(tokens[4].trim()), "the token is only in its own file");
    credential_files.withdraw(&to, "0a1b", cluster, &config).await;
    assert_eq!(std::fs::read_dir(slurm.path("handed")).unwrap().count(), 0);
    credential_files.deliver(&to, "0a1b", cluster, &config, 11_001).await.unwrap();
    assert!(token.exists(), "withdrawn files are delivered again");
}

#[tokio::test]
async fn each_workflow_and_store_has_files_of_its_own() {
    let slurm = FakeSlurm::new();
    let (mut clusters, mut credential_files, config) = (slurm.clusters(), credential_files(), config(&slurm));
    let cluster = clusters.get("local", None).unwrap();
    for (workflow, identity) in [(3, "aa"), (4, "aa"), (3, "bb")] {
        let to = CredentialTarget { cluster: identity.to_owned(), ..to(workflow, Path::new("/work")) };
        credential_files.deliver(&to, identity, cluster, &config, 1).await.unwrap();
    }
    for name in ["torc-wf3-aa", "torc-wf4-aa", "torc-wf3-bb"] {
        assert!(slurm.path(&format!("handed/{name}.token")).exists(), "{name}");
    }
    credential_files.withdraw(&to(4, Path::new("/work")), "aa", cluster, &config).await;
    assert_eq!(std::fs::read_dir(slurm.path("handed")).unwrap().count(), 4, "those of the others stay");
}

#[tokio::test]
async fn a_workflow_must_have_a_folder() {
    let slurm = FakeSlurm::new();
    let (mut clusters, mut credential_files, config) = (slurm.clusters(), credential_files(), config(&slurm));
    let cluster = clusters.get("local", None).unwrap();
    let error = credential_files.deliver(&to(3, Path::new("")), "aa", cluster, &config, 1).await.unwrap_err();
    assert!(error.to_string().contains("torc.dev/working-dir"), "{error}");
    // Behind a command prefix, the files are in the folder of the jobs.
    let spec = SlurmClusterSpec { command_prefix: vec!["env".to_owned()], ..SlurmClusterSpec::default() };
    let cluster = clusters.get("lab", Some(&spec)).unwrap();
    let work = slurm.path("work");
    let file = credential_files.deliver(&to(3, &work), "aa", cluster, &config, 1).await.unwrap();
    assert_eq!(Path::new(&file), work.join(".torc-allocations/torc-wf3-aa.env"));
}
