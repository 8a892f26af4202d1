//! Settings. Each is one field with its doc comment, declared by [`settings!`](crate::settings).
//!
//! Command line, configuration files, environment, reference pages and the hand-over to other processes are made from the declaration.
//! A crate declares the settings that it uses; the command line finds the values.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::quantity;

/// A setting as users see it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Section and key in configuration files.
    pub key: &'static str,
    /// The environment variable, where it is not the one that follows from the key.
    pub variable: Option<&'static str>,
    /// The built-in value.
    pub default: Option<&'static str>,
    /// The flag, if it has one.
    pub flag: Option<Flag>,
    /// The doc comment.
    pub doc: &'static str,
    /// Checks a value.
    pub check: fn(&str) -> Result<(), String>,
}

impl Setting {
    /// A setting without a variable of its own, a default and a flag.
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

    /// Returns the variable that Torc 1.0 would have had for it: `TORC_CLIENT__RUN__NUM_CPUS`.
    pub fn variable_by_section(&self) -> String {
        format!("TORC_{}", self.key.replace('.', "__").to_uppercase())
    }
}

/// Commands that take a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagGroup {
    /// All commands.
    Global,
    /// Commands that run jobs.
    Runner,
    /// Commands that contain a server, with its address.
    EmbeddedListener,
    /// The command `server`, with its address.
    Listener,
    /// All that listen.
    Listening,
    /// The command `server`.
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
    /// Commands that take it.
    pub group: FlagGroup,
    /// Its name.
    pub long: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// Another name, as Torc 1.0 spelled it.
    pub alias: Option<&'static str>,
    /// The placeholder of its value; a switch that says `true` has none.
    pub value: Option<&'static str>,
    /// A wrong value is an error of the command line, and not one of the setting.
    pub is_checked: bool,
    /// The only values, each with its meaning.
    pub choices: &'static [(&'static str, &'static str)],
    /// It may be given several times.
    pub is_list: bool,
    /// Only the long help shows it.
    pub is_advanced: bool,
    /// Keys of settings whose flags exclude it.
    pub conflicts: &'static [&'static str],
    /// The key of a setting whose flag must be there, too.
    pub requires: Option<&'static str>,
}

impl Flag {
    /// Takes a value.
    pub const fn value(mut self, placeholder: &'static str) -> Self {
        self.value = Some(placeholder);
        self
    }

    /// Takes a value whose form belongs to the command line, as that of a number does.
    pub const fn checked(mut self, placeholder: &'static str) -> Self {
        self.is_checked = true;
        self.value(placeholder)
    }

    /// Takes one of these values.
    pub const fn choices(mut self, choices: &'static [(&'static str, &'static str)]) -> Self {
        self.choices = choices;
        self
    }

    /// Has a letter.
    pub const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    /// Has another name.
    pub const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    /// Makes the flag repeatable.
    pub const fn list(mut self) -> Self {
        self.is_list = true;
        self
    }

    /// Is shown by the long help only.
    pub const fn advanced(mut self) -> Self {
        self.is_advanced = true;
        self
    }

    /// Excludes the flags of these settings.
    pub const fn conflicts(mut self, keys: &'static [&'static str]) -> Self {
        self.conflicts = keys;
        self
    }

    /// Needs the flag of another setting.
    pub const fn requires(mut self, key: &'static str) -> Self {
        self.requires = Some(key);
        self
    }
}

/// A value that is not one of its setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("setting `{key}` is wrong: '{text}' {reason}")]
pub struct InvalidSetting {
    /// The setting.
    pub key: &'static str,
    /// Its value.
    pub text: String,
    /// Completes a sentence that begins with the value.
    pub reason: String,
}

/// Finds the text of a setting by its key.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

/// The type of a field: a parsed value, or one that may be absent.
pub trait SettingField<T> {
    /// Makes the field of a value, or of none.
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

/// Reads one field: the text that was found, else the built-in one.
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
/// A field is its doc comment, its key, what else [`Setting`] says in parentheses, its name and type, and a function that parses it.
/// Fields in the second pair of braces are not settings and get their default value.
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

            /// Reads the settings; what `lookup` does not find is built in.
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

/// Takes any text.
pub fn parse_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Takes any text without the spaces around it.
pub fn parse_trimmed(text: &str) -> Result<String, String> {
    Ok(text.trim().to_owned())
}

/// Takes a word; spaces around it do not count, and an empty one says nothing.
pub fn parse_word(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.trim().to_owned()).filter(|word| !word.is_empty()))
}

/// Takes words with commas between them.
pub fn parse_words(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// Takes a path.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    Ok(text.into())
}

/// Takes a whole number.
pub fn parse_count<T: TryFrom<i64>, const MIN: i64>(text: &str) -> Result<T, String> {
    match text.trim().parse::<i64>() {
        Ok(number) if number >= MIN => T::try_from(number).map_err(|_| "is too large".to_owned()),
        _ => Err(format!("must be a whole number of at least {MIN}")),
    }
}

/// Takes `true` or `false`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Takes an amount of memory such as `200g`.
pub fn parse_memory(text: &str) -> Result<i64, String> {
    quantity::parse_memory(text).map_err(|error| format!("is no amount of memory: {error}"))
}

/// Takes a time with its unit, such as `4h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = quantity::parse_duration(text).map_err(|error| format!("is no duration: {error}"))?;
    u64::try_from(seconds).map(Duration::from_secs).map_err(|_| "must not be negative".to_owned())
}

/// Takes a number of seconds above 0.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

/// Takes a number of minutes; 0 is one.
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
            /// Where to,
            /// or nowhere.
            "client.url" (variable: Some("TORC_API_URL"))
            url: Option<String> = parse_word;
            /// How many.
            "client.run.count" (default: Some("3"), flag: Some(FlagGroup::Runner.flag("count").value("N")))
            count: i64 = parse_count::<i64, 2>;
            /// Who leads.
            "server.kubernetes.lease" ()
            lease: String = parse_text;
        }
        {
            /// Not a setting.
            other: Vec<u8>;
        }
    }

    #[test]
    fn a_declaration_is_a_struct_and_a_table() {
        let built_in = Example { url: None, count: 3, lease: String::new(), other: Vec::new() };
        assert_eq!(Example::default(), built_in);
        let names: Vec<_> = Example::SETTINGS.iter().map(|setting| (setting.variable(), setting.doc)).collect();
        let expected = [
            ("TORC_API_URL", "Where to, or nowhere."),
            ("TORC_RUN_COUNT", "How many."),
            ("TORC_KUBERNETES_LEASE", "Who leads."),
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
