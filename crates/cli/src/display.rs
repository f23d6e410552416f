//! Formats names, paths, sizes and tables for the terminal. Used by the subcommands.
//!
//! Other programs write the files that contain names and paths, so unsafe characters are replaced.

pub(crate) use quackd_protocol::foreign_text::one_line as plain;

use quackd_agent::message::cost_text;
use quackd_protocol::client::{PendingChange, ServerInfo};
use quackd_protocol::denial::of_session;
use quackd_protocol::far::FarWorkspace;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum width of a name in a sentence, and in a table or tree, in columns. Names within
/// [`quackd_protocol::limits::MAX_NAME_CHARS`] fit into the first. `--json` prints names in full.
const MAX_NAME: usize = 100;
const MAX_NAME_CELL: usize = 40;

/// Maximum width of a path in a sentence, and in a table or tree, in columns.
const MAX_PATH: usize = 240;
const MAX_PATH_CELL: usize = 72;

/// Variation selector that turns some preceding characters into an emoji of two columns.
const WIDENS: char = '\u{fe0f}';

/// Maximum number of characters per column. It bounds characters without width.
const CHARS_PER_COLUMN: usize = 8;

/// Returns the first line of `text`, plain, at most `max_width` columns wide.
pub(crate) fn first_line(text: &str, max_width: usize) -> String {
    cut(text.lines().next().unwrap_or_default(), max_width)
}

/// Returns `text` plain and cut to `max_width` columns. A cut text ends with `…`.
pub(crate) fn cut(text: &str, max_width: usize) -> String {
    let text = plain(text);
    if fits(&text, max_width) {
        return text;
    }
    let end = text.len() - left_over(text.chars(), max_width).map(char::len_utf8).sum::<usize>();
    let kept = text.get(..end).unwrap_or_default();
    // A joiner at the end would combine with the ellipsis.
    let kept = kept.trim_end_matches(['\u{200c}', '\u{200d}']);
    if max_width == 0 { String::new() } else { format!("{kept}…") }
}

/// Like [`cut`], but keeps the end of `text`, which identifies a path or a host better than its beginning. `text` must be
/// plain.
pub(crate) fn cut_begin(text: &str, max_width: usize) -> String {
    if fits(text, max_width) {
        return text.to_owned();
    }
    let begin = left_over(text.chars().rev(), max_width).map(char::len_utf8).sum::<usize>();
    let kept = text.get(begin..).unwrap_or_default();
    if max_width == 0 { String::new() } else { format!("…{kept}") }
}

/// Returns the rest of `chars` that does not fit into `max_width` columns next to the ellipsis.
fn left_over(chars: impl Iterator<Item = char>, max_width: usize) -> impl Iterator<Item = char> {
    let mut chars = chars.peekable();

    let mut columns = 0;
    for _ in 0..most_chars(max_width) {
        // Joined characters may be narrower than this sum, and never wider.
        let width =
            chars.peek().map_or(0, |c| if *c == WIDENS { 1 } else { c.width().unwrap_or(0) });
        columns += width;
        if max_width <= columns || chars.next().is_none() {
            break;
        }
    }
    chars
}

fn fits(text: &str, max_width: usize) -> bool {
    text.width() <= max_width && text.chars().count() <= most_chars(max_width)
}

fn most_chars(width: usize) -> usize {
    width.saturating_mul(CHARS_PER_COLUMN)
}

/// Returns the width of a plain text in columns.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Returns a name for use in a sentence.
pub(crate) fn name(name: &str) -> String {
    cut(name, MAX_NAME)
}

/// Returns the label of a session, or its name if an older daemon sends no label.
pub(crate) fn label<'a>(label: &'a str, name: &'a str) -> &'a str {
    if label.is_empty() { name } else { label }
}

/// Returns the name of a kind of process. On the wire, the agent has the name of the process that runs Pi.
pub(crate) fn process_kind(name: &str) -> String {
    name_cell(if name == "pi-worker" { "agent" } else { name })
}

/// Returns a name for a table or tree.
pub(crate) fn name_cell(name: &str) -> String {
    cut(name, MAX_NAME_CELL)
}

/// Returns `path` with `~` for the home directory. Keeps the end of a long path.
pub(crate) fn path(path: &str, home_dir: Option<&str>) -> String {
    cut_begin(&at_home(path, home_dir), MAX_PATH)
}

/// Like [`path`], with the home directory of this process.
pub(crate) fn user_path(text: &str) -> String {
    path(text, std::env::var("HOME").ok().as_deref())
}

/// Like [`path`], for a table or tree.
pub(crate) fn path_cell(path: &str, home_dir: Option<&str>) -> String {
    cut_begin(&at_home(path, home_dir), MAX_PATH_CELL)
}

fn at_home(path: &str, home_dir: Option<&str>) -> String {
    if let Some(far) = FarWorkspace::of(path) {
        return plain(&far.shown());
    }

    let home_dir = home_dir.map(|dir| dir.trim_end_matches('/')).filter(|dir| !dir.is_empty());
    let rest = home_dir.and_then(|dir| path.strip_prefix(dir));
    match rest {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => plain(&format!("~{rest}")),
        _ => plain(path),
    }
}

/// Returns a path without `~` and uncut: shells do not expand `~` in quotes.
pub(crate) fn full_path(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Formats paths, one per line after a verb. Returns `none` if there are no paths.
pub(crate) fn path_lines(verb: &str, paths: &[PathBuf], none: &str) -> String {
    if paths.is_empty() {
        return none.to_owned();
    }
    paths.iter().map(|path| format!("{verb} {}\n", full_path(path))).collect()
}

/// Returns a table with two spaces between columns. `min_widths` has one entry per column. The last column is not
/// padded.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    min_widths: [usize; N],
    rows: &[[String; N]],
) -> String {
    let rows =
        || [header].into_iter().chain(rows.iter().map(|row| row.each_ref().map(String::as_str)));
    let mut widths = min_widths;
    for row in rows() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }

    let mut text = String::new();
    for row in rows() {
        let mut line = String::new();
        for (cell, width) in row.into_iter().zip(widths) {
            let padding = width.saturating_sub(cell.width()) + 2;
            // Writing to a String cannot fail.
            write!(line, "{cell}{:padding$}", "").ok();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a cost for a line with other facts.
pub(crate) fn cost(total: f64, is_unknown: bool) -> String {
    let text = cost_text(total, is_unknown);
    if is_unknown { format!("cost {text}") } else { text }
}

/// Returns the cost in the counts of a session. Without any, it is unknown.
pub(crate) fn cost_of(stats: &Value) -> String {
    let total = stats.get("cost").and_then(Value::as_f64);
    let is_unknown = stats.get("costUnknown").and_then(Value::as_bool).unwrap_or_default();
    cost(total.unwrap_or_default(), is_unknown || total.is_none())
}

/// Describes a change that waits for calls or jobs, with the commands that end them.
pub(crate) fn pending(pending: &PendingChange) -> String {
    let calls = (pending.calls != 0).then(|| count(pending.calls, "call"));
    let jobs = pending.jobs.iter().take(MAX_JOBS).map(|job| plain(job));
    let runs = calls.into_iter().chain(jobs).collect::<Vec<_>>().join(", ");

    let (why, remedy) = (plain(&pending.why), plain(&pending.remedy));
    format!("{why}; a new worker starts when this has ended: {runs}. To end it: {remedy}")
}

/// Maximum number of background jobs that are named in one text.
const MAX_JOBS: usize = 4;

/// Formats the memory of a process after two spaces. Empty if it is not known.
pub(crate) fn memory(kb: Option<u64>) -> String {
    kb.map(|kb| format!("  {}", bytes(kb.saturating_mul(1024)))).unwrap_or_default()
}

/// Returns the mode of a worker's network.
pub(crate) fn network(is_on: bool, has_hosts: bool) -> &'static str {
    match (is_on, has_hosts) {
        (true, _) => "on",
        (false, true) => "hosts",
        (false, false) => "off",
    }
}

/// Formats a server of a session with its link, or with the command that prints one.
pub(crate) fn server(server: &ServerInfo, label: &str) -> String {
    let port = server.port;
    match &server.link {
        Some(link) => format!("port {port}  {}", plain(link)),
        None => format!("port {port}  quack forward {port} --link{}", of_session(label)),
    }
}

/// Formats a size, such as `12.3 MB`. Units are powers of 1024.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    for (size, unit) in UNITS {
        if size <= n {
            let tenths = n.saturating_mul(10) / size;
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{n} B")
}

/// Returns `n things`, or `1 thing`. A number beyond `usize` counts as the largest one.
pub(crate) fn count(n: impl TryInto<usize>, thing: &str) -> String {
    let n = n.try_into().unwrap_or(usize::MAX);
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_in_a_name_steers_the_terminal() {
        assert_eq!(plain("a\x1b[31mb\r\nc\u{9b}d"), "a\u{fffd}[31mb\u{fffd}\u{fffd}c\u{fffd}d");
        assert_eq!(first_line("one\ntwo", 80), "one");
        assert_eq!(cut("äöüß", 4), "äöüß");
        assert_eq!(cut("äöüßx", 4), "äöü…");
        assert_eq!(
            plain("du\u{200e}ck\u{2028}\u{e0041}\u{feff}"),
            "du\u{fffd}ck\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn what_is_cut_is_as_wide_as_it_may_be_and_says_so() {
        for (given, max, shown) in [
            ("漢字漢字", 8, "漢字漢字"),
            ("漢字漢字x", 8, "漢字漢…"),
            ("漢字漢字x", 7, "漢字漢…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("👩\u{200d}💻 at work", 4, "👩…"),
            ("👩\u{200d}💻 at work", 6, "👩\u{200d}💻 …"),
            ("a👩\u{200d}💻b", 3, "a…"),
            ("long", 1, "…"),
            ("long", 0, ""),
        ] {
            assert_eq!(cut(given, max), shown, "{given:?} {max}");
        }
        assert_eq!(cut_begin("/a/漢字/duck", 9), "…字/duck");
        assert_eq!(cut_begin("/a/duck", 7), "/a/duck");
        assert_eq!(name_cell(&"x".repeat(99)).chars().count(), MAX_NAME_CELL);
        assert_eq!(name(&"x".repeat(100)), "x".repeat(100));
        let shown = path_cell(&format!("/home/ada/{}/app", "x".repeat(5000)), Some("/home/ada"));
        assert!(shown.starts_with("…x") && shown.ends_with("x/app"), "{shown}");
        // Combining marks without width are bounded as well.
        assert!(cut(&format!("e{}", "\u{301}".repeat(1 << 16)), 9).chars().count() <= 73);
    }

    proptest! {
        #[test]
        fn nothing_that_is_cut_is_wider_or_steers(text in ".*", max in 0_usize..50) {
            for shown in [cut(&text, max), cut_begin(&plain(&text), max), first_line(&text, max)] {
                prop_assert!(width(&shown) <= max, "{shown:?}");
                prop_assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
            }
        }
    }

    #[test]
    fn only_whole_components_become_a_tilde() {
        for (given, home, shown) in [
            ("/home/ada/src", Some("/home/ada"), "~/src"),
            ("/home/ada", Some("/home/ada/"), "~"),
            ("/home/adam", Some("/home/ada"), "/home/adam"),
            ("/src", Some("/"), "/src"),
            ("/src", None, "/src"),
        ] {
            assert_eq!(path(given, home), shown);
        }
    }

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells_and_no_narrower_than_it_must_be() {
        let rows = [
            ["duck-1 ◇".to_owned(), "~/a".to_owned()],
            ["a-very-long-name".to_owned(), String::new()],
        ];
        assert_eq!(
            table(["SESSION", "WORKSPACE"], [12, 12], &rows),
            "SESSION           WORKSPACE\nduck-1 ◇          ~/a\na-very-long-name\n"
        );
        let wide = [["漢字".to_owned(), "x".to_owned()], ["abcd".to_owned(), "y".to_owned()]];
        assert_eq!(table(["A", "B"], [1, 1], &wide), "A     B\n漢字  x\nabcd  y\n");
        assert_eq!(table(["A", "B"], [3, 1], &[]), "A    B\n");
    }

    #[test]
    fn sizes_have_one_decimal_and_a_unit() {
        let shown = [0, 1023, 1024, 12_900_000, u64::MAX].map(bytes);
        assert_eq!(shown[..4], ["0 B", "1023 B", "1.0 KB", "12.3 MB"]);
        assert!(shown[4].ends_with(" GB"));
    }

    #[test]
    fn one_thing_is_not_plural() {
        assert_eq!([0, 1, 2].map(|n| count(n, "client")), ["0 clients", "1 client", "2 clients"]);
    }
}
