//! Compares matching lines with ripgrep and GNU grep, with and without byte order marks.

use crate::content::{Kinds, files, pattern};
use crate::engine_under_test;
use crate::known_differences::Known;
use crate::normalized_output::{Answer, Cell, difference, read};
use crate::programs::{Program, command_line, grep, rg, run};
use crate::query::{Case, Encoding, Mode, Multiline, Query};
use crate::random::cases;
use crate::run::{Kind, Run, Verdict};
use crate::tree::Files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Compares the library and ripgrep on the same query.
pub(crate) fn against_rg(dir: &Path, files: &Files, query: &Query) -> Verdict {
    let verdict = against_rg_as_it_is(dir, files, query);
    without_crs(files, query, verdict, against_rg_as_it_is)
}

/// Compares again without the carriage returns at the ends of lines, if they may be the reason for a difference.
fn without_crs(
    files: &Files,
    query: &Query,
    verdict: Verdict,
    compare: fn(&Path, &Files, &Query) -> Verdict,
) -> Verdict {
    let names_cr = |pattern: &String| pattern.contains('\r') || pattern.contains("\\r");
    let names_cr = query.patterns.iter().any(names_cr);
    if !matches!(verdict, Verdict::Differs(Kind::Answer, _)) || names_cr {
        return verdict;
    }
    // A second carriage return stays text, and must not be at the end of a line when the first is removed.
    let mut single = files.clone();
    for (_, content) in &mut single.0 {
        while content.windows(3).any(|three| three == b"\r\r\n") {
            *content = replaced(content, b"\r\r\n", b"\x0b\r\n", 1);
        }
    }
    let mut folded = single.clone();
    for (_, content) in &mut folded.0 {
        let is_marked = |mark: &[u8]| query.encoding == Encoding::Auto && content.starts_with(mark);
        *content = if is_marked(b"\xff\xfe") {
            replaced(content, b"\r\0\n\0", b"\n\0", 2)
        } else if is_marked(b"\xfe\xff") {
            replaced(content, b"\0\r\0\n", b"\0\n", 2)
        } else {
            replaced(content, b"\r\n", b"\n", 1)
        };
    }
    if folded == *files {
        return verdict;
    }
    let folded_dir = folded.lay();
    let bare = |dir: &Path| -> Result<Answer, String> {
        let mut answer = engine_under_test::answer(dir, query)?;
        let with_rows = matches!(query.mode, Mode::Lines | Mode::OnlyMatching);
        for cell in answer.values_mut().flatten() {
            cell.text = replaced(&cell.text, b"\r\n", b"\n", 1);
            let ends = cell.text.last() == Some(&b'\r') && with_rows;
            cell.text.truncate(cell.text.len() - usize::from(ends));
        }
        let drops_empty = query.multiline != Multiline::Off && query.mode == Mode::OnlyMatching;
        answer
            .values_mut()
            .for_each(|cells| cells.retain(|cell| !(drops_empty && cell.text.is_empty())));
        answer.retain(|_, cells| !cells.is_empty());
        Ok(answer)
    };
    let is_same = bare(single.lay().path()) == bare(folded_dir.path());
    match compare(folded_dir.path(), &folded, query) {
        Verdict::Same | Verdict::Known(_) if is_same => {
            Verdict::Known(Known::CarriageReturnsAtEndsOfLines)
        }
        _ => verdict,
    }
}

/// Returns the content with other line ends, which are units of `step` bytes.
fn replaced(content: &[u8], from: &[u8], to: &[u8], step: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(from) {
            all.extend_from_slice(to);
            rest = after;
        } else {
            let (unit, after) = rest.split_at(step.min(rest.len()));
            all.extend_from_slice(unit);
            rest = after;
        }
    }
    all
}

fn against_rg_as_it_is(dir: &Path, files: &Files, query: &Query) -> Verdict {
    let Some(rg) = rg() else { return Verdict::Same };
    let ours = engine_under_test::answer(dir, query);
    let theirs = by_rg(rg, dir, query);
    let verdict = verdict(&ours, &theirs, || command_line(rg, &query.for_rg()));
    if !matches!(verdict, Verdict::Differs(Kind::Answer, _)) {
        return verdict;
    }
    let ended = with_ends(files, query);
    if ended != *files && ours == by_rg(rg, ended.lay().path(), query) {
        return Verdict::Known(Known::EmptyMatchAtUnterminatedEnd);
    }
    if query.has_columns() && query.mode == Mode::OnlyMatching {
        let mut places = theirs.clone().unwrap_or_default();
        places.values_mut().for_each(|cells| cells.retain(|cell| 0 < cell.column));
        places.retain(|_, cells| !cells.is_empty());
        if ours.as_ref() == Ok(&places) {
            return Verdict::Known(Known::LineInPlaceOfAnEmptyMatch);
        }
    }
    if query.invert && query.mode == Mode::Lines && query.max_per_file.is_some() {
        let numbers = |answer: &Answer| -> Numbers {
            let of = |cells: &Vec<Cell>| cells.iter().map(|cell| cell.line).collect();
            answer.iter().map(|(path, cells)| (path.clone(), of(cells))).collect()
        };
        if ours.as_ref().ok().map(numbers) == limited(rg, dir, query) {
            return Verdict::Known(Known::ContextOfLimitedLinesWithout);
        }
    }
    if query.invert && query.mode == Mode::OnlyMatching {
        let lines = Query { mode: Mode::Lines, ..query.clone() };
        let is_nothing = ours.as_ref().is_ok_and(Answer::is_empty);
        if is_nothing && theirs == by_rg(rg, dir, &lines) {
            return Verdict::Known(Known::MatchesOfLinesWithoutAny);
        }
    }
    let is_old = rg.version < (14, 0);
    if is_old && query.multiline != Multiline::Off && query.max_per_file.is_some() {
        let unlimited = Query { max_per_file: None, ..query.clone() };
        return match against_rg_as_it_is(dir, files, &unlimited) {
            Verdict::Differs(..) => verdict,
            Verdict::Same | Verdict::Known(_) => Verdict::Known(Known::LimitsAcrossLinesInOldRg),
        };
    }
    let is_about_matches = query.has_columns() || query.mode == Mode::CountMatches;
    if is_old && is_about_matches {
        return places_of_old_rg(dir, files, query).unwrap_or(verdict);
    }
    verdict
}

/// Line numbers of each file.
type Numbers = BTreeMap<Vec<u8>, BTreeSet<u64>>;

/// Returns the first lines of each file that ripgrep finds without a limit, and their context.
fn limited(rg: &Program, dir: &Path, query: &Query) -> Option<Numbers> {
    let all = by_rg(rg, dir, &Query { encoding: query.encoding, ..Query::of("^") }).ok()?;
    let unlimited = Query { max_per_file: None, before: 0, after: 0, ..query.clone() };
    let max = usize::try_from(query.max_per_file?).ok()?;
    let (before, after) = (query.before as u64, query.after as u64);
    let of = |(path, cells): (Vec<u8>, Vec<Cell>)| {
        let last = all.get(&path).and_then(|cells| cells.last()).map_or(0, |cell| cell.line);
        let near = |line: u64| line.saturating_sub(before).max(1)..=(line + after).min(last);
        let numbers = cells.iter().take(max).flat_map(|cell| near(cell.line)).collect();
        (path, numbers)
    };
    Some(by_rg(rg, dir, &unlimited).ok()?.into_iter().map(of).collect())
}

/// Returns ripgrep's answer, converted to the library's units.
pub(crate) fn by_rg(rg: &Program, dir: &Path, query: &Query) -> Result<Answer, String> {
    let is_multiline = query.multiline != Multiline::Off;
    let ask = |query: &Query| read(&run(rg, dir, &query.for_rg()), query, query.has_columns());
    if is_multiline && query.mode == Mode::CountLines {
        // If matches cross lines, ripgrep counts matches instead of lines.
        let mut answer = ask(&Query { mode: Mode::Lines, before: 0, after: 0, ..query.clone() })?;
        for cells in answer.values_mut() {
            *cells = vec![Cell::count(cells.len().to_string().as_bytes())];
        }
        return Ok(answer);
    }
    let mut answer = ask(query)?;
    if is_multiline && query.mode == Mode::OnlyMatching {
        answer.retain(|_, cells| {
            cells.retain(|cell| !cell.text.is_empty());
            !cells.is_empty()
        });
    }
    Ok(answer)
}

/// Returns the files with a line feed at the end of each.
fn with_ends(files: &Files, query: &Query) -> Files {
    let mut ended = files.clone();
    for (_, content) in &mut ended.0 {
        let is_marked = |mark: &[u8]| query.encoding == Encoding::Auto && content.starts_with(mark);
        let end: &[u8] = if is_marked(b"\xff\xfe") {
            b"\n\0"
        } else if is_marked(b"\xfe\xff") {
            b"\0\n"
        } else {
            b"\n"
        };
        if !content.is_empty() && !content.ends_with(end) {
            content.extend_from_slice(end);
        }
    }
    ended
}

/// ripgrep 13 misses some matches of whole words and some empty ones, but finds the correct lines.
fn places_of_old_rg(dir: &Path, files: &Files, query: &Query) -> Option<Verdict> {
    let lines = Query { mode: Mode::CountLines, before: 0, after: 0, ..query.clone() };
    let is_same = matches!(against_rg_as_it_is(dir, files, &lines), Verdict::Same);
    is_same.then_some(Verdict::Known(Known::PlacesOfMatchesInOldRg))
}

/// Compares the library and grep on the same query. grep reports no columns.
pub(crate) fn against_grep(dir: &Path, files: &Files, query: &Query) -> Verdict {
    without_crs(files, query, against_grep_as_it_is(dir, files, query), against_grep_as_it_is)
}

fn against_grep_as_it_is(dir: &Path, _: &Files, query: &Query) -> Verdict {
    let Some(grep) = grep() else { return Verdict::Same };
    let ask = |query: &Query| without_zeros(read(&run(grep, dir, &query.for_grep()), query, false));
    let ours = engine_under_test::answer(dir, query).map(without_columns);
    let verdict = verdict(&ours, &ask(query), || command_line(grep, &query.for_grep()));
    if matches!(verdict, Verdict::Differs(Kind::Answer, _)) {
        let in_ascii = |pattern: &String| pattern.replace("[:alpha:]", "A-Za-z");
        let patterns = query.patterns.iter().map(in_ascii).collect();
        if ours == ask(&Query { patterns, ..query.clone() }) {
            return Verdict::Known(Known::ClassesOfGrep);
        }
    }
    verdict
}

pub(crate) fn verdict(
    ours: &Result<Answer, String>,
    theirs: &Result<Answer, String>,
    command: impl Fn() -> String,
) -> Verdict {
    match (ours, theirs) {
        // Both reject the pattern.
        (Err(error), Err(_)) if !error.contains("contradicts") => Verdict::Same,
        (Ok(ours), Ok(theirs)) if ours == theirs => Verdict::Same,
        _ => {
            let kind = if ours.is_ok() && theirs.is_ok() { Kind::Answer } else { Kind::Refusal };
            Verdict::Differs(kind, format!("  {}\n{}", command(), difference(ours, theirs)))
        }
    }
}

fn without_columns(mut answer: Answer) -> Answer {
    answer.values_mut().flatten().for_each(|cell| cell.column = 0);
    answer
}

/// Removes files with a count of zero, which grep also lists.
fn without_zeros(answer: Result<Answer, String>) -> Result<Answer, String> {
    let mut answer = answer?;
    answer.retain(|_, cells| cells.iter().all(|cell| cell.line != 0 || cell.text != b"0"));
    Ok(answer)
}

#[test]
fn lines_are_those_of_rg_and_grep() {
    let (mut run, mut random) = Run::new("lines_are_those_of_rg_and_grep");
    run.expects(&[Known::ClassesOfGrep]);
    let both = |dir: &Path, files: &Files, query: &Query| match against_rg(dir, files, query) {
        Verdict::Same => against_grep(dir, files, query),
        verdict => verdict,
    };
    for i in 0..cases(80) {
        let kinds = if i % 2 == 0 { Kinds::Text } else { Kinds::Marks };
        let files = files(&mut random, kinds);
        let dir = files.lay();
        for _ in 0..5 {
            let mut query = Query::of(&pattern(&mut random));
            if random.chance(10) {
                query.patterns.push(pattern(&mut random));
            }
            if random.chance(10) {
                query.case = Case::Insensitive;
            }
            query.invert = random.chance(10);
            if !run.case(dir.path(), &files, &query, &both) {
                return run.end();
            }
        }
    }
    run.end();
}

#[test]
fn lines_behind_byte_order_marks_are_those_of_rg() {
    let (mut run, mut random) = Run::new("lines_behind_byte_order_marks_are_those_of_rg");
    for _ in 0..cases(50) {
        let files = files(&mut random, Kinds::Marks);
        let dir = files.lay();
        for _ in 0..4 {
            let mut query = Query::of(&pattern(&mut random));
            query.encoding = Encoding::Auto;
            if !run.case(dir.path(), &files, &query, &against_rg) {
                return run.end();
            }
        }
    }
    run.end();
}
