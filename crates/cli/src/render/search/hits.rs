//! Renders matching lines: grouped by file on a terminal, `path:line:text` in a pipe. Used by `quack grep`.

use super::data::Hit;
use super::{LINE, MATCH, PATH, fit, push};
use crate::output::{DIM, StdoutProperties};
use anstyle::Style;

/// Format of the lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Properties of stdout, which decide styles and sanitizing.
    pub(crate) audience: StdoutProperties,
    /// Print each file name once, above its lines.
    pub(crate) heading: bool,
    /// Print file names.
    pub(crate) with_name: bool,
    /// Print line numbers.
    pub(crate) with_line: bool,
    /// Print the position of the first match, in bytes from 1.
    pub(crate) with_column: bool,
    /// End file names with NUL.
    pub(crate) null: bool,
    /// Whether context was requested, so that gaps are marked.
    pub(crate) has_context: bool,
}

/// Printer of hits.
#[derive(Debug)]
pub(crate) struct Printer {
    layout: Layout,
    /// File and number of the last printed line.
    last: Option<(String, u64)>,
}

impl Printer {
    /// Creates a printer.
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, last: None }
    }

    /// Appends hits of one file, with its heading if it is another file than before.
    pub(crate) fn print<'a>(
        &mut self,
        path: &str,
        hits: impl IntoIterator<Item = Hit<'a>>,
        out: &mut String,
    ) {
        let layout = self.layout;
        let heading = layout.heading && layout.with_name;
        let mut shown_name = String::new();
        name(path, layout, &mut shown_name);

        let mut last_line = self.last.as_ref().map(|(last, line)| (last == path).then_some(*line));

        for hit in hits {
            match last_line {
                Some(Some(line)) => {
                    if layout.has_context && line.saturating_add(1) < hit.line {
                        separator(out, layout.audience);
                    }
                }
                before => {
                    match before {
                        None => {}
                        Some(_) if heading => out.push('\n'),
                        Some(_) if layout.has_context => separator(out, layout.audience),
                        Some(_) => {}
                    }
                    if heading {
                        out.push_str(&shown_name);
                        out.push_str(if layout.null { "" } else { "\n" });
                    }
                }
            }

            last_line = Some(Some(hit.end_line));
            self.lines(&hit, &shown_name, out);
        }

        if let Some(Some(line)) = last_line {
            self.last = Some((path.to_owned(), line));
        }
    }

    /// Appends the lines of a hit. A match may span several lines.
    fn lines(&self, hit: &Hit<'_>, shown_name: &str, out: &mut String) {
        let mut begin = 0;
        for (number, text) in (hit.line..).zip(hit.text.split('\n')) {
            self.prefix(hit, number, shown_name, out);
            if begin == 0 && hit.cut.0 != 0 {
                push(out, &format!("[+{}]…", hit.cut.0), DIM, self.layout.audience);
            }
            self.text(hit, begin, text, out);
            begin += text.len() + 1;
            if hit.text.len() < begin && hit.cut.1 != 0 {
                push(out, &format!("…[+{}]", hit.cut.1), DIM, self.layout.audience);
            }
            out.push('\n');
        }
    }

    fn prefix(&self, hit: &Hit<'_>, number: u64, shown_name: &str, out: &mut String) {
        let layout = self.layout;
        let audience = layout.audience;
        let mark = if hit.is_match() { ":" } else { "-" };

        if layout.with_name && !layout.heading {
            out.push_str(shown_name);
            push(out, if layout.null { "" } else { mark }, DIM, audience);
        }

        if layout.with_line {
            push_number(out, number, LINE, audience);
            push(out, mark, DIM, audience);
        }

        if let Some(column) = hit.column.filter(|_| layout.with_column) {
            push_number(out, column, LINE, audience);
            push(out, mark, DIM, audience);
        }
    }

    /// Appends `text`, which begins at byte `begin` of the hit's text.
    fn text(&self, hit: &Hit<'_>, begin: usize, text: &str, out: &mut String) {
        let audience = self.layout.audience;
        // Drop the CR of a CR LF, which a terminal does not show.
        let line =
            if audience.is_terminal { text.strip_suffix('\r').unwrap_or(text) } else { text };

        if !audience.is_colored {
            out.push_str(&fit(line, audience));
            return;
        }

        let mut at = 0;
        for span in hit.spans() {
            let within = |byte: usize| byte.saturating_sub(begin).clamp(at, line.len());
            let (from, to) = (within(span.start), within(span.end));
            // Invalid spans must not split a character. They get no color.
            let (Some(plain), Some(matched)) = (line.get(at..from), line.get(from..to)) else {
                continue;
            };

            out.push_str(&fit(plain, audience));
            push(out, &fit(matched, audience), MATCH, audience);
            at = to;
        }

        out.push_str(&fit(line.get(at..).unwrap_or_default(), audience));
    }
}

fn name(path: &str, layout: Layout, out: &mut String) {
    push(out, &fit(path, layout.audience), PATH, layout.audience);
    if layout.null {
        out.push('\0');
    }
}

fn push_number(out: &mut String, number: u64, style: Style, audience: StdoutProperties) {
    push(out, itoa::Buffer::new().format(number), style, audience);
}

fn separator(out: &mut String, audience: StdoutProperties) {
    push(out, "--", DIM, audience);
    out.push('\n');
}

/// Returns a line with a file name, and a count if there is one.
pub(crate) fn name_line(path: &str, count: Option<u64>, layout: Layout) -> String {
    let mut line = String::new();
    if layout.with_name || count.is_none() {
        name(path, layout, &mut line);
        if count.is_some() && !layout.null {
            push(&mut line, ":", DIM, layout.audience);
        }
    }

    if let Some(count) = count {
        line.push_str(&count.to_string());
    }

    if count.is_some() || !layout.null {
        line.push('\n');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::search::LineRow;

    const PIPE: StdoutProperties = StdoutProperties { is_terminal: false, is_colored: false };
    const LAYOUT: Layout = Layout {
        audience: PIPE,
        heading: false,
        with_name: true,
        with_line: true,
        with_column: false,
        null: false,
        has_context: false,
    };

    fn row<'a>(
        line: u64,
        text: &'a str,
        places: &[u64],
        rest: Option<(u64, u64, u64)>,
    ) -> LineRow<'a> {
        LineRow(line, text.into(), places.iter().copied().collect(), rest)
    }

    fn files() -> [(&'static str, Vec<LineRow<'static>>); 3] {
        [
            ("src/a", vec![row(2, "a needle\r", &[3, 2, 8], None), row(3, "near", &[], None)]),
            ("src/a", vec![row(7, "needle\x1b[2J", &[1, 0, 6], None)]),
            ("b", vec![row(1, "x one\ntwo y", &[3, 2, 9], Some((2, 4, 5)))]),
        ]
    }

    fn printed(layout: Layout) -> String {
        let mut printer = Printer::new(layout);
        let mut out = String::new();
        for (path, rows) in files() {
            printer.print(path, rows.iter().map(Hit::of), &mut out);
        }
        out
    }

    #[test]
    fn in_a_pipe_each_line_has_its_file_and_its_content_as_it_is() {
        assert_eq!(
            printed(LAYOUT),
            "src/a:2:a needle\r\nsrc/a-3-near\nsrc/a:7:needle\x1b[2J\n\
             b:1:[+4]…x one\nb:2:two y…[+5]\n"
        );
        assert_eq!(
            printed(Layout { has_context: true, with_column: true, null: true, ..LAYOUT }),
            "src/a\x002:3:a needle\r\nsrc/a\x003-near\n--\nsrc/a\x007:1:needle\x1b[2J\n--\n\
             b\x001:3:[+4]…x one\nb\x002:3:two y…[+5]\n"
        );
        assert_eq!(
            printed(Layout { with_name: false, with_line: false, ..LAYOUT }),
            "a needle\r\nnear\nneedle\x1b[2J\n[+4]…x one\ntwo y…[+5]\n"
        );
    }

    #[test]
    fn on_a_terminal_lines_stand_below_their_file_and_steer_nothing() {
        let audience = StdoutProperties { is_terminal: true, is_colored: false };
        assert_eq!(
            printed(Layout { audience, heading: true, has_context: true, ..LAYOUT }),
            "src/a\n2:a needle\n3-near\n--\n7:needle\n\nb\n1:[+4]…x one\n2:two y…[+5]\n"
        );
    }

    #[test]
    fn what_matches_has_a_colour_also_over_several_lines() {
        let audience = StdoutProperties { is_terminal: true, is_colored: true };
        let text = printed(Layout { audience, heading: true, ..LAYOUT });
        let red = |text: &str| format!("{MATCH}{text}{MATCH:#}");
        for part in [
            format!("a {}\n", red("needle")),
            format!("x {}\n", red("one")),
            format!("{} y", red("two")),
            format!("{PATH}src/a{PATH:#}\n"),
            format!("{LINE}2{LINE:#}"),
        ] {
            assert!(text.contains(&part), "{part:?} is missing in {text:?}");
        }
        assert!(!text.contains("\x1b[2J"), "{text:?}");
    }

    #[test]
    fn spans_that_make_no_sense_lose_colour_and_no_text() {
        let audience = StdoutProperties { is_terminal: false, is_colored: true };
        let far = u64::MAX;
        for odd in
            [&[1, 1, 2][..], &[1, 3, 1], &[1, 0, 99], &[1, far, far], &[1, 4, 6, 0, 2], &[1, 3]]
        {
            let row = row(1, "äöüß", odd, None);
            let mut out = String::new();
            Printer::new(Layout { audience, ..LAYOUT }).print("a", [Hit::of(&row)], &mut out);
            assert!(
                anstream::adapter::strip_str(&out).to_string().ends_with(":äöüß\n"),
                "{odd:?}: {out:?}"
            );
        }
    }

    #[test]
    fn names_may_stand_alone_or_with_a_number() {
        assert_eq!(name_line("a", None, LAYOUT), "a\n");
        assert_eq!(name_line("a", Some(3), LAYOUT), "a:3\n");
        assert_eq!(name_line("a", None, Layout { null: true, ..LAYOUT }), "a\0");
        assert_eq!(name_line("a", Some(3), Layout { null: true, ..LAYOUT }), "a\x003\n");
        assert_eq!(name_line("a", Some(3), Layout { with_name: false, ..LAYOUT }), "3\n");
    }
}
