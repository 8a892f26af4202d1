//! Computes the rows over which a job, file or value is repeated.

use std::collections::BTreeMap;

use serde_json::Value;
use torc_api::parameters::{ParameterMode, ParameterTable, Parameterization};

use super::value::{self, Scalar, ValueError};

/// Parameters and their combination. Rows are computed on demand and never stored.
#[derive(Debug)]
pub struct ParameterSpace {
    names: Vec<String>,
    columns: Vec<Vec<Option<Scalar>>>,
    /// The number of rows after which a column takes its next value; empty if all columns advance together.
    strides: Vec<usize>,
    rows: usize,
}

/// The parameters that a document shares with its entries.
#[derive(Clone, Copy, Debug)]
pub struct SharedParameters<'a> {
    pub parameters: &'a BTreeMap<String, Value>,
    pub has_table: bool,
    pub table: Option<&'a ParameterTable>,
    /// The largest number of rows of a family.
    pub most: usize,
}

/// The reason why an entry has no rows.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FamilyError {
    #[error("a table cannot be combined with `parameters`, `parameterMode` or `useParameters`")]
    TableAndInline,
    #[error("use either its own table or the workflow's, not both")]
    TwoTables,
    #[error("the workflow has no `parametersFile` to use")]
    NoSharedTable,
    #[error("the table `{0}` has not been read into the document")]
    TableNotRead(String),
    #[error("the table has no rows")]
    EmptyTable,
    #[error("row {row} of the table has {found} cells for {columns} columns")]
    RaggedTable { row: usize, found: usize, columns: usize },
    #[error("parameter `{name}`: {error}")]
    Value { name: String, error: ValueError },
    #[error(
        "zip needs lists of equal length, but `{first}` has {first_length} values and `{other}` has {other_length}"
    )]
    UnequalLengths { first: String, first_length: usize, other: String, other_length: usize },
    #[error("the product of the parameters has more than {0} combinations, which is the limit")]
    TooMany(usize),
}

impl FamilyError {
    /// Returns the field of the entry that has the problem.
    pub fn field(&self) -> String {
        match self {
            Self::TableAndInline | Self::TwoTables | Self::TableNotRead(_) => "parametersFile".to_owned(),
            Self::NoSharedTable => "useParametersFile".to_owned(),
            Self::EmptyTable | Self::RaggedTable { .. } => "parameterTable".to_owned(),
            Self::Value { name, .. } => format!("parameters.{name}"),
            Self::UnequalLengths { .. } => "parameterMode".to_owned(),
            Self::TooMany(_) => "parameters".to_owned(),
        }
    }
}

impl ParameterSpace {
    /// Creates a space without parameters, which has one row.
    pub fn single() -> Self {
        Self { names: Vec::new(), columns: Vec::new(), strides: Vec::new(), rows: 1 }
    }

    /// Creates a space without rows.
    pub fn empty() -> Self {
        Self { rows: 0, ..Self::single() }
    }

    /// Creates the space of an entry's parameters.
    pub fn of(entry: &Parameterization, shared: &SharedParameters<'_>) -> Result<Self, FamilyError> {
        let opts_in = entry.use_parameters_file == Some(true);
        let has_own_table = entry.parameters_file.is_some() || entry.parameter_table.is_some();
        if !opts_in && !has_own_table {
            return Self::inline(entry, shared);
        }
        let is_inline =
            !entry.parameters.is_empty() || entry.parameter_mode.is_some() || entry.use_parameters.is_some();
        if is_inline {
            return Err(FamilyError::TableAndInline);
        }
        if opts_in && has_own_table {
            return Err(FamilyError::TwoTables);
        }
        if opts_in && !shared.has_table {
            return Err(FamilyError::NoSharedTable);
        }
        let table = if opts_in { shared.table } else { entry.parameter_table.as_ref() };
        let file = || entry.parameters_file.clone().unwrap_or_default();
        Self::of_table(table.ok_or_else(|| FamilyError::TableNotRead(file()))?, shared.most)
    }

    fn inline(entry: &Parameterization, shared: &SharedParameters<'_>) -> Result<Self, FamilyError> {
        let mut chosen: Vec<(&String, &Value)> = if entry.parameters.is_empty() {
            let picked = entry.use_parameters.iter().flatten();
            picked.filter_map(|name| shared.parameters.get_key_value(name)).collect()
        } else {
            entry.parameters.iter().collect()
        };
        chosen.sort_by_key(|(name, _)| *name);
        chosen.dedup_by_key(|(name, _)| *name);
        let mut columns = Vec::with_capacity(chosen.len());
        for (name, written) in chosen {
            let values =
                value::parse(written, shared.most).map_err(|error| FamilyError::Value { name: name.clone(), error })?;
            columns.push((name.clone(), values));
        }
        match entry.parameter_mode.unwrap_or_default() {
            ParameterMode::Zip => Self::zip(columns),
            ParameterMode::Product => Self::product(columns, shared.most),
        }
    }

    /// Combines the n-th values of all columns.
    pub fn zip(columns: Vec<(String, Vec<Scalar>)>) -> Result<Self, FamilyError> {
        let Some((first, first_values)) = columns.first() else { return Ok(Self::single()) };
        let rows = first_values.len();
        if let Some((other, values)) = columns.iter().find(|(_, values)| values.len() != rows) {
            return Err(FamilyError::UnequalLengths {
                first: first.clone(),
                first_length: rows,
                other: other.clone(),
                other_length: values.len(),
            });
        }
        let (names, columns) = unzip(columns);
        Ok(Self { names, columns, strides: Vec::new(), rows })
    }

    /// Combines every value of each column with every value of the others; the last column varies fastest.
    pub fn product(columns: Vec<(String, Vec<Scalar>)>, most: usize) -> Result<Self, FamilyError> {
        if columns.is_empty() {
            return Ok(Self::single());
        }
        let mut strides = vec![1; columns.len()];
        let mut rows: usize = 1;
        for (stride, (_, values)) in strides.iter_mut().zip(&columns).rev() {
            *stride = rows.max(1);
            rows = rows.checked_mul(values.len()).filter(|&n| n <= most).ok_or(FamilyError::TooMany(most))?;
        }
        let (names, columns) = unzip(columns);
        Ok(Self { names, columns, strides, rows })
    }

    fn of_table(table: &ParameterTable, most: usize) -> Result<Self, FamilyError> {
        if table.rows.is_empty() {
            return Err(FamilyError::EmptyTable);
        }
        if table.rows.len() > most {
            return Err(FamilyError::TooMany(most));
        }
        let width = table.columns.len();
        if let Some((at, row)) = table.rows.iter().enumerate().find(|(_, row)| row.len() != width) {
            return Err(FamilyError::RaggedTable { row: at + 1, found: row.len(), columns: width });
        }
        let cell = |value: &Value| (!value.is_null()).then(|| Scalar::of_json(value));
        let column = |at: usize| table.rows.iter().map(|row| row.get(at).and_then(cell)).collect();
        Ok(Self {
            names: table.columns.clone(),
            columns: (0..width).map(column).collect(),
            strides: Vec::new(),
            rows: table.rows.len(),
        })
    }

    /// Returns the names of the parameters, in the order of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns a value of a row; none if the table has no value there.
    pub fn cell(&self, row: usize, column: usize) -> Option<&Scalar> {
        let values = self.columns.get(column)?;
        let at = match self.strides.get(column) {
            Some(stride) => row.checked_div(*stride)?.checked_rem(values.len())?,
            None => row,
        };
        values.get(at)?.as_ref()
    }
}

fn unzip(columns: Vec<(String, Vec<Scalar>)>) -> (Vec<String>, Vec<Vec<Option<Scalar>>>) {
    columns.into_iter().map(|(name, values)| (name, values.into_iter().map(Some).collect())).unzip()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn column(name: &str, values: i64) -> (String, Vec<Scalar>) {
        (name.to_owned(), (0..values).map(Scalar::Integer).collect())
    }

    fn row(family: &ParameterSpace, row: usize) -> Vec<i64> {
        let number = |column| match family.cell(row, column) {
            Some(Scalar::Integer(n)) => *n,
            other => panic!("not an integer: {other:?}"),
        };
        (0..family.names().len()).map(number).collect()
    }

    #[test]
    fn the_last_parameter_varies_fastest() {
        let family = ParameterSpace::product(vec![column("a", 2), column("b", 1), column("c", 3)], 100).unwrap();
        let rows: Vec<_> = (0..family.rows()).map(|n| row(&family, n)).collect();
        assert_eq!(rows, [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]]);
    }

    #[test]
    fn an_empty_list_makes_an_empty_family() {
        assert_eq!(ParameterSpace::product(vec![column("a", 2), column("b", 0)], 100).unwrap().rows(), 0);
        assert_eq!(ParameterSpace::product(vec![column("a", 0), column("b", 2)], 100).unwrap().rows(), 0);
        assert_eq!(ParameterSpace::zip(vec![column("a", 0)]).unwrap().rows(), 0);
        assert_eq!(ParameterSpace::zip(Vec::new()).unwrap().rows(), 1);
    }

    #[test]
    fn combinations_are_counted_before_they_are_made() {
        let columns = || (0..10).map(|n| column(&n.to_string(), 1_000)).collect::<Vec<_>>();
        assert!(matches!(ParameterSpace::product(columns(), 1_000_000), Err(FamilyError::TooMany(1_000_000))));
    }

    #[test]
    fn own_parameters_replace_shared_ones() {
        let pool = BTreeMap::from([("lr".to_owned(), json!([1, 2, 3])), ("bs".to_owned(), json!([1, 2]))]);
        let shared = SharedParameters { parameters: &pool, has_table: false, table: None, most: 100 };
        let pick = |names: &[&str]| Some(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        let own = BTreeMap::from([("lr".to_owned(), json!([9]))]);
        let table = [
            (Parameterization::default(), 1),
            (Parameterization { use_parameters: pick(&["lr"]), ..Default::default() }, 3),
            (Parameterization { use_parameters: pick(&["lr", "bs", "lr"]), ..Default::default() }, 6),
            (Parameterization { use_parameters: pick(&["typo"]), ..Default::default() }, 1),
            (Parameterization { use_parameters: pick(&["lr", "bs"]), parameters: own, ..Default::default() }, 1),
        ];
        for (entry, rows) in table {
            assert_eq!(ParameterSpace::of(&entry, &shared).unwrap().rows(), rows, "{entry:?}");
        }
    }

    #[test]
    fn one_source_of_rows_only() {
        let pool = BTreeMap::new();
        let empty = ParameterTable::default();
        let without = SharedParameters { parameters: &pool, has_table: false, table: None, most: 100 };
        let with = SharedParameters { has_table: true, table: Some(&empty), ..without };
        let file = Some("t.csv".to_owned());
        let base = Parameterization { parameters_file: file.clone(), ..Default::default() };
        let table = [
            (base.clone(), without, FamilyError::TableNotRead("t.csv".to_owned())),
            (
                Parameterization { parameter_mode: Some(ParameterMode::Zip), ..base.clone() },
                without,
                FamilyError::TableAndInline,
            ),
            (Parameterization { use_parameters_file: Some(true), ..base.clone() }, with, FamilyError::TwoTables),
            (
                Parameterization { use_parameters_file: Some(true), ..Default::default() },
                without,
                FamilyError::NoSharedTable,
            ),
            (Parameterization { use_parameters_file: Some(true), ..Default::default() }, with, FamilyError::EmptyTable),
        ];
        for (entry, shared, expected) in table {
            assert_eq!(ParameterSpace::of(&entry, &shared).unwrap_err(), expected, "{entry:?}");
        }
    }

    fn of(entry: &Parameterization, most: usize) -> Result<ParameterSpace, FamilyError> {
        let pool = BTreeMap::new();
        ParameterSpace::of(entry, &SharedParameters { parameters: &pool, has_table: false, table: None, most })
    }

    fn with_table(columns: &[&str], rows: Vec<Vec<Value>>) -> Parameterization {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        Parameterization { parameter_table: Some(ParameterTable { columns, rows }), ..Default::default() }
    }

    #[test]
    fn a_table_excludes_every_inline_field() {
        let table = || with_table(&["a"], vec![vec![json!(1)]]);
        assert_eq!(of(&table(), 100).unwrap().rows(), 1);
        let inline = [
            Parameterization { parameters: BTreeMap::from([("a".to_owned(), json!(1))]), ..table() },
            Parameterization { parameter_mode: Some(ParameterMode::Product), ..table() },
            Parameterization { use_parameters: Some(Vec::new()), ..table() },
        ];
        for entry in inline {
            assert_eq!(of(&entry, 100).unwrap_err(), FamilyError::TableAndInline, "{entry:?}");
        }
        let opted_out = Parameterization { use_parameters_file: Some(false), ..table() };
        assert_eq!(of(&opted_out, 100).unwrap().rows(), 1, "false is as good as nothing");
    }

    #[test]
    fn tables_have_cells_for_all_columns_and_few_enough_rows() {
        let rows = |count: i64| (0..count).map(|n| vec![json!(n), json!(n + 10)]).collect::<Vec<_>>();
        for (count, expected) in [(2, Ok(2)), (3, Ok(3)), (4, Err(FamilyError::TooMany(3)))] {
            let found = of(&with_table(&["a", "b"], rows(count)), 3).map(|family| family.rows());
            assert_eq!(found, expected, "{count} rows");
        }
        let family = of(&with_table(&["a", "b"], rows(3)), 3).unwrap();
        assert_eq!((row(&family, 0), row(&family, 2)), (vec![0, 10], vec![2, 12]));
        let ragged = with_table(&["a", "b"], vec![vec![json!(1), json!(2)], vec![json!(3)]]);
        let expected = FamilyError::RaggedTable { row: 2, found: 1, columns: 2 };
        assert_eq!(of(&ragged, 100).unwrap_err(), expected);
        let gap = of(&with_table(&["a"], vec![vec![json!(null)], vec![json!("null")]]), 100).unwrap();
        assert_eq!((gap.cell(0, 0), gap.cell(1, 0)), (None, Some(&Scalar::Text("null".to_owned()))));
        assert_eq!((gap.cell(2, 0), gap.cell(0, 1)), (None, None), "beyond the end");
    }

    #[test]
    fn combinations_may_reach_the_limit() {
        for (values, expected) in [(2, Ok(4)), (3, Ok(6)), (4, Err(FamilyError::TooMany(7)))] {
            let found =
                ParameterSpace::product(vec![column("a", 2), column("b", values)], 7).map(|family| family.rows());
            assert_eq!(found, expected, "2 x {values}");
        }
        let unequal = ParameterSpace::zip(vec![column("a", 2), column("b", 2), column("c", 3)]).unwrap_err();
        let expected = FamilyError::UnequalLengths {
            first: "a".to_owned(),
            first_length: 2,
            other: "c".to_owned(),
            other_length: 3,
        };
        assert_eq!(unequal, expected);
    }

    #[test]
    fn every_error_names_its_field() {
        let name = || "n".to_owned();
        let cases = [
            (FamilyError::TableAndInline, "parametersFile"),
            (FamilyError::TwoTables, "parametersFile"),
            (FamilyError::TableNotRead(name()), "parametersFile"),
            (FamilyError::NoSharedTable, "useParametersFile"),
            (FamilyError::EmptyTable, "parameterTable"),
            (FamilyError::RaggedTable { row: 1, found: 2, columns: 3 }, "parameterTable"),
            (FamilyError::Value { name: name(), error: ValueError::Map }, "parameters.n"),
            (
                FamilyError::UnequalLengths { first: name(), first_length: 1, other: name(), other_length: 2 },
                "parameterMode",
            ),
            (FamilyError::TooMany(1), "parameters"),
        ];
        for (error, field) in cases {
            assert_eq!(error.field(), field, "{error}");
        }
    }
}
