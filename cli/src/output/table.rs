//! Tables without borders, as kubectl prints them.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use jiff::Timestamp;

use super::human;

/// A column of a table of `T`.
#[derive(Debug)]
pub struct Column<T: 'static> {
    /// The header of the column.
    pub name: &'static str,
    /// True if only wide tables have the column.
    pub wide: bool,
    cell: fn(&T, Timestamp) -> TableCell,
}

impl<T> Column<T> {
    /// Creates a column of every table.
    pub const fn always(name: &'static str, cell: fn(&T, Timestamp) -> TableCell) -> Self {
        Self { name, wide: false, cell }
    }

    /// Creates a column of wide tables.
    pub const fn wide(name: &'static str, cell: fn(&T, Timestamp) -> TableCell) -> Self {
        Self { name, wide: true, cell }
    }
}

/// The style of a cell on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellStyle {
    #[default]
    Plain,
    Good,
    Bad,
    Active,
    Faint,
}

/// The text and the style of a table cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCell {
    text: String,
    style: CellStyle,
}

impl TableCell {
    /// Creates a cell with a style.
    pub fn styled(text: impl Into<String>, style: CellStyle) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: ToString> From<T> for TableCell {
    fn from(value: T) -> Self {
        Self::styled(value.to_string(), CellStyle::Plain)
    }
}

/// Creates the cell of an optional value.
pub fn text<T: ToString>(value: &Option<T>) -> TableCell {
    value.as_ref().map(ToString::to_string).unwrap_or_default().into()
}

/// Creates the cell of an optional number of bytes.
pub fn bytes(amount: Option<i64>) -> TableCell {
    amount.map_or(String::new(), human::bytes).into()
}

/// Creates the cell of the time since an optional moment.
pub fn ago(time: &Option<String>, now: Timestamp) -> TableCell {
    time.as_deref().map_or(String::new(), |time| human::age(time, now)).into()
}

/// A type that is a row of a table.
pub trait Tabular: Sized + 'static {
    const COLUMNS: &'static [Column<Self>];
}

/// A type that a row of a table shows.
pub trait AsRow {
    type Item: Tabular;
    /// The name of a column that comes first, also in narrow tables.
    const FIRST: Option<&'static str> = None;

    fn row(&self) -> &Self::Item;
}

impl<T: Tabular> AsRow for T {
    type Item = T;

    fn row(&self) -> &T {
        self
    }
}

/// Returns the columns of a table in order.
fn columns<T: AsRow>(wide: bool) -> Vec<&'static Column<T::Item>> {
    let is_first = |column: &Column<T::Item>| Some(column.name) == T::FIRST;
    let all = || T::Item::COLUMNS.iter();
    all()
        .filter(|column| is_first(column))
        .chain(all().filter(|column| !is_first(column) && (wide || !column.wide)))
        .collect()
}

/// Widths of printed columns, to align later rows with them.
pub type Widths = Vec<usize>;

/// Formats a table as text with colors. The writer removes the colors if the output is not a terminal.
pub fn render<T: AsRow>(items: &[T], wide: bool, now: Timestamp, header: bool, widths: &mut Widths) -> String {
    let columns = columns::<T>(wide);
    let heading = || columns.iter().map(|column| column.name.into()).collect();
    let cells = |item: &T| columns.iter().map(|column| single_line((column.cell)(item.row(), now))).collect();
    let rows: Vec<Vec<TableCell>> = header.then(heading).into_iter().chain(items.iter().map(cells)).collect();
    for row in &rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).enforce_styling();
    table.style_text_only();
    for row in rows {
        table.add_row(row.into_iter().zip(&*widths).map(|(cell, width)| style(cell, *width)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Replaces line ends, which would break the table, and marks empty cells with `-`.
fn single_line(mut cell: TableCell) -> TableCell {
    cell.text = if cell.text.is_empty() { "-".to_owned() } else { cell.text.replace(['\n', '\r', '\t'], " ") };
    cell
}

fn style(cell: TableCell, width: usize) -> Cell {
    let text = format!("{:<width$}", cell.text);
    let drawn = Cell::new(text);
    match cell.style {
        CellStyle::Plain => drawn,
        CellStyle::Good => drawn.fg(Color::Green),
        CellStyle::Bad => drawn.fg(Color::Red),
        CellStyle::Active => drawn.fg(Color::Cyan),
        CellStyle::Faint => drawn.fg(Color::DarkGrey),
    }
}

/// Describes a row as `COLUMN=text` with a sign for each style, and wide columns in brackets.
#[cfg(test)]
pub fn described<T: AsRow>(item: &T, now: Timestamp) -> Vec<String> {
    let sign = |style: CellStyle| match style {
        CellStyle::Plain => "",
        CellStyle::Good => "+",
        CellStyle::Bad => "-",
        CellStyle::Active => "~",
        CellStyle::Faint => ".",
    };
    let describe = |column: &Column<T::Item>| {
        let cell = (column.cell)(item.row(), now);
        let text = format!("{}={}{}", column.name, sign(cell.style), cell.text);
        if column.wide && Some(column.name) != T::FIRST { format!("[{text}]") } else { text }
    };
    columns::<T>(true).into_iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pet(&'static str, i64, &'static str);

    impl Tabular for Pet {
        const COLUMNS: &'static [Column<Self>] = &[
            Column::always("NAME", |pet, _| pet.0.into()),
            Column::wide("AGE", |pet, _| pet.1.into()),
            Column::always("NOTE", |pet, _| TableCell::styled(pet.2, CellStyle::Good)),
        ];
    }

    fn plain(items: &[Pet], wide: bool, header: bool) -> String {
        lines(&render(items, wide, Timestamp::UNIX_EPOCH, header, &mut Widths::new()))
    }

    fn lines(text: &str) -> String {
        let plain = anstream::adapter::strip_str(text).to_string();
        plain.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    #[test]
    fn columns_are_aligned_and_wide_ones_are_omitted() {
        let pets = [Pet("cat", 3, "soft"), Pet("crocodile", 12, "")];
        assert_eq!(plain(&pets, false, true), "NAME        NOTE\ncat         soft\ncrocodile   -\n");
        assert_eq!(plain(&pets, true, true), "NAME        AGE   NOTE\ncat         3     soft\ncrocodile   12    -\n");
        assert_eq!(plain(&pets[..1], false, false), "cat   soft\n");
        assert_eq!(plain(&[], false, true), "NAME   NOTE\n");
    }

    #[test]
    fn later_rows_are_aligned_with_earlier_ones() {
        let mut widths = Widths::new();
        render(&[Pet("crocodile", 12, "big")], false, Timestamp::UNIX_EPOCH, true, &mut widths);
        let later = render(&[Pet("cat", 3, "soft")], false, Timestamp::UNIX_EPOCH, false, &mut widths);
        assert_eq!(lines(&later), "cat         soft\n");
    }

    #[test]
    fn a_cell_has_one_line() {
        assert_eq!(plain(&[Pet("a\nb", 1, "c")], false, false), "a b   c\n");
    }
}
