//! The form in which answers are compared, and its parser for the output of programs.

use crate::programs::Said;
use crate::query::{Mode, Query};
use std::collections::BTreeMap;

/// Results per file, in the order of its lines.
pub(crate) type Answer = BTreeMap<Vec<u8>, Vec<Cell>>;

/// A line, a match or a count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) line: u64,
    /// Byte position from 1, or 0 if columns are not compared.
    pub(crate) column: u64,
    pub(crate) is_match: bool,
    pub(crate) text: Vec<u8>,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.is_match { ':' } else { '-' };
        write!(f, "{}{mark}{}{mark}{}", self.line, self.column, self.text.escape_ascii())
    }
}

impl Cell {
    /// Creates a cell with a count.
    pub(crate) fn count(text: &[u8]) -> Self {
        Self { line: 0, column: 0, is_match: true, text: text.to_vec() }
    }
}

/// Parses the output of `rg` or `grep`, with NUL after each path. An exit code of 2 is a rejection.
pub(crate) fn read(said: &Said, query: &Query, has_columns: bool) -> Result<Answer, String> {
    if said.code == Some(2) {
        return Err(String::from_utf8_lossy(&said.stderr).into_owned());
    }
    let mut answer = Answer::new();
    let mut rest = said.stdout.as_slice();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(b"--\n") {
            rest = after;
            continue;
        }
        let path = until(&mut rest, 0).ok_or("a path does not end")?;
        let path = path.strip_prefix(b"./").unwrap_or(path).to_vec();
        let cells = answer.entry(path).or_default();
        match query.mode {
            Mode::Files | Mode::FilesWithout => (),
            Mode::CountLines | Mode::CountMatches => {
                let count = until(&mut rest, b'\n').ok_or("a count does not end")?;
                cells.push(Cell::count(count));
            }
            Mode::Lines | Mode::OnlyMatching => cells.push(cell(&mut rest, has_columns)?),
        }
    }
    Ok(answer)
}

fn cell(rest: &mut &[u8], has_columns: bool) -> Result<Cell, String> {
    let (line, mark) = number(rest)?;
    let is_match = mark == b':';
    let mut column = 0;
    // If ripgrep finds a matching line without a match in it, it prints no column.
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if has_columns && is_match && 0 < digits && rest.get(digits) == Some(&b':') {
        column = number(rest)?.0;
    }
    let text = match until(rest, b'\n') {
        Some(text) => text,
        None => std::mem::take(rest),
    };
    Ok(Cell { line, column, is_match, text: text.to_vec() })
}

fn number(rest: &mut &[u8]) -> Result<(u64, u8), String> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).expect("digits are text").parse();
    let mark = rest.get(digits).copied().unwrap_or(0);
    let shown = || format!("not a number: {}", rest.escape_ascii());
    let number = number.map_err(|_| shown())?;
    *rest = rest.get(digits + 1..).unwrap_or_default();
    Ok((number, mark))
}

/// Removes and returns the text before the next `end`. Also removes `end`.
fn until<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let at = rest.iter().position(|byte| *byte == end)?;
    let before = &rest[..at];
    *rest = &rest[at + 1..];
    Some(before)
}

/// Parses names with NUL after each.
pub(crate) fn names(stdout: &[u8]) -> Vec<Vec<u8>> {
    let names = stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<Vec<u8>> =
        names.map(|name| name.strip_prefix(b"./").unwrap_or(name).to_vec()).collect();
    names.sort();
    names.dedup();
    names
}

/// Formats names as one text for a report.
pub(crate) fn shown(names: &[Vec<u8>]) -> String {
    names.iter().map(|name| format!("    {}\n", name.escape_ascii())).collect()
}

/// Formats the files that differ, for a report.
pub(crate) fn difference(ours: &Result<Answer, String>, theirs: &Result<Answer, String>) -> String {
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
        return format!("  ours:   {ours:?}\n  theirs: {theirs:?}\n");
    };
    let mut shown = String::new();
    for path in ours.keys().chain(theirs.keys().filter(|path| !ours.contains_key(*path))) {
        let (mine, other) = (ours.get(path), theirs.get(path));
        if mine != other {
            let name = path.escape_ascii();
            shown.push_str(&format!("  {name}\n    ours:   {mine:?}\n    theirs: {other:?}\n"));
        }
    }
    shown
}
