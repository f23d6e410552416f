//! The plot: an SVG image with a horizontal bar for each program, on a logarithmic axis.
//!
//! Own code, because plot crates set fixed colors: this image follows the reader's light or dark theme.

use crate::report::{Program, Report, Row, Unit};
use anyhow::Context;

/// Sizes in pixels.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 22.0;
const CHART_TITLE: f64 = 34.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 52.0;

const STYLE: &str = "\
    .back{fill:#fff}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:18px;font-weight:600}\
    .chart{font-weight:600}.small{font-size:11px;fill:#59636e}.grid{stroke:#d1d9e0}.bar{fill:#8c959f}\
    .ours{fill:#1a7f5a}.p99{stroke:#1f2328}\
    @media(prefers-color-scheme:dark){.back{fill:#0d1117}text{fill:#e6edf3}.small{fill:#9198a1}\
    .grid{stroke:#30363d}.bar{fill:#656c76}.ours{fill:#3fb98a}.p99{stroke:#e6edf3}}";

/// One bar.
struct Bar<'a> {
    chart: &'a str,
    program: &'a Program,
    row: &'a Row,
}

/// A logarithmic axis of whole decades, in seconds.
struct Axis {
    first: i32,
    last: i32,
}

impl Axis {
    /// Returns the axis that contains all values of `bars`, none of which is zero.
    fn of(bars: &[Bar<'_>]) -> Self {
        let least = bars.iter().map(|bar| bar.row.samples.median()).fold(f64::INFINITY, f64::min);
        let most = bars.iter().map(|bar| bar.row.worst()).fold(0.0, f64::max);
        #[expect(clippy::cast_possible_truncation, reason = "a decade is a small number")]
        let decade = |value: f64| value as i32;
        let first = decade(least.max(1e-9).log10().floor());
        Self { first, last: decade(most.max(1e-9).log10().ceil()).max(first + 1) }
    }

    /// Returns the horizontal position of a time.
    fn x(&self, seconds: f64) -> f64 {
        let decades = f64::from(self.last - self.first);
        let part = (seconds.max(1e-9).log10() - f64::from(self.first)) / decades;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// Returns the plot of the rows that have a chart.
///
/// # Errors
/// No row has a chart.
pub(crate) fn svg(report: &Report) -> anyhow::Result<String> {
    let bars: Vec<Bar<'_>> = report
        .rows
        .iter()
        .filter(|row| row.unit == Unit::Seconds)
        .filter_map(|row| {
            Some(Bar { chart: row.chart.as_deref()?, program: row.program.as_ref()?, row })
        })
        .collect();
    bars.first().context("nothing to plot: measure the groups sandboxes or clients")?;
    let axis = Axis::of(&bars);

    let mut body = String::new();
    let (mut y, mut chart) = (TOP, "");
    for bar in &bars {
        if bar.chart != chart {
            chart = bar.chart;
            y += CHART_TITLE;
            body.push_str(&text("chart", 16.0, y - 8.0, "start", chart));
        }
        body.push_str(&draw(bar, &axis, y));
        y += BAR;
    }
    let height = y + BOTTOM;
    let mut image = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>Benchmarks of quackd</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
    );
    image.push_str(&text("title", 16.0, 30.0, "start", "Time from request to result"));
    image.push_str(&text("small", 16.0, 50.0, "start", &report.machine_line()));
    let load = report.load_line().unwrap_or_default();
    image.push_str(&text("small", 16.0, 68.0, "start", &load));
    let legend = "Bar: median. Line: 99th percentile. Logarithmic axis in ms; shorter is better.";
    image.push_str(&text("small", 16.0, 86.0, "start", legend));
    image.push_str(&grid(&axis, y));
    image.push_str(&body);
    image.push_str("</svg>\n");
    Ok(image)
}

/// Returns the vertical lines of the axis, with their times in milliseconds.
fn grid(axis: &Axis, bottom: f64) -> String {
    let mut lines = String::new();
    for decade in axis.first..=axis.last {
        let seconds = 10f64.powi(decade);
        let (x, end) = (axis.x(seconds), bottom + 8.0);
        lines.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{end:.1}\"/>\n",
            TOP + 8.0
        ));
        let label = format!("{} ms", 10f64.powi(decade + 3));
        lines.push_str(&text("small", x, bottom + 24.0, "middle", &label));
    }
    lines
}

/// Returns the name, bar, 99th percentile and median of a program.
fn draw(bar: &Bar<'_>, axis: &Axis, y: f64) -> String {
    let Bar { program, row, .. } = bar;
    let class = if program.is_ours { "ours" } else { "bar" };
    let (median, worst) = (row.samples.median(), row.worst());
    let (begin, end, line) = (LEFT, axis.x(median), axis.x(worst));
    let middle = y + BAR / 2.0;
    let mut drawn = text("name", LEFT - 8.0, middle + 4.0, "end", &program.name);
    drawn.push_str(&text("small", 16.0, middle + 4.0, "start", &program.version));
    drawn.push_str(&format!(
        "<rect class=\"{class}\" x=\"{begin}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n\
         <line class=\"p99\" x1=\"{end:.1}\" x2=\"{line:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\n",
        y + 3.0,
        (end - begin).max(1.0),
        BAR - 6.0,
    ));
    drawn.push_str(&text("value", line + 6.0, middle + 4.0, "start", &row.unit.show(median)));
    drawn
}

fn text(class: &str, x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = escaped(content);
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>\n"
    )
}

/// Returns text for XML. Control characters, which XML does not allow, become spaces.
fn escaped(text: &str) -> String {
    let plain = text.replace(char::is_control, " ");
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
