//! How names, paths and sizes are shown to a person. Used by the verbs.
//!
//! Names and paths come from files that other programs write: nothing in them may steer the terminal.

use std::fmt::Write;

/// `text` on one line, without control characters and what turns its direction.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_direction(c) { '\u{fffd}' } else { c }).collect()
}

/// Characters that turn the direction of what stands after them: a line could be made to read as
/// another one.
pub(crate) fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first line of `text`, plain, at most `max_chars` characters long.
pub(crate) fn first_line(text: &str, max_chars: usize) -> String {
    cut(text.lines().next().unwrap_or_default(), max_chars)
}

/// `text` plain and cut to `max_chars` characters, with `…` as the last of them if it was longer.
pub(crate) fn cut(text: &str, max_chars: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= max_chars {
        return text;
    }
    text.chars().take(max_chars.saturating_sub(1)).chain(['…']).collect()
}

/// `path` with `~` for the home directory.
pub(crate) fn path(path: &str, home_dir: Option<&str>) -> String {
    let home_dir = home_dir.map(|dir| dir.trim_end_matches('/')).filter(|dir| !dir.is_empty());
    let rest = home_dir.and_then(|dir| path.strip_prefix(dir));
    match rest {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => plain(&format!("~{rest}")),
        _ => plain(path),
    }
}

/// A table with two spaces between columns; `min_widths` has one entry per column. The last column is
/// not padded.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    min_widths: [usize; N],
    rows: &[[String; N]],
) -> String {
    let mut widths = min_widths;
    for row in rows.iter().map(|row| row.each_ref().map(String::as_str)).chain([header]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in [header].into_iter().chain(rows.iter().map(|row| row.each_ref().map(String::as_str)))
    {
        let mut line = String::new();
        for (cell, width) in row.into_iter().zip(widths) {
            // Writing to a String cannot fail.
            let _never = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A size as a person reads it, such as `12.3 MB`.
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

/// `n things`, or `1 thing`.
pub(crate) fn count(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_steers_the_terminal() {
        assert_eq!(plain("a\x1b[31mb\r\nc\u{9b}d"), "a\u{fffd}[31mb\u{fffd}\u{fffd}c\u{fffd}d");
        assert_eq!(first_line("one\ntwo", 80), "one");
        assert_eq!(cut("äöüß", 4), "äöüß");
        assert_eq!(cut("äöüßx", 4), "äöü…");
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
