//! The layout of a YAML text: which bytes each value takes, and whether it is in flow style (`{a: 1}`) or in block style.
//!
//! Programs that edit a text in place need it; [`super::parse`] only keeps where a value begins.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

/// A value of a YAML text and the bytes that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlNode {
    /// The first byte, with an anchor or a tag in front of it.
    pub start: usize,
    /// The end of the value, exclusive. For a list or a mapping in block style, it is where the next value begins.
    pub end: usize,
    /// The line of the first byte, counted from 1.
    pub line: usize,
    /// The column of the first byte, counted from 1.
    pub column: usize,
    /// The kind of value, with its parts.
    pub kind: YamlKind,
}

/// The parts of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YamlKind {
    /// A text, a number or nothing.
    Scalar,
    /// A reference (`*name`) to a value that is written elsewhere.
    Alias,
    /// A list; `is_flow` for `[a, b]`.
    List { is_flow: bool, items: Vec<YamlNode> },
    /// A mapping; merge keys (`<<`) are entries like others.
    Map { is_flow: bool, entries: Vec<YamlEntry> },
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlEntry {
    /// The text of the key, without quotes.
    pub key: String,
    /// The first byte of the key.
    pub start: usize,
    /// The column of the key, counted from 1.
    pub column: usize,
    /// The value that belongs to the key.
    pub node: YamlNode,
}

impl YamlNode {
    /// Returns the entries of a mapping; none for another value.
    pub fn entries(&self) -> &[YamlEntry] {
        match &self.kind {
            YamlKind::Map { entries, .. } => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list; none for another value.
    pub fn items(&self) -> &[YamlNode] {
        match &self.kind {
            YamlKind::List { items, .. } => items,
            _ => &[],
        }
    }

    /// Returns whether it is a list or a mapping in flow style.
    pub fn is_flow(&self) -> bool {
        matches!(self.kind, YamlKind::List { is_flow: true, .. } | YamlKind::Map { is_flow: true, .. })
    }
}

/// Returns the root value of every document of a text, up to the first error.
pub fn layout(text: &str) -> Vec<YamlNode> {
    let mut builder = LayoutBuilder { text, offsets: Offsets::new(text), open: Vec::new(), documents: Vec::new() };
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        builder.take(&event, span);
    }
    builder.documents
}

/// Converts character offsets of the parser to byte offsets in the text; none if the text is ASCII.
struct Offsets(Option<Vec<usize>>);

impl Offsets {
    fn new(text: &str) -> Self {
        let starts = || text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        Self((!text.is_ascii()).then(starts))
    }

    fn of(&self, marker: Marker) -> usize {
        match &self.0 {
            None => marker.index(),
            Some(starts) => starts.get(marker.index()).or(starts.last()).copied().unwrap_or_default(),
        }
    }
}

/// A list or mapping whose end has not been read.
struct OpenNode {
    node: YamlNode,
    /// The key whose value comes next.
    key: Option<YamlEntry>,
}

struct LayoutBuilder<'t> {
    text: &'t str,
    offsets: Offsets,
    open: Vec<OpenNode>,
    documents: Vec<YamlNode>,
}

impl LayoutBuilder<'_> {
    fn take(&mut self, event: &Event<'_>, span: Span) {
        match event {
            Event::Scalar(text, style, ..) => {
                let mut node = self.node(span, YamlKind::Scalar);
                node.end = self.end_of_scalar(&node, *style);
                self.add(node, Some(text));
            }
            Event::Alias(_) => {
                let node = self.node(span, YamlKind::Alias);
                self.add(node, None);
            }
            Event::SequenceStart(..) => self.begin(span, YamlKind::List { is_flow: false, items: Vec::new() }),
            Event::MappingStart(..) => self.begin(span, YamlKind::Map { is_flow: false, entries: Vec::new() }),
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            _ => {}
        }
    }

    fn node(&self, span: Span, kind: YamlKind) -> YamlNode {
        let (start, end) = (self.offsets.of(span.start), self.offsets.of(span.end));
        YamlNode { start, end, line: span.start.line(), column: span.start.col() + 1, kind }
    }

    fn begin(&mut self, span: Span, kind: YamlKind) {
        let node = self.node(span, kind);
        self.open.push(OpenNode { node, key: None });
    }

    fn end(&mut self, span: Span) {
        let Some(OpenNode { mut node, .. }) = self.open.pop() else { return };
        let at = self.offsets.of(span.start);
        // The end of a block takes no characters. The end of a flow is its bracket, and blanks after it do not belong
        // to it.
        let has_bracket = span.start.index() < span.end.index();
        node.end = if has_bracket { at + 1 } else { at };
        if let YamlKind::List { is_flow, .. } | YamlKind::Map { is_flow, .. } = &mut node.kind {
            *is_flow = has_bracket;
        }
        self.add(node, None);
    }

    fn add(&mut self, node: YamlNode, text: Option<&str>) {
        let Some(open) = self.open.last_mut() else { return self.documents.push(node) };
        match &mut open.node.kind {
            YamlKind::List { items, .. } => items.push(node),
            YamlKind::Map { entries, .. } => match open.key.take() {
                Some(entry) => entries.push(YamlEntry { node, ..entry }),
                None => {
                    let key = text.unwrap_or_default().to_owned();
                    open.key = Some(YamlEntry { key, start: node.start, column: node.column, node });
                }
            },
            YamlKind::Scalar | YamlKind::Alias => {}
        }
    }

    /// Returns where a text ends: the parser counts the blanks and the comment behind a quoted one.
    fn end_of_scalar(&self, node: &YamlNode, style: ScalarStyle) -> usize {
        let quote = match style {
            ScalarStyle::SingleQuoted => '\'',
            ScalarStyle::DoubleQuoted => '"',
            _ => return node.end,
        };
        let written = self.text.get(node.start..node.end).unwrap_or_default();
        let Some(opening) = written.find(quote) else { return node.end };
        let mut rest = written.char_indices().skip_while(|(at, _)| *at <= opening).peekable();
        while let Some((at, letter)) = rest.next() {
            let is_escape = if quote == '"' { letter == '\\' } else { letter == quote };
            if letter == quote && !(quote == '\'' && rest.peek().is_some_and(|(_, next)| *next == quote)) {
                return node.start + at + 1;
            }
            if is_escape {
                rest.next();
            }
        }
        node.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every scalar, alias and flow value of a text as it is written, depth first.
    fn written(text: &str) -> Vec<String> {
        fn visit(text: &str, node: &YamlNode, found: &mut Vec<String>) {
            let is_exact = node.is_flow() || matches!(node.kind, YamlKind::Scalar | YamlKind::Alias);
            if is_exact {
                found.push(text[node.start..node.end].to_owned());
            }
            node.items().iter().for_each(|item| visit(text, item, found));
            node.entries().iter().for_each(|entry| visit(text, &entry.node, found));
        }
        let mut found = Vec::new();
        layout(text).iter().for_each(|node| visit(text, node, &mut found));
        found
    }

    #[test]
    fn values_take_exactly_their_bytes() {
        for (text, expected) in [
            ("a: b  # c\n", &["b"][..]),
            ("a: \"b \\\" c\"  # d\n", &["\"b \\\" c\""]),
            ("a: 'it''s'  # d\n", &["'it''s'"]),
            ("- {a: ü, b: [1, 2 ]  }  # d\n- x\n", &["{a: ü, b: [1, 2 ]  }", "ü", "[1, 2 ]", "1", "2", "x"]),
            ("a: &x {b: c}\nd: *x\n", &["&x {b: c}", "c", "*x"]),
            ("{a: {}}\n---\nb: 1\n", &["{a: {}}", "{}", "1"]),
            ("a: [\n  b, # c\n]\nd: 'ä'\n", &["[\n  b, # c\n]", "b", "'ä'"]),
        ] {
            assert_eq!(written(text), expected, "{text}");
        }
    }

    #[test]
    fn keys_have_their_place_and_blocks_are_no_flows() {
        let documents = layout("# top\nspec:\n  jobs:\n  - name: a\n  - {name: b}\n");
        let spec = &documents[0].entries()[0];
        assert_eq!((spec.key.as_str(), spec.start, spec.column), ("spec", 6, 1));
        let jobs = &spec.node.entries()[0];
        assert_eq!((jobs.key.as_str(), jobs.start, jobs.column), ("jobs", 14, 3));
        let flows: Vec<bool> = jobs.node.items().iter().map(YamlNode::is_flow).collect();
        assert_eq!((spec.node.is_flow(), jobs.node.is_flow(), flows), (false, false, vec![false, true]));
        assert_eq!((jobs.node.items()[1].line, jobs.node.items()[1].column), (5, 5));
    }

    #[test]
    fn an_error_ends_the_layout_without_a_panic() {
        assert!(layout("a: [b\n").is_empty());
        assert!(layout("").is_empty());
    }
}
