//! Writer for the Prometheus text format (exposition format 0.0.4). Used by `quack.metrics`.
//!
//! The format has three kinds of lines. The existing library writes OpenMetrics, which is a different format.

use std::fmt::{Display, Write};

/// Content type for HTTP.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// The text written so far.
#[derive(Debug, Default)]
pub(crate) struct PrometheusText(String);

impl PrometheusText {
    /// Starts a family. Its samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: MetricType, help: &str) {
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        // The format escapes these two in a help text, and quotation marks too in the text of a label.
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Writes a value. A family without a known value is left out; see [`PrometheusText::one`].
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.write(format_args!("{name}"));
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"");
            let before = if i == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{text}\""));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{end} {value}\n"));
    }

    /// Writes a family with one value, or nothing if the value is unknown.
    pub(crate) fn one(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        value: Option<impl Display>,
    ) {
        if let Some(value) = value {
            self.family(name, kind, help);
            self.sample(name, &[], value);
        }
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        self.0.write_fmt(arguments).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_label_or_a_help_ends_its_line() {
        let mut text = PrometheusText::default();
        text.family("a_total", MetricType::Counter, "One\nline \\ only.");
        text.sample("a_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1);
        text.one("b", MetricType::Gauge, "Known.", Some(0.5));
        text.one("c", MetricType::Gauge, "Unknown.", None::<u64>);
        assert_eq!(
            text.finish(),
            "# HELP a_total One\\nline \\\\ only.\n# TYPE a_total counter\n\
             a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1\n\
             # HELP b Known.\n# TYPE b gauge\nb 0.5\n"
        );
    }
}
