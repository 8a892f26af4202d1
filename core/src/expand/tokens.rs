//! `${files.input.NAME}` and its three siblings: a command that names what it reads and writes.
//!
//! A token of a file becomes the file's path, a token of data its JSON when there is any. Names that nobody declared stay
//! as they are written: the shell may know better.

use crate::expanded::{ExpandedFile, ExpandedUserData};

use super::names::Names;

/// A text without its tokens, and what they referred to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    pub text: String,
    pub input_files: Vec<u32>,
    pub output_files: Vec<u32>,
    pub input_user_data: Vec<u32>,
    pub output_user_data: Vec<u32>,
}

/// What tokens can refer to.
#[derive(Debug)]
pub struct Targets<'a, 'n> {
    pub file_names: &'a Names<'n>,
    pub files: &'a [ExpandedFile],
    pub data_names: &'a Names<'n>,
    pub user_data: &'a [ExpandedUserData],
}

/// Replaces the tokens of `text`; `None` when it has none.
pub fn resolve(text: &str, targets: &Targets<'_, '_>) -> Option<Resolved> {
    let mut resolved = Resolved::default();
    let mut copied = 0;
    let mut position = 0;
    while let Some(found) = text[position..].find("${") {
        let start = position + found;
        position = start + 2;
        let Some((kind, name, end)) = token(text, position) else { continue };
        position = end;
        let Some((replacement, number)) = target(kind, name, targets) else { continue };
        match kind {
            Kind::InputFile => resolved.input_files.push(number),
            Kind::OutputFile => resolved.output_files.push(number),
            Kind::InputData => resolved.input_user_data.push(number),
            Kind::OutputData => resolved.output_user_data.push(number),
        }
        resolved.text.push_str(&text[copied..start]);
        resolved.text.push_str(&replacement);
        copied = end;
    }
    if copied == 0 {
        return None;
    }
    resolved.text.push_str(&text[copied..]);
    Some(resolved)
}

const KINDS: [(&str, Kind); 4] = [
    ("files.input.", Kind::InputFile),
    ("files.output.", Kind::OutputFile),
    ("user_data.input.", Kind::InputData),
    ("user_data.output.", Kind::OutputData),
];

#[derive(Clone, Copy)]
enum Kind {
    InputFile,
    OutputFile,
    InputData,
    OutputData,
}

/// The token whose inside starts at `at`: its kind, the name and where the token ends.
fn token(text: &str, at: usize) -> Option<(Kind, &str, usize)> {
    let inside = &text[at..];
    let (prefix, kind) = KINDS.into_iter().find(|(prefix, _)| inside.starts_with(prefix))?;
    let name = &inside[prefix.len()..];
    let length = name.find('}').filter(|&length| length > 0)?;
    Some((kind, &name[..length], at + prefix.len() + length + 1))
}

/// What a token becomes, and the number of what it names.
fn target(kind: Kind, name: &str, targets: &Targets<'_, '_>) -> Option<(String, u32)> {
    match kind {
        Kind::InputFile | Kind::OutputFile => {
            let number = targets.file_names.find(name)?;
            Some((targets.files.get(number as usize)?.path.clone(), number))
        }
        Kind::InputData | Kind::OutputData => {
            let number = targets.data_names.find(name)?;
            Some((targets.user_data.get(number as usize)?.data.as_ref()?.to_string(), number))
        }
    }
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
            Targets { file_names: &files_index, files: &files, data_names: &data_index, user_data: &user_data };
        let table = [
            ("cat ${files.input.in} > ${files.output.out.x}", Some("cat /d/in > /d/out.x"), [1, 1, 0, 0]),
            ("${files.input.in}${files.input.in}", Some("/d/in/d/in"), [2, 0, 0, 0]),
            ("run '${user_data.input.cfg}'", Some("run '{\"a\":\"x\",\"b\":1}'"), [0, 0, 1, 0]),
            ("put ${user_data.output.cfg}", Some("put {\"a\":\"x\",\"b\":1}"), [0, 0, 0, 1]),
            ("${files.input.nope} ${files.input.in}", Some("${files.input.nope} /d/in"), [1, 0, 0, 0]),
            ("${user_data.input.empty} ${HOME} ${files.input.} ${files.input.in", None, [0; 4]),
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
}
