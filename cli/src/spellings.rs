//! Command lines of Torc 1.0 that are rewritten to commands of this version before parsing.

use std::ffi::OsString;

use clap::{Arg, Command};
use torc_api::setting::FlagGroup;

use crate::settings;

/// A command of Torc 1.0 and its replacement.
struct Spelling {
    /// The words of the command.
    typed: &'static [&'static str],
    /// The words that replace them; none if only flags differ.
    meant: &'static [&'static str],
    /// Flags with another name: old and new.
    flags: &'static [(&'static str, &'static str)],
    /// A flag that is removed together with the last replacing word.
    without: Option<&'static str>,
    /// The help text; empty if only flags differ.
    about: &'static str,
}

const fn spelling(typed: &'static [&'static str], meant: &'static [&'static str], about: &'static str) -> Spelling {
    Spelling { typed, meant, flags: &[], without: None, about }
}

impl Spelling {
    const fn flags(mut self, flags: &'static [(&'static str, &'static str)]) -> Self {
        self.flags = flags;
        self
    }

    const fn without(mut self, flag: &'static str) -> Self {
        self.without = Some(flag);
        self
    }
}

const SPELLINGS: &[Spelling] = &[
    spelling(&["workflows", "list"], &["get", "workflows"], "List workflows"),
    spelling(&["workflows", "get"], &["describe", "workflow"], "Show one workflow in detail"),
    spelling(&["workflows", "status"], &["status"], "Show the state of a workflow"),
    spelling(&["workflows", "cancel"], &["cancel"], "Cancel workflows"),
    spelling(&["workflows", "delete"], &["delete"], "Delete workflows"),
    spelling(
        &["workflows", "reset-status"],
        &["retry", "--all"],
        "Restart all jobs as a new run, or with --failed-only the failed jobs",
    )
    .without("--failed-only"),
    spelling(&["workflows", "list-actions"], &["get", "actions"], "List the actions of a workflow"),
    spelling(&["jobs", "list"], &["get", "jobs"], "List jobs").flags(&[("-s", "--status")]),
    spelling(&["jobs", "get"], &["describe", "job"], "Show one job in detail").flags(&[("-w", "--workflow")]),
    spelling(
        &["results", "list"],
        &["get", "results", "--latest"],
        "List the latest result of each job; with --all-runs every attempt",
    )
    .flags(&[("-s", "--status"), ("-j", "--job")])
    .without("--all-runs"),
    // These commands use letters that are global flags of all other commands.
    spelling(&["exec"], &[], "").flags(&[("-n", "--name"), ("-o", "--output-dir")]),
    spelling(&["remote", "collect-logs"], &[], "").flags(&[("-o", "--output-dir")]),
];

/// Groups without commands of this version, with their help texts.
const GROUPS: &[(&str, &str)] = &[("results", "List results, as in Torc 1.0")];

/// Rewrites a command line of Torc 1.0; returns all others unchanged.
pub fn rewrite(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some((spelling, places)) = find(&arguments) else { return arguments };
    let own = places.last().map_or(0, |place| place + 1);
    let others = arguments.iter().skip(own).position(|word| word == "--").map_or(arguments.len(), |end| own + end);
    let left_out = (own..others).find(|at| spelling.without.is_some_and(|flag| arguments[*at] == flag));
    for argument in &mut arguments[own..others] {
        rename(argument, spelling.flags);
    }
    if let Some(at) = left_out {
        arguments.remove(at);
    }
    let kept = spelling.meant.len() - usize::from(left_out.is_some());
    if let (Some((first, rest)), false) = (places.split_first(), spelling.meant.is_empty()) {
        rest.iter().rev().for_each(|place| drop(arguments.remove(*place)));
        arguments.splice(first..=first, spelling.meant[..kept].iter().map(OsString::from));
    }
    arguments
}

/// Adds the spellings to the help of their groups.
pub fn add_to(mut command: Command) -> Command {
    for (group, about) in GROUPS {
        let group = Command::new(*group).about(*about).subcommand_required(true).arg_required_else_help(true);
        command = command.subcommand(group);
    }
    for spelling in SPELLINGS.iter().filter(|spelling| !spelling.meant.is_empty()) {
        let [group, name] = spelling.typed else { continue };
        let meant = spelling.meant.join(" ");
        let arguments =
            Arg::new("arguments").value_name("ARGUMENT").num_args(0..).help(format!("Arguments of `torc {meant}`"));
        let about = format!("{}, as `torc {meant}`", spelling.about);
        command = command
            .mut_subcommand(*group, |command| command.subcommand(Command::new(*name).about(about).arg(arguments)));
    }
    command
}

/// Returns the matching spelling and the positions of its words.
fn find(arguments: &[OsString]) -> Option<(&'static Spelling, Vec<usize>)> {
    SPELLINGS.iter().find_map(|spelling| {
        let mut places: Vec<usize> = Vec::new();
        for word in spelling.typed {
            let place = next_word(arguments, places.last().map_or(1, |place: &usize| place + 1))?;
            if arguments.get(place)? != word {
                return None;
            }
            places.push(place);
        }
        Some((spelling, places))
    })
}

/// Returns the position of the next word that is neither a global flag nor its value.
fn next_word(arguments: &[OsString], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let word = arguments.get(at)?.to_str()?;
        if !word.starts_with('-') {
            return Some(at);
        }
        at += if takes_next_word(word) { 2 } else { 1 };
    }
}

fn takes_next_word(word: &str) -> bool {
    let global = settings::all().filter_map(|setting| setting.flag).filter(|flag| flag.group == FlagGroup::Global);
    global.into_iter().any(|flag| {
        let is_letter =
            flag.short.is_some_and(|letter| word.strip_prefix('-') == Some(letter.encode_utf8(&mut [0; 4])));
        flag.value.is_some() && (is_letter || word.strip_prefix("--") == Some(flag.long))
    })
}

fn rename(argument: &mut OsString, flags: &[(&str, &str)]) {
    let Some(text) = argument.to_str() else { return };
    let renamed = flags.iter().find_map(|(short, long)| match text.strip_prefix(short)? {
        "" => Some((*long).to_owned()),
        value => Some(format!("{long}={}", value.strip_prefix('=').unwrap_or(value))),
    });
    if let Some(renamed) = renamed {
        *argument = renamed.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn rewritten(line: &str) -> String {
        let words = rewrite(line.split_whitespace().map(OsString::from).collect());
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_spelling_becomes_an_existing_command() {
        use clap::Parser as _;
        let lines = [
            ("workflows list -w --limit 3", "get workflows -w --limit 3"),
            ("workflows get w", "describe workflow w"),
            ("workflows status w", "status w"),
            ("workflows cancel a b", "cancel a b"),
            ("workflows delete a b -y", "delete a b -y"),
            ("workflows reset-status w", "retry --all w"),
            ("workflows reset-status w --failed-only", "retry w"),
            ("workflows list-actions w", "get actions w"),
            ("jobs list w -s failed --contains c -w", "get jobs w --status failed --contains c -w"),
            ("jobs get j -w w", "describe job j --workflow w"),
            (
                "results list w --failed --return-code -1 -s failed -j j",
                "get results --latest w --failed --return-code -1 --status failed --job j",
            ),
            ("results list --all-runs -sfailed", "get results --status=failed"),
            ("exec -n a -o d -- echo -n", "exec --name a --output-dir d -- echo -n"),
            ("remote collect-logs -o d w -n x", "remote collect-logs --output-dir d w -n x"),
        ];
        for spelling in SPELLINGS {
            let typed = spelling.typed.join(" ");
            assert!(lines.iter().any(|(line, _)| line.starts_with(&typed)), "no line for `{typed}`");
            for flag in spelling.flags.iter().map(|(short, _)| *short).chain(spelling.without) {
                let is_tried = |line: &str| line.starts_with(&typed) && line.contains(&format!(" {flag}"));
                assert!(lines.iter().any(|(line, _)| is_tried(line)), "no line for `{typed} {flag}`");
            }
        }
        for (line, meaning) in lines {
            let found = rewritten(&format!("torc {line}"));
            assert_eq!(found, format!("torc {meaning}"));
            assert!(Cli::try_parse_from(found.split_whitespace()).is_ok(), "{found}");
        }
    }

    #[test]
    fn flags_of_every_command_may_stand_between() {
        for (line, expected) in [
            ("torc -n lab exec -na -o=d -c x", "torc -n lab exec --name=a --output-dir=d -c x"),
            ("torc --url u -v exec -n a", "torc --url u -v exec --name a"),
            ("torc -o json workflows -v list", "torc -o json get workflows -v"),
            ("torc get exec -n lab -o json", "torc get exec -n lab -o json"),
            ("torc -o exec get", "torc -o exec get"),
            ("torc remote status w -o json", "torc remote status w -o json"),
            ("torc workflows list --help", "torc get workflows --help"),
            ("torc workflows --help", "torc workflows --help"),
            ("torc jobs list -- -s", "torc get jobs -- -s"),
            ("torc", "torc"),
        ] {
            assert_eq!(rewritten(line), expected);
        }
        for flag in ["--url", "--token-file", "--ca-cert", "--certificate-sha256", "--context", "--kubeconfig"] {
            assert_eq!(rewritten(&format!("torc {flag} exec exec -n a")), format!("torc {flag} exec exec --name a"));
        }
    }

    #[test]
    fn help_shows_spellings_among_the_commands_of_their_group() {
        use clap::CommandFactory as _;
        let mut command = add_to(Cli::command());
        command.build();
        for spelling in SPELLINGS.iter().filter(|spelling| !spelling.meant.is_empty()) {
            let found = spelling.typed.iter().try_fold(&command, |command, name| command.find_subcommand(name));
            let about = found.and_then(|command| command.get_about()).map(ToString::to_string).unwrap_or_default();
            assert!(about.starts_with(spelling.about) && about.contains(spelling.meant[0]), "{:?}", spelling.typed);
        }
        let listed = command.find_subcommand_mut("workflows").expect("a group").render_help().to_string();
        assert!(listed.contains("List workflows, as `torc get workflows`"), "{listed}");
    }
}
