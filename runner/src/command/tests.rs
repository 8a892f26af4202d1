use super::*;

fn shell(variables: &[(&str, &str)]) -> ShellSetup {
    ShellSetup::of(variables.iter().map(|(name, value)| (OsStr::new(*name), OsStr::new(*value))))
}

#[test]
fn plain_words_need_no_shell() {
    let plain = [
        "true",
        "false",
        "sleep 5",
        "/usr/bin/env python3 -m job",
        "./run.sh --size=10 a,b c:d e@f +x 100%",
        "  python  train.py\t--seed 1 ",
        "../bin/solve out/x_1.csv",
        "g++ -O2 main.cc",
    ];
    for command in plain {
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(argv(command, None, &ShellSetup::default()), words, "{command}");
    }
}

#[test]
fn everything_else_goes_to_bash() {
    let shell_commands = [
        "",
        " ",
        "echo hi",
        "cd /tmp",
        "exit 3",
        "export A",
        "source x",
        ". x",
        ":",
        "test -f x",
        "[ -f x ]",
        "ulimit -n 5",
        "time sleep 1",
        "if true",
        "exec sleep 1",
        "A=1 prog",
        "A+=1",
        "PATH=/x ls",
        "a | b",
        "a && b",
        "a; b",
        "a > f",
        "a &",
        "ls *.txt",
        "ls ?",
        "ls [ab]",
        "ls {a,b}",
        "ls ~",
        "~/bin/x",
        "ls $HOME",
        "ls `pwd`",
        "say \"x\"",
        "say 'x'",
        "a\\ b",
        "a\nb",
        "a # c",
        "! true",
        "%1",
        "-x",
        "+x",
        "@x",
        "caf\u{e9}",
        "a\rb",
        "a^b",
        "a\0b",
        "read x",
        "kill 1",
        "wait",
    ];
    for command in shell_commands {
        assert_eq!(argv(command, None, &ShellSetup::default()), ["bash", "-c", command], "{command:?}");
    }
}

#[test]
fn what_the_environment_brings_to_bash_counts() {
    let module = shell(&[("BASH_FUNC_module%%", "() { true; }"), ("BASH_FUNC_ml()", "() { true; }")]);
    assert_eq!(argv("module load gcc", None, &module)[0], "bash");
    assert_eq!(argv("ml gcc", None, &module)[0], "bash");
    assert_eq!(argv("modulex load gcc", None, &module)[0], "modulex");
    assert_eq!(argv("sleep 1", None, &shell(&[("BASH_ENV", "/etc/x")]))[0], "bash");
    assert_eq!(argv("sleep 1", None, &shell(&[("BASH_ENV", "")]))[0], "sleep");
    let more = std::collections::BTreeMap::from([("BASH_ENV".to_owned(), "x".to_owned())]);
    assert_eq!(argv("sleep 1", None, &ShellSetup::default().with(&more))[0], "bash");
}

#[test]
fn an_invocation_script_is_a_prefix_or_a_script() {
    let setup = ShellSetup::default();
    let cases: [(&str, &str, &[&str]); 5] = [
        ("bash wrap.sh", "run 1", &["bash", "wrap.sh", "run", "1"]),
        ("  nice -n 5\n", "run 1", &["nice", "-n", "5", "run", "1"]),
        ("numactl", "a | b", &["bash", "-c", "numactl a | b"]),
        ("#!/bin/bash\nmodule load x", "run 1", &["bash", "-c", "#!/bin/bash\nmodule load x\nrun 1"]),
        (" \n ", "run 1", &["run", "1"]),
    ];
    for (script, command, expected) in cases {
        assert_eq!(argv(command, Some(script), &setup), expected, "{script:?}");
    }
}

#[test]
fn shell_words_are_sorted() {
    for word in ["alias", "while", "cd", "ulimit", "echo", "exec", "test"] {
        assert!(is_shell_word(word), "{word}");
    }
    for word in ["true", "false", "bash", "sleep", "cdx"] {
        assert!(!is_shell_word(word), "{word}");
    }
}

#[test]
fn signals_by_name() {
    let cases = [
        (None, 15),
        (Some("SIGINT"), 2),
        (Some("int"), 2),
        (Some("USR1"), 10),
        (Some("SIGKILL"), 9),
        (Some("SEGV"), 15),
    ];
    for (name, number) in cases {
        assert_eq!(termination_signal(name), number, "{name:?}");
    }
}

#[test]
fn devices_are_told_to_every_library() {
    assert!(device_variables(&[]).is_empty());
    let variables = device_variables(&["1".to_owned(), "3".to_owned()]);
    assert_eq!(variables.len(), 4);
    assert!(variables.iter().all(|(_, value)| value == "1,3"));
}

// X06, X17. Every signal by both of its names, and back.
#[test]
fn every_signal_has_its_number_and_its_name() {
    let table = [("SIGTERM", 15), ("SIGHUP", 1), ("SIGINT", 2), ("SIGKILL", 9), ("SIGUSR1", 10), ("SIGUSR2", 12)];
    for (name, number) in table {
        let short = name.trim_start_matches("SIG");
        for text in [name, short, &name.to_lowercase(), &format!(" {short} ")] {
            assert_eq!(termination_signal(Some(text)), number, "{text}");
        }
        assert_eq!(signal_name(number), name);
    }
    assert_eq!((termination_signal(Some("")), termination_signal(Some("15")), signal_name(3)), (15, 15, "SIGTERM"));
}

// X04
#[test]
fn the_variables_of_devices_are_these() {
    let variables = device_variables(&["GPU-7".to_owned(), "2".to_owned()]);
    let pair = |name: &str| (name.to_owned(), "GPU-7,2".to_owned());
    let names = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TORC_GPU_VISIBLE_DEVICES"];
    assert_eq!(variables, names.map(pair));
}

/// Every word with a meaning of its own in bash goes to bash.
#[test]
fn every_word_of_bash_is_known() {
    let words = "alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare \
                 dirs disown do done echo elif else enable esac eval exec exit export fc fg fi for function getopts \
                 hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray \
                 readonly return select set shift shopt source suspend test then time times trap type typeset ulimit \
                 umask unalias unset until wait while";
    for word in words.split_ascii_whitespace() {
        assert_eq!(argv(&format!("{word} x"), None, &ShellSetup::default())[0], "bash", "{word}");
    }
}
