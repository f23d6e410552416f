//! Unified diffs. The edits list the changed lines, so the texts are not compared: the time is proportional to
//! the file size, regardless of what was replaced.

use super::editor::Edit;
use std::fmt::Write as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// Complete lines of the old text, and the lines of the new text that replace them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    old: Range<usize>,
    new: Range<usize>,
}

/// A diff, and whether it is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diff {
    pub(super) text: String,
    pub(super) is_cut: bool,
    /// Whether the diff shows the exact change: every line is valid UTF-8, so no replacement characters occur.
    pub(super) is_exact: bool,
}

/// Shifts the edits of a text by the `len` bytes of a byte order mark, so that they apply to the file.
pub(super) fn behind_mark(edits: &[Edit], len: usize) -> Vec<Edit> {
    let moved = |range: &Range<usize>| range.start + len..range.end + len;
    edits.iter().map(|edit| Edit { old: moved(&edit.old), new: moved(&edit.new) }).collect()
}

/// Returns the diff of a file in at most `max` bytes. Contains complete hunks only, and is empty if not even
/// one fits.
pub(super) fn unified(path: &Path, old: &[u8], new: &[u8], edits: &[Edit], max: usize) -> Diff {
    let mut text = format!("--- {}\n+++ {}\n", name(b"a/", path), name(b"b/", path));
    let header = text.len();
    let blocks = blocks(old, new, edits);
    let mut at = LineCounter::default();
    let mut is_cut = false;

    for group in blocks.chunk_by(|previous, next| are_near(old, previous.old.end, next.old.start)) {
        let hunk = hunk(old, new, group, &mut at);
        if max < text.len() + hunk.len() {
            is_cut = true;
            break;
        }
        text.push_str(&hunk);
    }

    // Without a hunk, the header says nothing.
    if text.len() == header {
        text.clear();
    }

    Diff { text, is_cut, is_exact: !at.is_lossy }
}

/// Writes a name for the header of a diff as `git apply` expects it. Quotes and escapes names with bytes that
/// would end the name or are not UTF-8. A tab after a name with spaces marks its end for `patch`.
fn name(prefix: &[u8], path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let needs_quotes = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'"' | b'\\');
    let text = std::str::from_utf8(bytes).ok();

    if let Some(text) = text
        && !bytes.iter().any(needs_quotes)
    {
        let end = if text.contains(' ') { "\t" } else { "" };
        return format!("{}{text}{end}", String::from_utf8_lossy(prefix));
    }

    let mut name = vec![b'"'];
    for &byte in prefix.iter().chain(bytes) {
        match byte {
            b'"' | b'\\' => name.extend([b'\\', byte]),
            b'\t' => name.extend(b"\\t"),
            b'\n' => name.extend(b"\\n"),
            b'\r' => name.extend(b"\\r"),
            _ if byte.is_ascii_control() || (text.is_none() && !byte.is_ascii()) => {
                name.extend(format!("\\{byte:03o}").into_bytes());
            }
            _ => name.push(byte),
        }
    }

    name.push(b'"');
    String::from_utf8_lossy(&name).into_owned()
}

/// Line numbers on both sides, counted up to one position.
#[derive(Debug, Default)]
struct LineCounter {
    old: usize,
    old_lines: u64,
    /// Number of new lines minus the number of old lines up to this position.
    gained: i64,
    /// A line was not valid UTF-8.
    is_lossy: bool,
}

/// Returns the changed lines: the edits widened to complete lines, merged where they touch.
fn blocks(old: &[u8], new: &[u8], edits: &[Edit]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for edit in edits {
        let start = line_start(old, edit.old.start);
        // An edit that ends with a line break in both texts does not touch the next line.
        let ends_line =
            |text: &[u8], range: &Range<usize>| range.end == line_start(text, range.end);
        let is_whole = ends_line(old, &edit.old) && ends_line(new, &edit.new);

        let end = if is_whole && start < edit.old.end {
            edit.old.end
        } else {
            line_end(old, edit.old.end)
        };

        // The bytes between the edit and the ends of its block are equal in both texts.
        let new_start = edit.new.start.saturating_sub(edit.old.start - start);
        let new_end = (edit.new.end + (end - edit.old.end)).min(new.len());

        match blocks.last_mut() {
            Some(last) if start <= last.old.end => {
                last.old.end = end;
                last.new.end = new_end;
            }
            _ => blocks.push(Block { old: start..end, new: new_start..new_end }),
        }
    }

    blocks.iter_mut().for_each(|block| trim(old, new, block));
    // Trimming may have left nothing of a block.
    blocks.retain(|block| !(block.old.is_empty() && block.new.is_empty()));
    blocks
}

/// Removes equal lines from both ends of a block.
fn trim(old: &[u8], new: &[u8], block: &mut Block) {
    let first =
        |text: &[u8], range: &Range<usize>| range.start..line_end(text, range.start).min(range.end);
    let last = |text: &[u8], range: &Range<usize>| {
        line_start(text, range.end.saturating_sub(1)).max(range.start)..range.end
    };
    let is_same = |a: &Range<usize>, b: &Range<usize>| {
        !a.is_empty() && old.get(a.clone()) == new.get(b.clone())
    };

    loop {
        let (a, b) = (first(old, &block.old), first(new, &block.new));
        if !is_same(&a, &b) {
            break;
        }
        (block.old.start, block.new.start) = (a.end, b.end);
    }

    loop {
        let (a, b) = (last(old, &block.old), last(new, &block.new));
        if !is_same(&a, &b) {
            break;
        }
        (block.old.end, block.new.end) = (a.start, b.start);
    }
}

/// Whether the context of the two blocks covers all unchanged lines between them.
fn are_near(old: &[u8], from: usize, to: usize) -> bool {
    let between = old.get(from..to).unwrap_or_default();
    memchr::memchr_iter(b'\n', between).nth(2 * CONTEXT).is_none()
}

fn hunk(old: &[u8], new: &[u8], group: &[Block], at: &mut LineCounter) -> String {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return String::new() };
    let start = (0..CONTEXT).fold(first.old.start, |at, _| line_start(old, at.saturating_sub(1)));
    let end = (0..CONTEXT).fold(last.old.end, |at, _| line_end(old, at));

    at.old_lines += count(old, at.old..start);
    at.old = start;

    let mut body = String::new();
    let (mut written, mut n_old, mut n_new) = (start, 0_u64, 0_u64);
    for block in group {
        let context = written..block.old.start;
        (n_old, n_new) = (n_old + count(old, context.clone()), n_new + count(old, context.clone()));
        at.is_lossy |= lines(&mut body, ' ', old, context);
        (n_old, n_new) =
            (n_old + count(old, block.old.clone()), n_new + count(new, block.new.clone()));
        at.is_lossy |= lines(&mut body, '-', old, block.old.clone());
        at.is_lossy |= lines(&mut body, '+', new, block.new.clone());
        written = block.old.end;
    }

    (n_old, n_new) = (n_old + count(old, written..end), n_new + count(old, written..end));
    at.is_lossy |= lines(&mut body, ' ', old, written..end);

    // Earlier hunks have moved the lines of the new text.
    let new_lines = at.old_lines.saturating_add_signed(at.gained);
    let mut hunk = String::new();
    // Writing to a string cannot fail.
    writeln!(hunk, "@@ -{} +{} @@", range(at.old_lines, n_old), range(new_lines, n_new)).ok();
    hunk.push_str(&body);
    at.gained += n_new.cast_signed() - n_old.cast_signed();
    hunk
}

/// Writes `first,count`. An empty range is given by the line before it.
fn range(lines_before: u64, count: u64) -> String {
    match count {
        0 => format!("{lines_before},0"),
        1 => format!("{}", lines_before + 1),
        _ => format!("{},{count}", lines_before + 1),
    }
}

/// Writes the lines. Returns true if some lines are not valid UTF-8 and contain replacement characters.
fn lines(out: &mut String, sign: char, text: &[u8], range: Range<usize>) -> bool {
    let mut is_lossy = false;
    let mut rest = text.get(range).unwrap_or_default();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(line_end(rest, 0));
        out.push(sign);
        let valid = String::from_utf8_lossy(line);
        is_lossy |= valid.len() != line.len() || valid.as_bytes() != line;
        out.push_str(&valid);
        if !line.ends_with(b"\n") {
            out.push_str("\n\\ No newline at end of file\n");
        }
        rest = behind;
    }
    is_lossy
}

/// Counts the lines of a range that consists of complete lines.
fn count(text: &[u8], range: Range<usize>) -> u64 {
    let part = text.get(range).unwrap_or_default();
    let is_open = !part.is_empty() && !part.ends_with(b"\n");
    memchr::memchr_iter(b'\n', part).count() as u64 + u64::from(is_open)
}

/// Returns the start of the line that contains `at`.
fn line_start(text: &[u8], at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    memchr::memrchr(b'\n', before).map_or(0, |break_at| break_at + 1)
}

/// Returns the end of the line that contains `at`, including its line break.
fn line_end(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    memchr::memchr(b'\n', rest).map_or(text.len(), |break_at| at + break_at + 1)
}
