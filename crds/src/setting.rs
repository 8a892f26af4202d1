//! Declares settings. Each is one field with its doc comment in [`settings!`](crate::settings).
//!
//! The declaration generates flags, configuration files, environment variables, reference pages and the arguments of
//! child processes. A crate declares the settings that it uses; the command line finds the values.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::quantity;

/// The description of one setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The section and key in configuration files, e.g. `client.run.num_cpus`.
    pub key: &'static str,
    /// The environment variable; none if it follows from the key.
    pub variable: Option<&'static str>,
    /// The built-in value as text, parsed like any other; none for the default of its type.
    pub default: Option<&'static str>,
    /// The flag on the command line; none if only files and variables set it.
    pub flag: Option<Flag>,
    /// The description: the doc comment of the field.
    pub doc: &'static str,
    /// Checks a text, and returns what is wrong with it as the end of a sentence.
    pub check: fn(&str) -> Result<(), String>,
}

impl Setting {
    /// An empty setting, to which declarations add what they need.
    pub const PLAIN: Self = Self { key: "", variable: None, default: None, flag: None, doc: "", check: |_| Ok(()) };

    /// Returns the environment variable: `TORC_RUN_NUM_CPUS` for `client.run.num_cpus`.
    pub fn variable(&self) -> String {
        let by_key = || {
            let in_kubernetes = self.key.strip_prefix("server.").filter(|path| path.starts_with("kubernetes."));
            let path = self.key.strip_prefix("client.").or(in_kubernetes).unwrap_or(self.key);
            format!("TORC_{}", path.replace('.', "_").to_uppercase())
        };
        self.variable.map_or_else(by_key, str::to_owned)
    }

    /// Returns the variable in the spelling of Torc 1.0: `TORC_CLIENT__RUN__NUM_CPUS`.
    pub fn variable_by_section(&self) -> String {
        format!("TORC_{}", self.key.replace('.', "__").to_uppercase())
    }
}

/// The commands that have a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagGroup {
    /// Every command has the flag.
    Global,
    /// Commands that run jobs.
    Runner,
    /// Commands that embed a server, for its address.
    EmbeddedListener,
    /// The command `server`, for its address.
    Listener,
    /// Every command that listens on an address.
    Listening,
    /// The command `server`, under a heading of its own.
    Server,
}

impl FlagGroup {
    /// Returns the heading of the group in help texts.
    pub const fn heading(self) -> Option<&'static str> {
        match self {
            Self::Global => Some("Global options"),
            Self::Runner => Some("Local runner"),
            Self::EmbeddedListener | Self::Listener | Self::Listening => Some("Listening"),
            Self::Server => None,
        }
    }

    /// Creates a flag of this group.
    pub const fn flag(self, long: &'static str) -> Flag {
        Flag {
            group: self,
            long,
            short: None,
            alias: None,
            value: None,
            is_checked: false,
            choices: &[],
            is_list: false,
            is_advanced: false,
            conflicts: &[],
            requires: None,
        }
    }
}

/// A flag on the command line. Two settings may share one.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The commands that have it.
    pub group: FlagGroup,
    /// The name without the leading `--`.
    pub long: &'static str,
    /// The letter of the short form, e.g. `n` for `-n`.
    pub short: Option<char>,
    /// Another name, as Torc 1.0 spelled it.
    pub alias: Option<&'static str>,
    /// The placeholder of its value; none for a switch that means `true`.
    pub value: Option<&'static str>,
    /// The parser of the command line checks the value, so that its error names the flag.
    pub is_checked: bool,
    /// The allowed values, each with its meaning; empty for any value.
    pub choices: &'static [(&'static str, &'static str)],
    /// It may be given several times.
    pub is_list: bool,
    /// Only the long help shows it.
    pub is_advanced: bool,
    /// Keys of settings whose flags exclude it.
    pub conflicts: &'static [&'static str],
    /// The key of a setting whose flag must be given, too.
    pub requires: Option<&'static str>,
}

impl Flag {
    /// Makes the flag take a value, shown as `placeholder` in help texts.
    pub const fn value(mut self, placeholder: &'static str) -> Self {
        self.value = Some(placeholder);
        self
    }

    /// Makes the flag take a value that the parser of the command line checks, such as a number.
    pub const fn checked(mut self, placeholder: &'static str) -> Self {
        self.is_checked = true;
        self.value(placeholder)
    }

    /// Limits the values to these, each with its meaning.
    pub const fn choices(mut self, choices: &'static [(&'static str, &'static str)]) -> Self {
        self.choices = choices;
        self
    }

    /// Adds a short form with one letter.
    pub const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    /// Adds a second name, which help texts do not show.
    pub const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    /// Makes the flag repeatable.
    pub const fn list(mut self) -> Self {
        self.is_list = true;
        self
    }

    /// Shows the flag in the long help only.
    pub const fn advanced(mut self) -> Self {
        self.is_advanced = true;
        self
    }

    /// Makes the flag exclude the flags of these settings.
    pub const fn conflicts(mut self, keys: &'static [&'static str]) -> Self {
        self.conflicts = keys;
        self
    }

    /// Makes the flag require the flag of another setting.
    pub const fn requires(mut self, key: &'static str) -> Self {
        self.requires = Some(key);
        self
    }
}

/// An error for a value that a setting does not accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("setting `{key}` is invalid: '{text}' {reason}")]
pub struct InvalidSetting {
    /// The key of the setting in configuration files.
    pub key: &'static str,
    /// The value that is wrong, as text.
    pub text: String,
    /// The end of a sentence that begins with the value.
    pub reason: String,
}

/// Returns the configured text of a setting by its key.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

/// The type of a field: a parsed value, or one that may be absent.
pub trait SettingField<T> {
    /// Converts a value, or none, to the field.
    fn of(value: Option<T>) -> Self;
}

impl<T: Default> SettingField<T> for T {
    fn of(value: Option<T>) -> Self {
        value.unwrap_or_default()
    }
}

impl<T> SettingField<T> for Option<T> {
    fn of(value: Option<T>) -> Self {
        value
    }
}

/// Reads one field from the configured text, or else from the built-in one.
pub fn read<T, F: SettingField<T>>(
    setting: Option<&Setting>,
    lookup: Lookup<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<F, InvalidSetting> {
    let Some(setting) = setting else { return Ok(F::of(None)) };
    let Some(text) = lookup(setting.key).or(setting.default) else { return Ok(F::of(None)) };
    let wrong = |reason| InvalidSetting { key: setting.key, text: text.to_owned(), reason };
    parse(text).map_err(wrong).map(|value| F::of(Some(value)))
}

/// Declares a struct of settings.
///
/// A field consists of its doc comment, its key, further fields of [`Setting`] in parentheses, its name and type, and
/// the function that parses it. Fields in the second pair of braces are not settings and get their default value.
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:literal ($($option:ident: $value:expr),* $(,)?)
                $field:ident: $type:ty = $parse:expr;
            )*
        }
        $({ $($(#[doc = $other_doc:literal])* $other:ident: $other_type:ty;)* })?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $($($(#[doc = $other_doc])* pub $other: $other_type,)*)?
        }

        impl $name {
            /// The settings, in the order of their fields.
            #[allow(clippy::needless_update, reason = "some settings give every option")]
            pub const SETTINGS: &'static [$crate::setting::Setting] = &[
                $($crate::setting::Setting {
                    key: $key,
                    doc: concat!($($doc),+).trim_ascii_start(),
                    check: |text| $parse(text).map(|_| ()),
                    $($option: $value,)*
                    ..$crate::setting::Setting::PLAIN
                },)*
            ];

            /// Reads the settings. Those that `lookup` does not find get their built-in values.
            pub fn read(lookup: $crate::setting::Lookup<'_>) -> Result<Self, $crate::setting::InvalidSetting> {
                let setting = |key: &str| Self::SETTINGS.iter().find(|setting| setting.key == key);
                Ok(Self {
                    $($field: $crate::setting::read(setting($key), lookup, $parse)?,)*
                    $($($other: Default::default(),)*)?
                })
            }
        }

        impl Default for $name {
            /// Returns the built-in values.
            fn default() -> Self {
                match Self::read(&|_| None) {
                    Ok(settings) => settings,
                    Err(error) => panic!("a built-in value is wrong: {error}"),
                }
            }
        }
    };
}

/// Takes any text, unchanged.
pub fn parse_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Takes any text without the spaces around it.
pub fn parse_trimmed(text: &str) -> Result<String, String> {
    Ok(text.trim().to_owned())
}

/// Takes a word without the spaces around it; none if it is empty.
pub fn parse_word(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.trim().to_owned()).filter(|word| !word.is_empty()))
}

/// Takes words separated by commas. Spaces around them and empty words are ignored.
pub fn parse_words(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// Takes any text as a path.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    Ok(text.into())
}

/// Takes a whole number of at least `MIN`.
pub fn parse_count<T: TryFrom<i64>, const MIN: i64>(text: &str) -> Result<T, String> {
    match text.trim().parse::<i64>() {
        Ok(number) if number >= MIN => T::try_from(number).map_err(|_| "is too large".to_owned()),
        _ => Err(format!("must be a whole number of at least {MIN}")),
    }
}

/// Takes `true`, `false`, `1` or `0`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Takes an amount of memory such as `200g`, and returns bytes.
pub fn parse_memory(text: &str) -> Result<i64, String> {
    quantity::parse_memory(text).map_err(|error| format!("must be a memory size such as 200g: {error}"))
}

/// Takes a time with its unit, such as `4h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = quantity::parse_duration(text).map_err(|error| format!("must be a duration such as 4h: {error}"))?;
    u64::try_from(seconds).map(Duration::from_secs).map_err(|_| "must not be negative".to_owned())
}

/// Takes a number of seconds above 0; fractions are allowed.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

/// Takes a number of minutes of at least 0; fractions are allowed.
pub fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.trim().parse::<f64>().ok().filter(|minutes| *minutes >= 0.0);
    minutes
        .and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok())
        .ok_or_else(|| "must be a number of minutes of at least 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::settings! {
        /// Settings of a test.
        pub struct Example {
            /// The address of the server,
            /// or none.
            "client.url" (variable: Some("TORC_API_URL"))
            url: Option<String> = parse_word;
            /// The number of jobs at once.
            "client.run.count" (default: Some("3"), flag: Some(FlagGroup::Runner.flag("count").value("N")))
            count: i64 = parse_count::<i64, 2>;
            /// The name of the lease.
            "server.kubernetes.lease" ()
            lease: String = parse_text;
        }
        {
            /// A field that is not a setting.
            other: Vec<u8>;
        }
    }

    #[test]
    fn a_declaration_is_a_struct_and_a_table() {
        let built_in = Example { url: None, count: 3, lease: String::new(), other: Vec::new() };
        assert_eq!(Example::default(), built_in);
        let names: Vec<_> = Example::SETTINGS.iter().map(|setting| (setting.variable(), setting.doc)).collect();
        let expected = [
            ("TORC_API_URL", "The address of the server, or none."),
            ("TORC_RUN_COUNT", "The number of jobs at once."),
            ("TORC_KUBERNETES_LEASE", "The name of the lease."),
        ];
        assert_eq!(names, expected.map(|(variable, doc)| (variable.to_owned(), doc)));
        assert_eq!(Example::SETTINGS[1].variable_by_section(), "TORC_CLIENT__RUN__COUNT");
    }

    #[test]
    fn what_is_found_wins_and_is_checked() {
        let with = |count: &'static str| Example::read(&move |key| (key == "client.run.count").then_some(count));
        assert_eq!(with("2").map(|found| found.count), Ok(2));
        let reason = "must be a whole number of at least 2".to_owned();
        let error = InvalidSetting { key: "client.run.count", text: "1".to_owned(), reason: reason.clone() };
        assert_eq!(with("1"), Err(error));
        assert_eq!((Example::SETTINGS[1].check)("1"), Err(reason));
    }

    #[test]
    fn values() {
        assert_eq!(parse_words(" gpu, fast,,gpu"), Ok(["gpu", "fast", "gpu"].map(str::to_owned).into()));
        assert_eq!(parse_word(" "), Ok(None));
        assert!(parse_switch("maybe").is_err() && parse_duration("4").is_err() && parse_memory("lots").is_err());
        assert!(parse_seconds("0").is_err() && parse_minutes("0").is_ok() && parse_minutes("-1").is_err());
        assert_eq!(parse_count::<i32, 0>("3000000000"), Err("is too large".to_owned()));
    }
}
