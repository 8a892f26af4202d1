//! Tables without borders, as kubectl prints them.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use jiff::Timestamp;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// Only in wide tables.
    pub wide: bool,
}

impl Column {
    /// A column of every table.
    pub const fn always(name: &'static str) -> Self {
        Self { name, wide: false }
    }

    /// A column of wide tables.
    pub const fn wide(name: &'static str) -> Self {
        Self { name, wide: true }
    }
}

/// How a cell looks on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// As it comes.
    #[default]
    Plain,
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// In motion.
    Active,
    /// Of little interest.
    Faint,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCell {
    text: String,
    paint: Paint,
}

impl TableCell {
    /// A cell with a colour.
    pub fn painted(text: impl Into<String>, paint: Paint) -> Self {
        Self { text: text.into(), paint }
    }
}

impl<T: ToString> From<T> for TableCell {
    fn from(value: T) -> Self {
        Self::painted(value.to_string(), Paint::Plain)
    }
}

/// Something that is a row of a table.
pub trait Tabular {
    /// The columns.
    const COLUMNS: &'static [Column];

    /// One cell a column.
    fn cells(&self, now: Timestamp) -> Vec<TableCell>;
}

/// The table as text, coloured; whoever prints it takes the colours out where they do not belong.
pub fn render<T: Tabular>(items: &[T], wide: bool, now: Timestamp, header: bool) -> String {
    if items.is_empty() {
        return if header { "nothing found\n".to_owned() } else { String::new() };
    }
    let shown: Vec<bool> = T::COLUMNS.iter().map(|column| wide || !column.wide).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).enforce_styling();
    table.style_text_only();
    if header {
        table.set_header(T::COLUMNS.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(column, _)| column.name));
    }
    for item in items {
        let cells = item.cells(now);
        debug_assert_eq!(cells.len(), T::COLUMNS.len());
        table.add_row(cells.into_iter().zip(&shown).filter(|(_, shown)| **shown).map(|(cell, _)| paint(cell)));
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

fn paint(cell: TableCell) -> Cell {
    // A line end inside a cell would tear the table.
    let text = if cell.text.is_empty() { "-".to_owned() } else { cell.text.replace(['\n', '\r', '\t'], " ") };
    let drawn = Cell::new(text);
    match cell.paint {
        Paint::Plain => drawn,
        Paint::Good => drawn.fg(Color::Green),
        Paint::Bad => drawn.fg(Color::Red),
        Paint::Active => drawn.fg(Color::Cyan),
        Paint::Faint => drawn.fg(Color::DarkGrey),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pet(&'static str, i64, &'static str);

    impl Tabular for Pet {
        const COLUMNS: &'static [Column] = &[Column::always("NAME"), Column::wide("AGE"), Column::always("NOTE")];

        fn cells(&self, _: Timestamp) -> Vec<TableCell> {
            vec![self.0.into(), self.1.into(), TableCell::painted(self.2, Paint::Good)]
        }
    }

    fn plain(items: &[Pet], wide: bool, header: bool) -> String {
        anstream::adapter::strip_str(&render(items, wide, Timestamp::UNIX_EPOCH, header)).to_string()
    }

    #[test]
    fn columns_line_up_and_wide_ones_are_left_out() {
        let pets = [Pet("cat", 3, "soft"), Pet("crocodile", 12, "")];
        assert_eq!(plain(&pets, false, true), "NAME        NOTE\ncat         soft\ncrocodile   -\n");
        assert_eq!(plain(&pets, true, true), "NAME        AGE   NOTE\ncat         3     soft\ncrocodile   12    -\n");
        assert_eq!(plain(&pets[..1], false, false), "cat   soft\n");
        assert_eq!(plain(&[], false, true), "nothing found\n");
    }

    #[test]
    fn a_cell_stays_on_its_line() {
        assert_eq!(plain(&[Pet("a\nb", 1, "c")], false, false), "a b   c\n");
    }
}
