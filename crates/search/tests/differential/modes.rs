//! Compares counts, files, matches, context, limits, case, words, lines, inversion and matches across lines
//! with ripgrep.

use crate::content::{Kinds, files, literal, pattern};
use crate::engine_under_test;
use crate::known_differences::Known;
use crate::lines::{against_rg, verdict};
use crate::query::{Boundary, Case, Encoding, Mode, Multiline, Query};
use crate::random::{Random, cases};
use crate::run::{Run, Verdict};
use crate::tree::Files;
use std::path::Path;

fn mode(random: &mut Random) -> Mode {
    [
        Mode::Lines,
        Mode::Lines,
        Mode::OnlyMatching,
        Mode::Files,
        Mode::FilesWithout,
        Mode::CountLines,
        Mode::CountMatches,
    ][random.below(7)]
}

fn switches(random: &mut Random, query: &mut Query) {
    query.mode = mode(random);
    if random.chance(20) {
        query.case = Case::Insensitive;
    } else if random.chance(20) {
        query.case = Case::Smart;
    }
    if random.chance(15) {
        query.boundary = Boundary::Word;
    } else if random.chance(10) {
        query.boundary = Boundary::Line;
    }
    query.invert = random.chance(12);
    if query.mode == Mode::Lines && random.chance(50) {
        query.before = random.below(4);
        query.after = random.below(4);
    }
    if random.chance(15) {
        query.max_per_file = Some(1 + random.below(3) as u64);
    }
    if random.chance(8) {
        query.types.push(random.pick(&["rust", "py", "md", "c"]).to_owned());
    } else if random.chance(8) {
        query.types_not.push(random.pick(&["rust", "py", "md", "c"]).to_owned());
    }
}

#[test]
fn modes_and_switches_are_those_of_rg() {
    let (mut run, mut random) = Run::new("modes_and_switches_are_those_of_rg");
    run.expects(&[Known::MatchesOfLinesWithoutAny]);
    for i in 0..cases(100) {
        let kinds = [Kinds::Text, Kinds::Bytes, Kinds::Marks][i % 3];
        let files = files(&mut random, kinds);
        let dir = files.lay();
        for _ in 0..5 {
            let is_fixed = random.chance(20);
            let text = if is_fixed { literal(&mut random) } else { pattern(&mut random) };
            let mut query = Query { fixed: is_fixed, ..Query::of(&text) };
            if random.chance(15) {
                query.patterns.push(pattern(&mut random));
            }
            switches(&mut random, &mut query);
            if kinds == Kinds::Marks && random.chance(50) {
                query.encoding = Encoding::Auto;
            }
            if !run.case(dir.path(), &files, &query, &against_rg) {
                return run.end();
            }
        }
    }
    run.end();
}

/// Generates a pattern that may cross lines.
fn crossing(random: &mut Random) -> String {
    let (a, b) = (pattern(random), pattern(random));
    match random.below(6) {
        0 => format!("{a}\\n"),
        1 => format!("{a}\\r?\\n{b}"),
        2 => format!("\\n({b})"),
        3 => format!("({a})(?s:.*)({b})"),
        4 => format!("{a}\\s+{b}"),
        _ => a,
    }
}

#[test]
fn matches_across_lines_are_those_of_rg() {
    let (mut run, mut random) = Run::new("matches_across_lines_are_those_of_rg");
    for i in 0..cases(50) {
        let kinds = if i % 2 == 0 { Kinds::Text } else { Kinds::Bytes };
        let files = files(&mut random, kinds);
        let dir = files.lay();
        for _ in 0..5 {
            let mut query = Query::of(&crossing(&mut random));
            query.multiline = if random.chance(50) { Multiline::On } else { Multiline::DotAll };
            query.mode = mode(&mut random);
            if query.mode == Mode::Lines && random.chance(40) {
                query.before = random.below(3);
                query.after = random.below(3);
            }
            if random.chance(15) {
                query.max_per_file = Some(1 + random.below(3) as u64);
            }
            if !run.case(dir.path(), &files, &query, &against_rg) {
                return run.end();
            }
        }
    }
    run.end();
}

/// The library skips files with a NUL byte completely, while ripgrep may return the lines before it. The
/// expected answer is that of a tree without such files.
fn without_binary(dir: &Path, files: &Files, query: &Query) -> Verdict {
    let mut text = files.clone();
    text.0.retain(|(_, content)| !content.contains(&0));
    let text_dir = text.lay();
    let (ours, of_text) =
        (engine_under_test::answer(dir, query), engine_under_test::answer(text_dir.path(), query));
    match verdict(&ours, &of_text, || {
        "the library without the files that have a NUL byte".to_owned()
    }) {
        Verdict::Same => against_rg(text_dir.path(), &text, query),
        verdict => verdict,
    }
}

#[test]
fn files_with_nul_bytes_are_left_out_and_no_others() {
    let (mut run, mut random) = Run::new("files_with_nul_bytes_are_left_out_and_no_others");
    for _ in 0..cases(30) {
        let files = files(&mut random, Kinds::Bytes);
        let dir = files.lay();
        for _ in 0..4 {
            let mut query = Query::of(&pattern(&mut random));
            query.mode = mode(&mut random);
            query.binary_too = false;
            if !run.case(dir.path(), &files, &query, &without_binary) {
                return run.end();
            }
        }
    }
    run.end();
}
