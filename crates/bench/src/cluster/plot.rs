//! A plot as SVG, readable on light and dark ground: small panels of one kind, each with a line for each staleness.

use crate::svg::{STYLE, class, escaped};
use std::fmt::Write as _;

/// A panel: points of each line in per cent, from 0 on the horizontal axis.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) lines: Vec<Vec<f64>>,
}

const WIDTH: f64 = 250.0;
const HEIGHT: f64 = 170.0;
/// Between panels, with the numbers of the axes.
const GAP: f64 = 56.0;
const TOP: f64 = 74.0;

/// Draws panels in rows of `columns`. `names` are those of the lines, `across` is that of the horizontal axis.
pub(super) fn draw(
    title: &str,
    across: &str,
    names: &[String],
    columns: usize,
    panels: &[Panel],
) -> String {
    let columns = columns.clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns);
    let width = GAP + columns as f64 * (WIDTH + GAP);
    let height = TOP + rows as f64 * (HEIGHT + GAP) + 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n",
        escaped(title)
    );
    let mut text = |x: f64, y: f64, rest: &str, content: &str| {
        let content = escaped(content);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{rest}>{content}</text>"
        );
    };
    text(GAP, 24.0, " class=\"h\"", title);
    for (at, name) in names.iter().enumerate() {
        text(GAP + 34.0 + at as f64 * 120.0, 46.0, "", name);
    }
    text(GAP, height - 8.0, " class=\"s\"", across);
    for (at, panel) in panels.iter().enumerate() {
        let (x, y) = place(at, columns);
        text(x, y - 8.0, "", &panel.title);
        for part in [0.0, 25.0, 50.0, 75.0, 100.0] {
            let at = y + HEIGHT * (1.0 - part / 100.0);
            let label = format!("{part} %");
            text(
                x - 6.0,
                at + 4.0,
                " class=\"s\" text-anchor=\"end\"",
                &label,
            );
        }
        let count = panel.lines.iter().map(Vec::len).max().unwrap_or(0);
        for value in 0..count {
            let at = x + WIDTH * value as f64 / (count.max(2) - 1) as f64;
            let rest = " class=\"s\" text-anchor=\"middle\"";
            text(at, y + HEIGHT + 16.0, rest, &value.to_string());
        }
    }
    for at in 0..names.len() {
        let x = GAP + at as f64 * 120.0;
        let _ = writeln!(out, "<path class=\"l {}\" d=\"M{x:.1} 42h28\"/>", class(at));
    }
    for (at, panel) in panels.iter().enumerate() {
        let (x, y) = place(at, columns);
        for part in 0..=4 {
            let at = y + HEIGHT * f64::from(part) / 4.0;
            let kind = if part == 4 { "a" } else { "g" };
            let _ = writeln!(
                out,
                "<path class=\"{kind}\" d=\"M{x:.1} {at:.1}h{WIDTH}\"/>"
            );
        }
        for (number, line) in panel.lines.iter().enumerate() {
            let step = WIDTH / (line.len().max(2) - 1) as f64;
            let points = line.iter().enumerate().map(|(at, value)| {
                let (x, y) = (x + step * at as f64, y + HEIGHT * (1.0 - value / 100.0));
                format!("{x:.1},{y:.1}")
            });
            let points = points.collect::<Vec<_>>().join(" ");
            let class = class(number);
            let _ = writeln!(out, "<polyline class=\"l {class}\" points=\"{points}\"/>");
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Upper left corner of a panel's axes.
fn place(at: usize, columns: usize) -> (f64, f64) {
    let (column, row) = ((at % columns) as f64, (at / columns) as f64);
    (
        GAP + column * (WIDTH + GAP),
        TOP + 14.0 + row * (HEIGHT + GAP),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_each_line_with_each_point_in_both_colour_schemes() {
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            lines: vec![vec![100.0, 50.0, 0.0], vec![100.0, 75.0, 25.0]],
        };
        let names = ["1 block".to_owned(), "2 < 3 blocks".to_owned()];
        let plot = draw("a & b", "level", &names, 2, &[panel("one"), panel("two")]);
        assert_eq!(plot.matches("<polyline").count(), 4);
        assert_eq!(plot.matches("2 &lt; 3 blocks").count(), 1);
        assert!(plot.contains("a &amp; b") && plot.contains("prefers-color-scheme:dark"));
        let points = plot.split("points=\"").nth(1).unwrap();
        assert_eq!(points.split('"').next().unwrap().split(' ').count(), 3);
    }
}
