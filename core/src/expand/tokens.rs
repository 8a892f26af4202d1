//! Replaces `${files.input.NAME}` and its three siblings in commands.
//!
//! A token of a file becomes the file's path. A token of input data stays until the job is leased, because its value
//! may be written until then. A token of output data becomes the JSON of the document. Undeclared names stay as
//! written, because the shell may know them.

use std::borrow::Cow;

use serde_json::Value;

use crate::expanded::{Expanded, ExpandedFile, ExpandedJob, ExpandedUserData};

use super::names::Names;

/// A text with its tokens replaced, and the objects that they referred to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    pub text: String,
    pub input_files: Vec<u32>,
    pub output_files: Vec<u32>,
    pub input_user_data: Vec<u32>,
    pub output_user_data: Vec<u32>,
}

/// The files and data that tokens can refer to.
#[derive(Debug)]
pub struct TokenTargets<'a, 'n> {
    pub file_names: &'a Names<'n>,
    pub files: &'a [ExpandedFile],
    pub data_names: &'a Names<'n>,
    pub user_data: &'a [ExpandedUserData],
}

/// Replaces the tokens of `text`; `None` if it has none.
pub fn resolve(text: &str, targets: &TokenTargets<'_, '_>) -> Option<Resolved> {
    let mut resolved = Resolved::default();
    let mut found_any = false;
    let mut copied = 0;
    let mut position = 0;
    while let Some(found) = text[position..].find("${") {
        let start = position + found;
        position = start + 2;
        let Some((kind, name, end)) = token(text, position) else { continue };
        position = end;
        let Some((replacement, number)) = target(kind, name, targets) else { continue };
        found_any = true;
        match kind {
            TokenKind::InputFile => resolved.input_files.push(number),
            TokenKind::OutputFile => resolved.output_files.push(number),
            TokenKind::InputData => resolved.input_user_data.push(number),
            TokenKind::OutputData => resolved.output_user_data.push(number),
        }
        if let Some(replacement) = replacement {
            resolved.text.push_str(&text[copied..start]);
            resolved.text.push_str(&replacement);
            copied = end;
        }
    }
    if !found_any {
        return None;
    }
    resolved.text.push_str(&text[copied..]);
    Some(resolved)
}

const KINDS: [(&str, TokenKind); 4] = [
    ("files.input.", TokenKind::InputFile),
    ("files.output.", TokenKind::OutputFile),
    ("user_data.input.", TokenKind::InputData),
    ("user_data.output.", TokenKind::OutputData),
];

#[derive(Clone, Copy)]
enum TokenKind {
    InputFile,
    OutputFile,
    InputData,
    OutputData,
}

/// Returns the token whose content starts at `at`: its kind, the name and its end.
fn token(text: &str, at: usize) -> Option<(TokenKind, &str, usize)> {
    let inside = &text[at..];
    let (prefix, kind) = KINDS.into_iter().find(|(prefix, _)| inside.starts_with(prefix))?;
    let name = &inside[prefix.len()..];
    let length = name.find('}').filter(|&length| length > 0)?;
    Some((kind, &name[..length], at + prefix.len() + length + 1))
}

/// Returns the replacement of a token, if it is already known, and the number of its file or data.
fn target(kind: TokenKind, name: &str, targets: &TokenTargets<'_, '_>) -> Option<(Option<String>, u32)> {
    match kind {
        TokenKind::InputFile | TokenKind::OutputFile => {
            let number = targets.file_names.find(name)?;
            Some((Some(targets.files.get(number as usize)?.path.clone()), number))
        }
        TokenKind::InputData => Some((None, targets.data_names.find(name)?)),
        TokenKind::OutputData => {
            let number = targets.data_names.find(name)?;
            Some((targets.user_data.get(number as usize)?.data.as_ref().map(as_text), number))
        }
    }
}

/// Replaces the tokens of data that a job reads by their values; those without a value stay.
pub fn fill_data<'t, 'v>(text: &'t str, value: impl Fn(&str) -> Option<&'v Value>) -> Cow<'t, str> {
    let mut filled = String::new();
    let (mut copied, mut position) = (0, 0);
    while let Some(found) = text[position..].find("${") {
        let start = position + found;
        position = start + 2;
        let Some((TokenKind::InputData, name, end)) = token(text, position) else { continue };
        position = end;
        let Some(value) = value(name) else { continue };
        filled.push_str(&text[copied..start]);
        filled.push_str(&as_text(value));
        copied = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    filled.push_str(&text[copied..]);
    Cow::Owned(filled)
}

impl Expanded {
    /// Returns a job's command with the document's values of its input data.
    pub fn filled_command<'a>(&self, job: &'a ExpandedJob) -> Cow<'a, str> {
        fill_data(&job.command, |name| {
            let mut inputs = job.input_user_data.iter().filter_map(|data| self.user_data.get(*data as usize));
            inputs.find(|data| data.name == name)?.data.as_ref()
        })
    }
}

/// Returns JSON that is safe between single quotes of a shell. Apostrophes, which occur only in strings, are escaped.
fn as_text(value: &Value) -> String {
    value.to_string().replace('\'', "\\u0027")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn known_names_are_replaced_and_unknown_ones_stay() {
        let file_names = ["in".to_owned(), "out.x".to_owned()];
        let files: Vec<_> = file_names
            .iter()
            .map(|name| ExpandedFile { name: name.clone(), path: format!("/d/{name}"), identifier: None })
            .collect();
        let data_names = ["cfg".to_owned(), "empty".to_owned()];
        let data = [Some(json!({"b": 1, "a": "x"})), None];
        let user_data: Vec<_> = std::iter::zip(&data_names, data)
            .map(|(name, data)| ExpandedUserData { name: name.clone(), data, is_ephemeral: false })
            .collect();
        let (files_index, data_index) = (Names::new(&file_names).0, Names::new(&data_names).0);
        let targets =
            TokenTargets { file_names: &files_index, files: &files, data_names: &data_index, user_data: &user_data };
        let table = [
            ("cat ${files.input.in} > ${files.output.out.x}", Some("cat /d/in > /d/out.x"), [1, 1, 0, 0]),
            ("${files.input.in}${files.input.in}", Some("/d/in/d/in"), [2, 0, 0, 0]),
            ("run '${user_data.input.cfg}'", Some("run '${user_data.input.cfg}'"), [0, 0, 1, 0]),
            ("${user_data.input.empty} ${files.input.in}", Some("${user_data.input.empty} /d/in"), [1, 0, 1, 0]),
            ("put ${user_data.output.empty}", Some("put ${user_data.output.empty}"), [0, 0, 0, 1]),
            ("put ${user_data.output.cfg}", Some("put {\"a\":\"x\",\"b\":1}"), [0, 0, 0, 1]),
            ("${files.input.nope} ${files.input.in}", Some("${files.input.nope} /d/in"), [1, 0, 0, 0]),
            ("${user_data.input.nope} ${HOME} ${files.input.} ${files.input.in", None, [0; 4]),
            ("${${files.input.in}}", Some("${/d/in}"), [1, 0, 0, 0]),
        ];
        for (text, expected, counts) in table {
            let resolved = resolve(text, &targets);
            assert_eq!(resolved.as_ref().map(|r| r.text.as_str()), expected, "{text}");
            let r = resolved.unwrap_or_default();
            let found = [r.input_files.len(), r.output_files.len(), r.input_user_data.len(), r.output_user_data.len()];
            assert_eq!(found, counts, "{text}");
        }
    }

    #[test]
    fn values_are_filled_in_when_they_are_known() {
        let values = [("cfg", json!({"b": 1, "a": "it's"})), ("n", json!(3))];
        let fill = |text: &'static str| {
            fill_data(text, |name| values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)).into_owned()
        };
        assert_eq!(fill("run '${user_data.input.cfg}' ${user_data.input.n}"), "run '{\"a\":\"it\\u0027s\",\"b\":1}' 3");
        for text in ["${user_data.input.nope} ${user_data.output.n} ${files.input.n}", "", "${", "${user_data.input.n"]
        {
            assert_eq!(fill(text), text);
        }
    }
}
