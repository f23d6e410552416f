//! Describes an edit as Pi does: a diff with line numbers for display, a unified diff, and the first changed line. Used by
//! `edit_file` for callers that ask for it.

use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::ops::Range;

/// Unchanged lines around a change, as in Pi.
const CONTEXT: usize = 4;

/// Most pairs of lines that are compared. A longer changed region is shown as a whole.
const MAX_PAIRS: usize = 1_000_000;

/// Largest diff, in bytes. A larger one is left out.
const MAX_BYTES: usize = 64 * 1024;

/// Changed lines of the old content, and the lines of the new content in their place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    old: Range<usize>,
    new: Range<usize>,
}

/// Returns `diff`, `patch` and `firstChangedLine`. Empty if nothing differs.
pub(crate) fn describe(path: &str, old: &[u8], new: &[u8]) -> Map<String, Value> {
    let lines = |text| memchr_lines(text).collect::<Vec<_>>();
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (lines(old), lines(new));
    let changes = changes(&old, &new);

    let mut described = Map::new();
    let Some(first) = changes.first() else { return described };
    described.insert("firstChangedLine".to_owned(), (first.new.start + 1).into());

    let diff = shown(&old, &new, &changes);
    let patch = unified(path, &old, &new, &changes);
    if diff.len() <= MAX_BYTES && patch.len() <= MAX_BYTES {
        described.insert("diff".to_owned(), diff.into());
        described.insert("patch".to_owned(), patch.into());
    }

    described
}

/// The lines of a text, each with its end.
fn memchr_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// Finds the changed lines.
fn changes(old: &[&[u8]], new: &[&[u8]]) -> Vec<Change> {
    // The comparison is quadratic, so it leaves out the equal lines at both ends.
    let begin = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) =
        (old.get(begin..).unwrap_or_default(), new.get(begin..).unwrap_or_default());
    let both = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = both.take_while(|(one, other)| one == other).count();
    let (n_old, n_new) = (old_rest.len() - end, new_rest.len() - end);
    let inner =
        (old_rest.get(..n_old).unwrap_or_default(), new_rest.get(..n_new).unwrap_or_default());

    if n_old == 0 && n_new == 0 {
        return Vec::new();
    }

    let whole = Change { old: begin..begin + n_old, new: begin..begin + n_new };
    if MAX_PAIRS < (n_old + 1).saturating_mul(n_new + 1) {
        return vec![whole];
    }

    let mut changes: Vec<Change> = Vec::new();
    let (mut at_old, mut at_new) = (0, 0);
    let same = same_lines(inner.0, inner.1);

    // The pair behind the last lines closes the last change.
    for (in_old, in_new) in same.into_iter().chain([(n_old, n_new)]) {
        if (at_old, at_new) != (in_old, in_new) {
            changes.push(Change {
                old: begin + at_old..begin + in_old,
                new: begin + at_new..begin + in_new,
            });
        }
        (at_old, at_new) = (in_old + 1, in_new + 1);
    }
    changes
}

/// Returns the pairs of a longest common subsequence.
fn same_lines(old: &[&[u8]], new: &[&[u8]]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;

    // Lengths for the rest of both texts, from each pair of lines on.
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    let length = |lengths: &[u32], a: usize, b: usize| {
        lengths.get(a * width + b).copied().unwrap_or_default()
    };

    for (a, one) in old.iter().enumerate().rev() {
        for (b, other) in new.iter().enumerate().rev() {
            let longest = if one == other {
                length(&lengths, a + 1, b + 1) + 1
            } else {
                length(&lengths, a + 1, b).max(length(&lengths, a, b + 1))
            };
            if let Some(place) = lengths.get_mut(a * width + b) {
                *place = longest;
            }
        }
    }

    let (mut a, mut b, mut pairs) = (0, 0, Vec::new());
    // Of two equally long ways, the one that deletes first is taken.
    while let (Some(one), Some(other)) = (old.get(a), new.get(b)) {
        if one == other {
            pairs.push((a, b));
            (a, b) = (a + 1, b + 1);
        } else if length(&lengths, a, b + 1) <= length(&lengths, a + 1, b) {
            a += 1;
        } else {
            b += 1;
        }
    }
    pairs
}

/// A line as text, without its end.
fn text_of(line: Option<&&[u8]>) -> String {
    let line = line.copied().unwrap_or_default();
    String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line)).into_owned()
}

/// The diff for display: a sign, the number of the line and its text.
fn shown(old: &[&[u8]], new: &[&[u8]], changes: &[Change]) -> String {
    let width = old.len().max(new.len()).saturating_add(1).to_string().len();
    let numbered = |sign: char, lines: &[&[u8]], at: usize| {
        format!("{sign}{:>width$} {}", at + 1, text_of(lines.get(at)))
    };
    let skipped = format!(" {:>width$} ...", "");
    let mut out: Vec<String> = Vec::new();
    let mut from = 0;

    for (index, change) in changes.iter().enumerate() {
        let between = from..change.old.start;
        let shown_begin = if index == 0 { 0 } else { CONTEXT };
        if shown_begin + CONTEXT < between.len() {
            out.extend((from..from + shown_begin).map(|at| numbered(' ', old, at)));
            out.push(skipped.clone());
            out.extend((between.end - CONTEXT..between.end).map(|at| numbered(' ', old, at)));
        } else {
            out.extend(between.map(|at| numbered(' ', old, at)));
        }
        out.extend(change.old.clone().map(|at| numbered('-', old, at)));
        out.extend(change.new.clone().map(|at| numbered('+', new, at)));
        from = change.old.end;
    }

    let end = old.len().min(from + CONTEXT);
    out.extend((from..end).map(|at| numbered(' ', old, at)));
    if end < old.len() {
        out.push(skipped);
    }
    out.join("\n")
}

/// The unified diff.
fn unified(path: &str, old: &[&[u8]], new: &[&[u8]], changes: &[Change]) -> String {
    let mut out = format!("--- {path}\n+++ {path}\n");
    let near = |one: &Change, next: &Change| next.old.start - one.old.end <= 2 * CONTEXT;

    for group in changes.chunk_by(near) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let before = first.old.start.min(CONTEXT);
        let after = (old.len() - last.old.end).min(CONTEXT);
        let in_old = first.old.start - before..last.old.end + after;
        let in_new = first.new.start - before..last.new.end + after;

        // An empty range is given by the line before it.
        let start = |range: &Range<usize>| range.start + usize::from(!range.is_empty());
        // Writing to a text cannot fail.
        writeln!(
            out,
            "@@ -{},{} +{},{} @@",
            start(&in_old),
            in_old.len(),
            start(&in_new),
            in_new.len()
        )
        .ok();

        let mut from = in_old.start;
        for change in group {
            signed(&mut out, ' ', old, from..change.old.start);
            signed(&mut out, '-', old, change.old.clone());
            signed(&mut out, '+', new, change.new.clone());
            from = change.old.end;
        }
        signed(&mut out, ' ', old, from..in_old.end);
    }
    out
}

fn signed(out: &mut String, sign: char, lines: &[&[u8]], range: Range<usize>) {
    for line in lines.get(range).unwrap_or_default() {
        out.push(sign);
        out.push_str(&String::from_utf8_lossy(line));
        if !line.ends_with(b"\n") {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(old: &str, new: &str) -> (String, String, u64) {
        let described = describe("a.txt", old.as_bytes(), new.as_bytes());
        let text = |name: &str| described[name].as_str().unwrap().to_owned();
        (text("diff"), text("patch"), described["firstChangedLine"].as_u64().unwrap())
    }

    #[test]
    fn an_edit_is_described_as_pi_describes_it() {
        let (diff, patch, first) = of("one\ntwo\nthree\n", "one\nTWO\nthree\n");
        assert_eq!(diff, " 1 one\n-2 two\n+2 TWO\n 3 three");
        assert_eq!(patch, "--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n");
        assert_eq!(first, 2);
        let (diff, patch, first) = of("a", "a\nb");
        assert_eq!((diff.as_str(), first), ("-1 a\n+1 a\n+2 b", 1));
        let end = "\\ No newline at end of file\n";
        let hunk = format!("@@ -1,1 +1,2 @@\n-a\n{end}+a\n+b\n{end}");
        assert_eq!(patch, format!("--- a.txt\n+++ a.txt\n{hunk}"));
    }

    #[test]
    fn changes_far_from_each_other_are_two_hunks() {
        let old: String = (1..=30).map(|n| format!("{n}\n")).collect();
        let new = old.replacen("6\n", "", 1).replace("25\n", "25\nmore\n");
        let (diff, patch, first) = of(&old, &new);
        assert_eq!(first, 6);
        let expected = "    ...\n  2 2\n  3 3\n  4 4\n  5 5\n- 6 6\n  7 7\n  8 8\n  9 9\n 10 10\n    ...\n 22 22\n \
            23 23\n 24 24\n 25 25\n+25 more\n 26 26\n 27 27\n 28 28\n 29 29\n    ...";
        assert_eq!(diff, expected);
        let heads: Vec<&str> = patch.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -2,9 +2,8 @@", "@@ -22,8 +21,9 @@"]);
        assert!(describe("a", b"x\n", b"x\n").is_empty());
    }

    #[test]
    fn a_new_file_and_a_large_region_are_whole_blocks() {
        let (_, patch, first) = of("", "a\n");
        assert_eq!((patch.as_str(), first), ("--- a.txt\n+++ a.txt\n@@ -0,0 +1,1 @@\n+a\n", 1));
        let long = |name: &str| (0..2_000).map(|n| format!("{name}{n}\n")).collect::<String>();
        let described = describe("a", long("x").as_bytes(), long("y").as_bytes());
        assert_eq!(described["firstChangedLine"], 1);
        assert!(described["diff"].as_str().unwrap().starts_with("-   1 x0\n"));
    }
}
