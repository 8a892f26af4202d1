//! Flags of settings: built from their declarations, and written again for other processes.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use torc_api::setting::{Flag, FlagGroup, Setting};

use super::{Layers, SettingOrigin, all};

/// The id of `--memory-gb`, the spelling of Torc 1.0 for `--memory`.
const MEMORY_GB: &str = "memory_gb";
const MEMORY: &str = "client.run.memory";

/// The flags of some groups of settings, for commands to flatten. [`layer`] reads their values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags<const GROUPS: u8>;

/// The flags of the local runner.
pub type RunnerArgs = Flags<{ bit(FlagGroup::Runner) }>;

/// Returns the bit of a group in the parameter of [`Flags`].
pub const fn bit(group: FlagGroup) -> u8 {
    1 << group as u8
}

impl<const GROUPS: u8> Args for Flags<GROUPS> {
    fn augment_args(mut command: Command) -> Command {
        for (setting, flag) in flags().filter(|(_, flag)| GROUPS & bit(flag.group) != 0) {
            // A flag that two settings share is added by the first.
            if id(flag) == setting.key {
                command = command.arg(argument(setting, flag));
            }
        }
        if GROUPS & bit(FlagGroup::Runner) != 0 {
            command = command.arg(memory_gb());
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const GROUPS: u8> FromArgMatches for Flags<GROUPS> {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// Returns the values of a command line, including flags of subcommands.
pub fn layer(matches: &ArgMatches) -> Layers {
    let mut layers = Layers::default();
    let mut level = Some(matches);
    while let Some(matches) = level {
        add_typed(&mut layers, matches);
        level = matches.subcommand().map(|(_, inner)| inner);
    }
    layers
}

/// Formats settings as flags.
pub fn as_arguments<'a>(values: impl IntoIterator<Item = (&'static Setting, &'a str)>) -> Vec<String> {
    let mut words = Vec::new();
    for (setting, text) in values {
        match setting.flag.filter(|flag| id(flag) == setting.key) {
            None => {}
            Some(Flag { long, value: None, .. }) => words.extend((text == "true").then(|| format!("--{long}"))),
            Some(Flag { long, is_list: true, .. }) => {
                words.extend(text.split(',').map(|item| format!("--{long}={item}")));
            }
            Some(Flag { long, .. }) => words.push(format!("--{long}={text}")),
        }
    }
    words
}

fn flags() -> impl Iterator<Item = (&'static Setting, &'static Flag)> {
    all().filter_map(|setting| Some((setting, setting.flag.as_ref()?)))
}

/// Returns the key of the first setting that has this flag.
fn id(flag: &Flag) -> &'static str {
    let is_same = |other: &Flag| (other.group, other.long) == (flag.group, flag.long);
    flags().find(|(_, other)| is_same(other)).map_or(flag.long, |(setting, _)| setting.key)
}

fn add_typed(layers: &mut Layers, matches: &ArgMatches) {
    let is_typed =
        |id: &str| matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine);
    let text = |id: &str| match matches.try_get_many::<String>(id) {
        Ok(values) => values.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(","),
        // A switch holds no text.
        Err(_) => "true".to_owned(),
    };
    for (setting, flag) in flags().filter(|(_, flag)| is_typed(id(flag))) {
        layers.below(setting.key, text(id(flag)), SettingOrigin::Flag);
    }
    if let Some(gibibytes) = matches.try_get_one::<f64>(MEMORY_GB).ok().flatten() {
        layers.below(MEMORY, ((gibibytes * f64::from(1 << 30)) as i64).to_string(), SettingOrigin::Flag);
    }
}

fn argument(setting: &'static Setting, flag: &'static Flag) -> Arg {
    let action = match (flag.value, flag.is_list) {
        (None, _) => ArgAction::SetTrue,
        (Some(_), true) => ArgAction::Append,
        (Some(_), false) => ArgAction::Set,
    };
    let mut argument = Arg::new(setting.key)
        .long(flag.long)
        .help(setting.doc.strip_suffix('.').unwrap_or(setting.doc))
        .help_heading(flag.group.heading())
        .global(flag.group == FlagGroup::Global)
        .hide_short_help(flag.is_advanced)
        .conflicts_with_all(flag.conflicts)
        .action(action);
    if let Some(placeholder) = flag.value {
        argument = argument.value_name(placeholder).value_parser(parser(setting, flag));
        if matches!(placeholder, "FILE" | "FOLDER") {
            argument = argument.value_hint(ValueHint::AnyPath);
        }
    }
    if let Some(letter) = flag.short {
        argument = argument.short(letter);
    }
    if let Some(alias) = flag.alias {
        argument = argument.alias(alias);
    }
    if let Some(key) = flag.requires {
        argument = argument.requires(key);
    }
    argument
}

fn parser(setting: &'static Setting, flag: &Flag) -> ValueParser {
    if flag.choices.is_empty() && !flag.is_checked {
        return clap::value_parser!(String);
    }
    if flag.choices.is_empty() {
        return ValueParser::new(move |text: &str| (setting.check)(text).map(|()| text.to_owned()));
    }
    let choices = flag.choices.iter().map(|(word, meaning)| PossibleValue::new(*word).help(*meaning));
    PossibleValuesParser::new(choices).into()
}

fn memory_gb() -> Arg {
    Arg::new(MEMORY_GB)
        .long("memory-gb")
        .value_name("GIB")
        .value_parser(clap::value_parser!(f64))
        .hide(true)
        .conflicts_with(MEMORY)
}
