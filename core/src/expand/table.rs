//! Parses parameter tables from the text of CSV, JSON or JSON-lines files.
//!
//! A missing cell is `null`. A cell with the JSON value `null` is the word "null".

use std::collections::HashSet;

use indexmap::IndexSet;
use serde_json::{Map, Value};
use torc_api::parameters::ParameterTable;

use super::value::Scalar;

/// The reason why a text is not a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("the name of a table must end in .csv, .json, .jsonl or .ndjson")]
    Extension,
    #[error("line {line} is not CSV: {error}")]
    Csv { line: u64, error: String },
    #[error("column `{0}` appears twice")]
    DuplicateColumn(String),
    #[error("row {row} has no value for `{column}`")]
    EmptyCell { row: usize, column: String },
    #[error("not JSON: {0}")]
    Json(String),
    #[error("line {line} is not JSON: {error}")]
    JsonLine { line: usize, error: String },
    #[error("a JSON table must be a list of objects")]
    NotAList,
    #[error("row {0} is not an object")]
    NotAnObject(usize),
    #[error("no rows")]
    Empty,
}

/// Parses a table. The extension of its file name determines the format.
pub fn parse(file: &str, text: &str) -> Result<ParameterTable, TableError> {
    let file = file.trim().to_ascii_lowercase();
    let table = if file.ends_with(".csv") {
        parse_csv(text)?
    } else if file.ends_with(".jsonl") || file.ends_with(".ndjson") {
        objects(parse_lines(text)?)?
    } else if file.ends_with(".json") {
        let value: Value = serde_json::from_str(text).map_err(|error| TableError::Json(error.to_string()))?;
        let Value::Array(rows) = value else { return Err(TableError::NotAList) };
        objects(rows)?
    } else {
        return Err(TableError::Extension);
    };
    if table.rows.is_empty() { Err(TableError::Empty) } else { Ok(table) }
}

/// Returns the values of a list with one value per line. Blank lines and lines that start with `#` are ignored.
pub fn parse_list(text: &str) -> Vec<Value> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Scalar::infer(line).into_json()).collect()
}

fn parse_csv(text: &str) -> Result<ParameterTable, TableError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let columns: Vec<String> = reader.headers().map_err(csv_error)?.iter().map(str::to_owned).collect();
    let mut seen = HashSet::new();
    if let Some(column) = columns.iter().find(|column| !seen.insert(column.as_str())) {
        return Err(TableError::DuplicateColumn(column.clone()));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(csv_error)?;
        let mut row = Vec::with_capacity(columns.len());
        for (cell, column) in record.iter().zip(&columns) {
            if cell.is_empty() {
                return Err(TableError::EmptyCell { row: rows.len() + 1, column: column.clone() });
            }
            row.push(Scalar::infer(cell).into_json());
        }
        rows.push(row);
    }
    Ok(ParameterTable { columns, rows })
}

fn csv_error(error: csv::Error) -> TableError {
    let line = error.position().map_or(1, csv::Position::line);
    TableError::Csv { line, error: error.to_string() }
}

fn parse_lines(text: &str) -> Result<Vec<Value>, TableError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| TableError::JsonLine { line: at + 1, error: error.to_string() })
        })
        .collect()
}

fn objects(rows: Vec<Value>) -> Result<ParameterTable, TableError> {
    let mut columns: IndexSet<String> = IndexSet::new();
    let mut maps: Vec<Map<String, Value>> = Vec::with_capacity(rows.len());
    for (at, row) in rows.into_iter().enumerate() {
        let Value::Object(map) = row else { return Err(TableError::NotAnObject(at + 1)) };
        for name in map.keys() {
            if !columns.contains(name) {
                columns.insert(name.clone());
            }
        }
        maps.push(map);
    }
    let cell = |map: &Map<String, Value>, name: &String| map.get(name).map_or(Value::Null, scalar);
    let rows = maps.iter().map(|map| columns.iter().map(|name| cell(map, name)).collect()).collect();
    Ok(ParameterTable { columns: columns.into_iter().collect(), rows })
}

fn scalar(value: &Value) -> Value {
    Scalar::of_json(value).into_json()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_one_table_agree() {
        let csv = "model, lr ,n\nresnet,0.001,32\nvit,1e-4,016\n";
        let json = r#"[{"model":"resnet","lr":0.001,"n":32},{"model":"vit","lr":0.0001,"n":16}]"#;
        let lines = "{\"model\":\"resnet\",\"lr\":0.001,\"n\":32}\n\n{\"model\":\"vit\",\"lr\":0.0001,\"n\":16}\n";
        let by_name = |table: ParameterTable| -> Vec<Vec<(String, Value)>> {
            let named = |row: Vec<Value>| {
                let mut row: Vec<_> = table.columns.iter().cloned().zip(row).collect();
                row.sort_by(|a, b| a.0.cmp(&b.0));
                row
            };
            table.rows.iter().cloned().map(named).collect()
        };
        let expected = by_name(parse("sweep.CSV", csv).unwrap());
        assert_eq!(expected.len(), 2);
        assert_eq!(by_name(parse("sweep.json", json).unwrap()), expected);
        assert_eq!(by_name(parse("sweep.jsonl", lines).unwrap()), expected);
        assert_eq!(by_name(parse("sweep.ndjson", lines).unwrap()), expected);
    }

    #[test]
    fn json_keeps_its_types_and_its_gaps() {
        let table = parse("t.json", r#"[{"a":"007","b":true},{"a":null,"c":[1]}]"#).unwrap();
        assert_eq!(table.columns, ["a", "b", "c"]);
        assert_eq!(
            table.rows,
            [[json!("007"), json!("true"), json!(null)], [json!("null"), json!(null), json!("[1]")]]
        );
    }

    #[test]
    fn what_is_no_table_says_why() {
        let table = [
            ("t.txt", "a\n1\n", "must end in"),
            ("t.csv", "a,b\n1\n", "line 2 is not CSV"),
            ("t.csv", "a,b\n1,\n", "row 1 has no value for `b`"),
            ("t.csv", "a,a\n1,2\n", "column `a` appears twice"),
            ("t.csv", "a,b\n", "no rows"),
            ("t.csv", "", "no rows"),
            ("t.json", "{}", "a list of objects"),
            ("t.json", "[1]", "row 1 is not an object"),
            ("t.json", "[", "not JSON"),
            ("t.json", "[]", "no rows"),
            ("t.jsonl", "{}\n{", "line 2 is not JSON"),
            ("t.jsonl", "3", "row 1 is not an object"),
        ];
        for (file, text, expected) in table {
            let error = parse(file, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{file}: {error}");
        }
    }

    #[test]
    fn a_list_is_one_value_a_line() {
        let text = "# runs\n1\n\n 2.5 \n# more\nname with blanks\n";
        assert_eq!(parse_list(text), [json!(1), json!(2.5), json!("name with blanks")]);
    }

    #[test]
    fn mistakes_are_counted_from_the_first_row() {
        let table = [
            ("t.csv", "a,b\n1,2\n3,\n", "row 2 has no value for `b`"),
            ("t.csv", "a,b\n1,2\n3\n", "line 3 is not CSV"),
            ("t.json", r#"[{"a":1},2]"#, "row 2 is not an object"),
            ("t.jsonl", "{\"a\":1}\n\n{", "line 3 is not JSON"),
            ("json", "[]", "must end in"),
            ("t.json5", "[]", "must end in"),
        ];
        for (file, text, expected) in table {
            let error = parse(file, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{file}: {error}");
        }
        assert_eq!(parse(" t.csv ", "a\n1\n").unwrap().rows, [[json!(1)]]);
    }
}
