#![allow(clippy::unwrap_used)]

use std::time::Duration;

use torc_runner::OfflineSettings;

use super::*;

struct World {
    root: tempfile::TempDir,
    variables: BTreeMap<String, String>,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("project/inner")).unwrap();
        let home = root.path().join("home");
        let variables = BTreeMap::from([("HOME".to_owned(), home.to_str().unwrap().to_owned())]);
        Self { root, variables }
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn gather(&self, flags: Layers) -> Result<(Layers, Vec<String>), CommandError> {
        let folder = self.root.path().join("project/inner");
        let system = self.root.path().join("etc");
        let variable = |name: &str| self.variables.get(name).cloned();
        gather(flags, &Surroundings { variable: &variable, folder: &folder, system: &system })
    }
}

#[test]
fn nearer_sources_win_one_by_one() {
    let mut world = World::new();
    let cpus = |world: &World, flags: Layers| {
        let layers = world.gather(flags).unwrap().0;
        layers.get("client.run.num_cpus").map(|value| value.text.clone())
    };
    assert_eq!(cpus(&world, Layers::default()), None);
    world.file("etc/torc/config.toml", "[client.run]\nnum_cpus = 1\n");
    assert_eq!(cpus(&world, Layers::default()).as_deref(), Some("1"));
    world.file("home/.config/torc/config.toml", "[client.run]\nnum_cpus = 2\n");
    assert_eq!(cpus(&world, Layers::default()).as_deref(), Some("2"));
    world.file("project/torc.toml", "[client.run]\nnum_cpus = 3\n");
    assert_eq!(cpus(&world, Layers::default()).as_deref(), Some("3"));
    world.variables.insert("TORC_RUN_NUM_CPUS".to_owned(), "4".to_owned());
    assert_eq!(cpus(&world, Layers::default()).as_deref(), Some("4"));
    let typed = RunnerArgs { num_cpus: Some(5), ..RunnerArgs::default() };
    assert_eq!(cpus(&world, flags(&GlobalArgs::default(), Some(&typed))).as_deref(), Some("5"));
}

#[test]
fn keys_of_different_files_are_merged_and_know_their_origin() {
    let world = World::new();
    let user = world.file("home/.config/torc/config.toml", "[client]\nurl = \"http://a:1/\"\nformat = \"json\"\n");
    let project = world.file("project/torc.toml", "[client]\nformat = \"yaml\"\n");
    let (layers, warnings) = world.gather(Layers::default()).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(layers.get("client.url").unwrap().origin, Origin::File(user));
    assert_eq!(layers.get("client.format").unwrap().origin, Origin::File(project));
    let settings = resolve(&layers, Handed::default()).unwrap();
    assert_eq!(settings.url.as_deref(), Some("http://a:1"));
    assert_eq!(settings.format, Format::Yaml);
    assert_eq!(settings.run.poll_interval, Duration::from_secs(5));
    assert_eq!(settings.run.slurm_poll_interval, Duration::from_secs(30), "in an allocation");
    assert_eq!(settings.server.bind, "127.0.0.1:7421");
}

#[test]
fn the_users_folder_follows_xdg() {
    let mut world = World::new();
    world.file("xdg/torc/config.toml", "[server]\nmax_jobs = 7\n");
    let folder = world.root.path().join("xdg");
    world.variables.insert("XDG_CONFIG_HOME".to_owned(), folder.to_str().unwrap().to_owned());
    let (layers, _) = world.gather(Layers::default()).unwrap();
    assert_eq!(resolve(&layers, Handed::default()).unwrap().server.max_jobs, 7);
}

#[test]
fn a_file_that_does_not_parse_is_an_error_with_its_line() {
    let world = World::new();
    let path = world.file("project/torc.toml", "[client]\nformat = json\n");
    let error = world.gather(Layers::default()).unwrap_err();
    assert_eq!(error.kind, crate::error::ExitStatus::InvalidInput);
    assert!(error.message.starts_with(&format!("{}:2:", path.display())), "{}", error.message);
}

#[test]
fn unknown_keys_are_warnings_with_the_nearest() {
    let world = World::new();
    let path = world.file("project/torc.toml", "[client]\nformt = \"json\"\n[else]\nx = 1\n");
    let (_, warnings) = world.gather(Layers::default()).unwrap();
    let path = path.display();
    assert_eq!(
        warnings,
        [
            format!("{path}: unknown setting `client.formt`; did you mean `client.format`?"),
            format!("{path}: unknown setting `else.x`"),
        ]
    );
}

#[test]
fn wrong_values_name_their_source() {
    let world = World::new();
    let path = world.file("project/torc.toml", "[client.run]\nnum_cpus = \"many\"\n");
    let (layers, _) = world.gather(Layers::default()).unwrap();
    let error = resolve(&layers, Handed::default()).unwrap_err();
    let expected = format!(
        "setting `client.run.num_cpus` is wrong: 'many' must be a whole number of at least 1 (from {})",
        path.display()
    );
    assert_eq!(error.message, expected);
    for (key, text) in [
        ("client.url", "ftp://x"),
        ("client.url", "not a url"),
        ("client.format", "xml"),
        ("client.run.memory", "lots"),
        ("client.run.poll_interval", "0"),
        ("client.run.max_parallel_jobs", "0"),
        ("client.run.claim_backoff_max_secs", "-5"),
        ("client.run.long_poll", "maybe"),
        ("client.offline.enabled", "2"),
        ("client.offline.drain_ping_interval_secs", "0"),
        ("client.offline.wait_for_healthy_database_minutes", "-1"),
        ("server.max_jobs", "-1"),
    ] {
        let mut layers = Layers::default();
        layers.below(key, text.to_owned(), Origin::Flag);
        assert!(resolve(&layers, Handed::default()).is_err(), "{key} = {text}");
    }
}

// J27, J31, J34, J35
#[test]
fn what_happens_when_the_server_stays_away_can_be_set() {
    let mut world = World::new();
    let settings =
        |world: &World, flags: Layers| resolve(&world.gather(flags).unwrap().0, Handed::default()).unwrap().run;
    let usual = settings(&world, Layers::default());
    assert_eq!(usual.offline, OfflineSettings::default());
    assert_eq!((usual.offline.enabled, usual.offline.ping_interval.as_secs()), (true, 120));
    assert_eq!((usual.claim_backoff_max.as_secs(), usual.long_poll), (300, true));

    let text = "[client.offline]\nenabled = false\ndrain_ping_interval_secs = 7\n\
                wait_for_healthy_database_minutes = 0.5\n[client.run]\nclaim_backoff_max_secs = 60\nlong_poll = false\n";
    world.file("project/torc.toml", text);
    let run = settings(&world, Layers::default());
    let offline = run.offline;
    assert_eq!((offline.enabled, offline.ping_interval.as_secs()), (false, 7));
    assert_eq!(offline.retry_window, Some(Duration::from_secs(30)));
    assert_eq!((run.claim_backoff_max.as_secs(), run.long_poll), (60, false));

    world.variables.insert("TORC_CLIENT__OFFLINE__ENABLED".to_owned(), "true".to_owned());
    world.variables.insert("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS".to_owned(), "8".to_owned());
    let offline = settings(&world, Layers::default()).offline;
    assert_eq!((offline.enabled, offline.ping_interval.as_secs()), (true, 8), "the environment wins over files");

    let typed = RunnerArgs {
        offline_drain: Some(false),
        drain_ping_interval_secs: Some(9.0),
        claim_backoff_max_secs: Some(11.0),
        long_poll: Some(true),
        ..RunnerArgs::default()
    };
    let run = settings(&world, flags(&GlobalArgs::default(), Some(&typed)));
    assert_eq!((run.offline.enabled, run.offline.ping_interval.as_secs()), (false, 9), "flags win over all");
    assert_eq!((run.claim_backoff_max.as_secs(), run.long_poll), (11, true));
}

/// As Torc 1.0 spelled them.
#[test]
fn every_setting_has_a_variable_by_its_sections() {
    let mut world = World::new();
    world.variables.insert("TORC_CLIENT__RUN__NUM_CPUS".to_owned(), "3".to_owned());
    let (layers, _) = world.gather(Layers::default()).unwrap();
    let value = layers.get("client.run.num_cpus").unwrap();
    assert_eq!((value.text.as_str(), value.origin.to_string().as_str()), ("3", "TORC_CLIENT__RUN__NUM_CPUS"));
    world.variables.insert("TORC_RUN_NUM_CPUS".to_owned(), "4".to_owned());
    let (layers, _) = world.gather(Layers::default()).unwrap();
    assert_eq!(layers.get("client.run.num_cpus").unwrap().text, "4", "the short one wins");
}
