//! Templates: texts with `{parameter}` tokens, compiled once and rendered for every row.

use super::parameter_space::ParameterSpace;
use super::value::ValueFormat;

/// A text of the document, compiled for a family.
#[derive(Debug)]
pub enum Template<'a> {
    /// A text that is the same in every row.
    Fixed(&'a str),
    /// A text that depends on the row.
    Varying(Vec<Segment<'a>>),
}

/// A part of a varying text.
#[derive(Debug)]
pub enum Segment<'a> {
    Text(&'a str),
    Cell {
        column: usize,
        format: ValueFormat,
        /// The token as written, which stays if the row has no value for it.
        written: &'a str,
    },
}

impl<'a> Template<'a> {
    /// Compiles `text`. Braces that are not a token of one of the family's parameters stay as they are.
    pub fn compile(text: &'a str, family: &ParameterSpace) -> Self {
        if family.names().is_empty() || !text.contains('{') {
            return Self::Fixed(text);
        }
        let mut segments = Vec::new();
        let mut plain = 0;
        let mut position = 0;
        while let Some(found) = text[position..].find('{') {
            let open = position + found;
            position = open + 1;
            let Some((column, format, end)) = token(text, open, family) else { continue };
            if plain < open {
                segments.push(Segment::Text(&text[plain..open]));
            }
            segments.push(Segment::Cell { column, format, written: &text[open..end] });
            plain = end;
            position = end;
        }
        if segments.is_empty() {
            return Self::Fixed(text);
        }
        if plain < text.len() {
            segments.push(Segment::Text(&text[plain..]));
        }
        Self::Varying(segments)
    }

    /// Returns the text of one row. A varying text is composed in `scratch`.
    pub fn render<'s>(&'s self, family: &ParameterSpace, row: usize, scratch: &'s mut String) -> &'s str {
        match self {
            Self::Fixed(text) => text,
            Self::Varying(segments) => {
                scratch.clear();
                for segment in segments {
                    match segment {
                        Segment::Text(text) => scratch.push_str(text),
                        Segment::Cell { column, format, written } => match family.cell(row, *column) {
                            Some(value) => value.print(*format, scratch),
                            None => scratch.push_str(written),
                        },
                    }
                }
                scratch
            }
        }
    }

    /// Returns the text of one row as a new string.
    pub fn text(&self, family: &ParameterSpace, row: usize) -> String {
        match self {
            Self::Fixed(text) => (*text).to_owned(),
            Self::Varying(_) => {
                let mut out = String::new();
                self.render(family, row, &mut out);
                out
            }
        }
    }
}

/// Returns the token that starts with the brace at `open`: its column, its format and its end.
fn token(text: &str, open: usize, family: &ParameterSpace) -> Option<(usize, ValueFormat, usize)> {
    let rest = &text[open + 1..];
    let name_end = rest.find(['}', ':'])?;
    let column = family.names().iter().position(|name| name == &rest[..name_end])?;
    let close = name_end + rest[name_end..].find('}')?;
    let format = rest.get(name_end + 1..close).map_or(ValueFormat::Plain, ValueFormat::parse);
    Some((column, format, open + 1 + close + 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::expand::value::Scalar;

    #[test]
    fn tokens_are_replaced_and_nothing_else() {
        let family = ParameterSpace::zip(vec![
            ("i".to_owned(), vec![Scalar::Integer(7)]),
            ("lr".to_owned(), vec![Scalar::Float(0.001)]),
            ("set".to_owned(), vec![Scalar::Text("train".into())]),
        ])
        .unwrap();
        let table = [
            ("plain", "plain"),
            ("job_{i}", "job_7"),
            ("job_{i:03d}_{lr:.4f}.{set}", "job_007_0.0010.train"),
            ("{i}{i}", "77"),
            ("{unknown} {i", "{unknown} {i"),
            ("{i:03d", "{i:03d"),
            ("awk '{print $1}' {set}", "awk '{print $1}' train"),
            ("${files.input.data_{i}}", "${files.input.data_7}"),
            ("${i}", "$7"),
            ("{{i}}", "{7}"),
            ("\\d{3}_{i}", "\\d{3}_7"),
            ("{} {i}", "{} 7"),
            ("é{i}é", "é7é"),
        ];
        for (text, expected) in table {
            assert_eq!(Template::compile(text, &family).text(&family, 0), expected, "{text}");
        }
    }

    #[test]
    fn rows_differ_and_an_absent_cell_leaves_the_token() {
        let cell = |row: &[Option<i64>]| row.iter().map(|n| n.map_or(serde_json::Value::Null, Into::into)).collect();
        let table = torc_api::parameters::ParameterTable {
            columns: vec!["i".to_owned(), "k".to_owned()],
            rows: [[Some(1), None], [Some(2), Some(30)]].iter().map(|row| cell(row)).collect(),
        };
        let entry = torc_api::parameters::Parameterization { parameter_table: Some(table), ..Default::default() };
        let pool = std::collections::BTreeMap::new();
        let shared = crate::expand::parameter_space::SharedParameters {
            parameters: &pool,
            has_table: false,
            table: None,
            most: 9,
        };
        let family = ParameterSpace::of(&entry, &shared).unwrap();
        let template = Template::compile("{i:02d}-{k:03d}.x", &family);
        let mut scratch = "of an earlier text".to_owned();
        for (row, expected) in [(0, "01-{k:03d}.x"), (1, "02-030.x")] {
            assert_eq!(template.render(&family, row, &mut scratch), expected);
            assert_eq!(template.text(&family, row), expected);
        }
        assert!(matches!(Template::compile("{x} {", &family), Template::Fixed("{x} {")));
        assert!(matches!(Template::compile("{i}", &ParameterSpace::single()), Template::Fixed("{i}")));
    }
}
