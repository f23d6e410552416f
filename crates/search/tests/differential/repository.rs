//! Compares searches for the most frequent words of this repository with ripgrep.

use crate::lines::against_rg;
use crate::programs::{rg, run};
use crate::query::{Boundary, Mode, Query, words};
use crate::random::cases;
use crate::run::Run;
use crate::tree::Files;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Maximum number of occurrences of a word. More frequent words have more rows than an answer can contain.
const MAX_OCCURRENCES: usize = 9_000;

/// Copies the text files that ripgrep lists here, so that they cannot change during the test. Around bytes that are not
/// text, the library and ripgrep do not always see the same words.
fn repository() -> Option<Files> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = run(rg()?, &root, &words("--no-config --files --hidden -0 -g !.git ."));
    let mut files = Files::default();
    for name in crate::normalized_output::names(&said.stdout) {
        let name = String::from_utf8(name).expect("our names are text");
        let Ok(content) = fs::read(root.join(&name)) else { continue };
        if !content.contains(&0) {
            files.0.push((name, content));
        }
    }
    Some(files)
}

fn commonest(files: &Files, n: usize) -> Vec<String> {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (_, content) in &files.0 {
        let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        for word in content.split(|byte| !is_inside(byte)).filter(|word| 1 < word.len()) {
            *counts.entry(word).or_default() += 1;
        }
    }
    let mut words: Vec<(usize, &[u8])> = counts.into_iter().map(|(word, n)| (n, word)).collect();
    words.retain(|(count, _)| *count < MAX_OCCURRENCES);
    words.sort_by(|a, b| b.cmp(a));
    words.iter().take(n).map(|(_, word)| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn the_commonest_words_of_this_repository_are_found_where_rg_finds_them() {
    let (mut run, _) = Run::new("the_commonest_words_of_this_repository");
    let Some(files) = repository() else { return };
    let dir = files.lay();
    for (i, word) in commonest(&files, cases(100)).iter().enumerate() {
        let mut query = Query::of(word);
        query.mode = [Mode::Lines, Mode::CountLines, Mode::CountMatches, Mode::Files][i % 4];
        // A word that is a part of other words may have more rows than occurrences.
        query.boundary = Boundary::Word;
        query.before = usize::from(i % 8 == 0);
        if !run.case(dir.path(), &files, &query, &against_rg) {
            break;
        }
    }
    run.end();
}
