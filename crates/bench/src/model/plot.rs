//! A plot of panels with logarithmic axes, as SVG.

use crate::svg::{STYLE, class, escaped};
use std::fmt::Write as _;

pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A panel: lines and single points, all coordinates greater than zero.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
    pub(super) measured: Vec<(f64, f64)>,
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 190.0;
/// Between panels, with the numbers of the axes.
const GAP: f64 = 64.0;
const TOP: f64 = 74.0;

/// A logarithmic axis of whole decades.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        let (low, high) = match low.is_finite() {
            true => (low.floor(), high.ceil()),
            false => (0.0, 1.0),
        };
        Self {
            low,
            high: high.max(low + 1.0),
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let log = value.max(f64::MIN_POSITIVE).log10();
        ((log - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn decades(self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{} G", value / 1e9),
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e3 => format!("{} k", value / 1e3),
        value => format!("{value}"),
    }
}

/// Draws panels in rows of `columns`. `across` tells what the horizontal axis is.
pub(super) fn draw(title: &str, across: &str, columns: usize, panels: &[Panel]) -> String {
    let columns = columns.clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns);
    let width = GAP + columns as f64 * (WIDTH + GAP);
    let height = TOP + rows as f64 * (HEIGHT + GAP) + 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}.p{{fill:#222}}@media(prefers-color-scheme:dark){{.p{{fill:#e6e6e6}}}}</style>\n\
         <rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n",
        escaped(title)
    );
    let text = |out: &mut String, x: f64, y: f64, rest: &str, content: &str| {
        let content = escaped(content);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{rest}>{content}</text>"
        );
    };
    text(&mut out, GAP, 24.0, " class=\"h\"", title);
    let names = panels.first().into_iter().flat_map(|panel| &panel.lines);
    for (at, line) in names.enumerate() {
        let x = GAP + at as f64 * 178.0;
        let _ = writeln!(out, "<path class=\"l {}\" d=\"M{x:.1} 42h28\"/>", class(at));
        text(&mut out, x + 34.0, 46.0, "", &line.name);
    }
    text(&mut out, GAP, height - 8.0, " class=\"s\"", across);
    for (at, panel) in panels.iter().enumerate() {
        let (column, row) = ((at % columns) as f64, (at / columns) as f64);
        let x = GAP + column * (WIDTH + GAP);
        let y = TOP + 14.0 + row * (HEIGHT + GAP);
        text(&mut out, x, y - 8.0, "", &panel.title);
        let points = || {
            let lines = panel.lines.iter().flat_map(|line| &line.points);
            lines.chain(&panel.measured)
        };
        let across = Axis::of(points().map(|point| point.0));
        let up = Axis::of(points().map(|point| point.1));
        for value in up.decades() {
            let at = y + HEIGHT * (1.0 - up.place(value));
            let kind = if value == 10f64.powf(up.low) {
                "a"
            } else {
                "g"
            };
            let _ = writeln!(
                out,
                "<path class=\"{kind}\" d=\"M{x:.1} {at:.1}h{WIDTH}\"/>"
            );
            let rest = " class=\"s\" text-anchor=\"end\"";
            text(&mut out, x - 6.0, at + 4.0, rest, &label(value));
        }
        for value in across.decades() {
            let at = x + WIDTH * across.place(value);
            let rest = " class=\"s\" text-anchor=\"middle\"";
            text(&mut out, at, y + HEIGHT + 16.0, rest, &label(value));
        }
        let place = |point: &(f64, f64)| {
            let right = x + WIDTH * across.place(point.0);
            (right, y + HEIGHT * (1.0 - up.place(point.1)))
        };
        for (number, line) in panel.lines.iter().enumerate() {
            let points = line.points.iter().map(|point| {
                let (x, y) = place(point);
                format!("{x:.1},{y:.1}")
            });
            let points = points.collect::<Vec<_>>().join(" ");
            let class = class(number);
            let _ = writeln!(out, "<polyline class=\"l {class}\" points=\"{points}\"/>");
        }
        for point in &panel.measured {
            let (x, y) = place(point);
            let _ = writeln!(
                out,
                "<circle class=\"p\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_and_point_is_drawn_within_its_panel() {
        let panel = Panel {
            title: "a < b".to_owned(),
            lines: vec![Line {
                name: "one".to_owned(),
                points: vec![(1e6, 20.0), (1e9, 3_000.0)],
            }],
            measured: vec![(1e7, 100.0)],
        };
        let plot = draw("title", "keys", 2, &[panel]);
        assert_eq!(plot.matches("<polyline").count(), 1);
        assert_eq!(plot.matches("<circle").count(), 1);
        assert!(plot.contains("a &lt; b") && plot.contains("prefers-color-scheme:dark"));
        // From 10 to 10,000 a decade is a third of the height: 100 is at two thirds.
        let at = format!("cy=\"{:.1}\"", TOP + 14.0 + HEIGHT * 2.0 / 3.0);
        assert!(plot.contains(&at), "{at} in {plot}");
    }
}
