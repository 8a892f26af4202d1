//! A page of plots: style, script and data in a single file.

use serde_json::Value;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const PAGES: [(&str, &str, &str); 4] = [
    ("summary", "index.html", "Summary"),
    ("timeline", "timeline.html", "Time line"),
    ("jobs", "jobs.html", "Jobs"),
    ("nodes", "nodes.html", "Nodes"),
];

/// Renders the page of this kind with the data that its script draws.
pub fn render(kind: &str, title: &str, data: &Value) -> String {
    let links: Vec<String> = PAGES
        .iter()
        .map(|(page, file, name)| {
            let current = if *page == kind { " aria-current=\"page\"" } else { "" };
            format!("<a href=\"{file}\"{current}>{name}</a>")
        })
        .collect();
    let title = text(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body data-page=\"{kind}\">\n\
         <header><h1>{title}</h1><nav>{}</nav></header>\n<main id=\"main\"></main>\n<div id=\"tip\" hidden></div>\n\
         <script id=\"data\" type=\"application/json\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        links.join(""),
        embedded(data),
    )
}

/// Encodes JSON so that nothing in it can end the script element.
fn embedded(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c")
}

fn text(raw: &str) -> String {
    raw.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
