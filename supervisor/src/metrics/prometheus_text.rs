//! The text that Prometheus reads (exposition format 0.0.4), written family by family. Used by `quack.metrics`.
//!
//! By hand, because it is three kinds of lines, and the library for it writes OpenMetrics, which is another format.

use std::fmt::{Display, Write};

/// What the text is, for who serves it over HTTP.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How the values of a family are meant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The text so far.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Begins a family: its samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A value. What cannot be known is left out with its family; see [`Exposition::one`].
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

    /// A family of one value, or nothing if it is not known.
    pub(crate) fn one(&mut self, name: &str, kind: Kind, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.family(name, kind, help);
            self.sample(name, &[], value);
        }
    }

    /// The whole text.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _never = self.0.write_fmt(arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_label_or_a_help_ends_its_line() {
        let mut text = Exposition::default();
        text.family("a_total", Kind::Counter, "One\nline \\ only.");
        text.sample("a_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1);
        text.one("b", Kind::Gauge, "Known.", Some(0.5));
        text.one("c", Kind::Gauge, "Unknown.", None::<u64>);
        assert_eq!(
            text.finish(),
            "# HELP a_total One\\nline \\\\ only.\n# TYPE a_total counter\n\
             a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1\n\
             # HELP b Known.\n# TYPE b gauge\nb 0.5\n"
        );
    }
}
