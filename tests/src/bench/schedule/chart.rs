//! A bar chart of makespans as SVG.

use std::fmt::Write;

use super::results::{Goals, ShapeResult};

const ROW_HEIGHT: usize = 18;
const LABEL_WIDTH: usize = 130;
const BAR_WIDTH: usize = 420;
const TOP: usize = 24;
/// The left end of the bars: a ratio below it is rare and drawn as an empty bar.
const SMALLEST: f64 = 0.9;

/// Returns a bar for the median of each shape, a tick for its worst seed, and a line for the goal.
pub fn svg(results: &[ShapeResult]) -> String {
    let largest = results.iter().map(ShapeResult::worst_ratio).fold(1.1, f64::max);
    let scale = |ratio: f64| (ratio.max(SMALLEST) - SMALLEST) / (largest - SMALLEST) * BAR_WIDTH as f64;
    let height = TOP + results.len() * ROW_HEIGHT + 8;
    let width = LABEL_WIDTH + BAR_WIDTH + 60;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n"
    );
    for (row, result) in results.iter().enumerate() {
        let y = TOP + row * ROW_HEIGHT;
        let (median, worst) = (scale(result.ratio()), scale(result.worst_ratio()));
        let is_met = result.worst_ratio() <= Goals::default().ratio;
        let color = if is_met { "#4a90a4" } else { "#c0504d" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{median:.1}\" height=\"12\" fill=\"{color}\"/>\
             <rect x=\"{:.1}\" y=\"{y}\" width=\"2\" height=\"12\" fill=\"#333\"/>\
             <text x=\"{:.1}\" y=\"{}\">{:.3}</text>",
            LABEL_WIDTH - 6,
            y + 10,
            result.shape.name,
            LABEL_WIDTH as f64 + worst,
            LABEL_WIDTH as f64 + worst + 6.0,
            y + 10,
            result.worst_ratio(),
        );
    }
    for (ratio, color) in [(1.0, "#888"), (Goals::default().ratio, "#c0504d")] {
        let x = LABEL_WIDTH as f64 + scale(ratio);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{height}\" stroke=\"{color}\"/>\
             <text x=\"{x:.1}\" y=\"14\" text-anchor=\"middle\">{ratio}</text>",
            TOP - 6,
        );
    }
    text.push_str("</svg>\n");
    text
}
