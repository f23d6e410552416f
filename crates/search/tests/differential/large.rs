//! Compares files of more than 64 MiB with ripgrep. The library reads such files in blocks.

use crate::engine_under_test;
use crate::lines::by_rg;
use crate::normalized_output::Answer;
use crate::programs::rg;
use crate::query::{Case, Mode, Query};
use crate::random::{Random, say};
use std::fs;
use std::path::Path;
use std::time::Instant;

const MIB: usize = 1 << 20;

/// Creates a file with matches at the borders of each MiB and at a few other places.
fn content(random: &mut Random, newline: &str, ends: bool) -> Vec<u8> {
    let dull: Vec<String> = (0..1000)
        .map(|_| format!("{}{newline}", "some other text ".repeat(random.below(12))))
        .collect();
    let mut content = Vec::with_capacity(66 * MIB);
    for border in 1..=65 {
        // The border is before, in or after a matching line, or in its newline.
        let end = border * MIB - random.below(12);
        let room = 2 * dull.iter().map(String::len).max().unwrap_or(0);
        while content.len() + room < end {
            content.extend_from_slice(dull[random.below(dull.len())].as_bytes());
            if random.below(20_000) == 0 {
                content.extend_from_slice(format!("a Needle, a needle{newline}").as_bytes());
            }
        }
        content.resize(end - newline.len(), b'-');
        content.extend_from_slice(format!("{newline}needle{newline}needle{newline}").as_bytes());
    }
    content.extend_from_slice(if ends { b"" } else { b"the last needle" });
    content
}

/// Returns the queries for one file.
fn queries() -> Vec<Query> {
    let query = |pattern: &str, change: &dyn Fn(&mut Query)| {
        let mut query = Query::of(pattern);
        change(&mut query);
        query
    };
    vec![
        query("needle", &|_| ()),
        query("needle|absent|missing", &|q| q.case = Case::Insensitive),
        query("absent", &|_| ()),
        query("absent", &|q| q.mode = Mode::FilesWithout),
        query("needle", &|q| (q.before, q.after) = (2, 3)),
        query("needle", &|q| (q.max_per_file, q.after) = (Some(70), 2)),
        query("text", &|q| q.mode = Mode::CountLines),
        query("needle", &|q| q.mode = Mode::CountMatches),
        query(r"[Nn]eed\w+", &|q| q.mode = Mode::OnlyMatching),
        query("^$|text|-", &|q| q.invert = true),
    ]
}

/// Compares all answers about the files of a directory.
fn compare(dir: &Path, queries: &[Query]) {
    let Some(rg) = rg() else { return };
    for query in queries {
        let ours = engine_under_test::answer(dir, query).expect("an answer");
        let theirs = by_rg(rg, dir, query).expect("an answer of ripgrep");
        // The answers are too long to be printed.
        let first = |one: &Answer, other: &Answer| {
            let cells = |answer: &Answer| answer.values().flatten().cloned().collect::<Vec<_>>();
            cells(one).into_iter().zip(cells(other)).find(|(one, other)| one != other)
        };
        let n = |answer: &Answer| answer.values().map(Vec::len).sum::<usize>();
        let is_same = ours == theirs;
        let (n_ours, n_theirs) = (n(&ours), n(&theirs));
        assert!(is_same, "{query:?}: {n_ours}, {n_theirs}, {:?}", first(&ours, &theirs));
    }
}

#[test]
fn large_files_have_the_lines_of_rg() {
    let started = Instant::now();
    let mut random = Random::of("large_files_have_the_lines_of_rg");
    let queries = queries();
    let (mut newline, mut ends) = ("\n", true);
    for queries in [queries.as_slice(), queries.get(..6).unwrap_or_default()] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("empty"), b"").expect("write a file");
        fs::write(dir.path().join("large"), content(&mut random, newline, ends)).expect("write");
        fs::write(dir.path().join("small"), b"needle\n").expect("write a file");
        compare(dir.path(), queries);
        (newline, ends) = ("\r\n", false);
    }
    say(&format!("differential: large files: {:.1} s", started.elapsed().as_secs_f64()));
}
