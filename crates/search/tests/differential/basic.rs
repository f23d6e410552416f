//! Compares basic regular expressions with GNU grep without `-E`.

use crate::content::{Kinds, files};
use crate::lines::against_grep;
use crate::query::{Boundary, Case, Mode, Query};
use crate::random::{Random, cases};
use crate::run::Run;

/// Generates a basic expression. Excludes constructs that POSIX leaves open and programs interpret differently:
/// operators with nothing before them, other than a star; back-references; letters after a backslash.
fn pattern(random: &mut Random) -> String {
    let mut pattern = alternatives(random, 2);
    if random.chance(12) {
        pattern.insert(0, '^');
    }
    if random.chance(5) {
        pattern.insert(0, '*');
    }
    if random.chance(12) {
        pattern.push('$');
    }
    pattern
}

fn alternatives(random: &mut Random, depth: usize) -> String {
    let n = if random.chance(25) { 2 } else { 1 };
    let branches: Vec<String> = (0..n).map(|_| sequence(random, depth)).collect();
    branches.join("\\|")
}

fn sequence(random: &mut Random, depth: usize) -> String {
    let mut sequence = String::new();
    for _ in 0..1 + random.below(4) {
        let atom = atom(random, depth);
        sequence.push_str(&atom);
        // The meaning of repeating an empty match is open too.
        let ends_in_assertion = ["^", "$", "\\>", "\\B"].iter().any(|end| atom.ends_with(end));
        if !ends_in_assertion && random.chance(22) {
            let repeat =
                ["*", "\\+", "\\?", "\\{2\\}", "\\{1,2\\}", "\\{2,\\}", "\\{0,1\\}", "\\{,2\\}"];
            sequence.push_str(random.pick(&repeat));
        }
    }
    sequence
}

fn atom(random: &mut Random, depth: usize) -> String {
    match random.below(14) {
        0..=4 => {
            random.pick(&["a", "b", "c", "foo", "o", "bar", "é", "1", "_", "-", " "]).to_owned()
        }
        5 => ".".to_owned(),
        6 => random
            .pick(&[
                "[ab]",
                "[a-c]",
                "[^a]",
                "[]a]",
                "[^]a]",
                "[a-]",
                "[[:space:]]",
                "[.*]",
                "[\\]",
            ])
            .to_owned(),
        7 => random
            .pick(&["\\.", "\\*", "\\[", "\\]", "\\$", "\\^", "\\\\", "\\-", "\\/"])
            .to_owned(),
        8 | 9 => random.pick(&["+", "?", "|", "(", ")", "{", "}", "{2}", "(a)", "a|b"]).to_owned(),
        10 => random.pick(&["a^b", "^a", "a$b", "$a", "b$", "^"]).to_owned(),
        11 => random.pick(&["\\<a", "o\\>", "\\bf", "\\w", "\\W", "\\s", "\\S", "\\B"]).to_owned(),
        _ if 0 < depth => format!("\\({}\\)", alternatives(random, depth - 1)),
        _ => "b".to_owned(),
    }
}

#[test]
fn basic_expressions_find_what_they_find_for_grep() {
    let (mut run, mut random) = Run::new("basic_expressions_find_what_they_find_for_grep");
    for i in 0..cases(80) {
        let kinds = if i % 2 == 0 { Kinds::Text } else { Kinds::Bytes };
        let files = files(&mut random, kinds);
        let dir = files.lay();
        for _ in 0..5 {
            let mut pattern = pattern(&mut random);
            if kinds == Kinds::Bytes {
                // It is open whether a word ends at a byte outside UTF-8. The regex crate accepts a word end
                // there; grep accepts neither a word end nor its opposite.
                for assertion in ["\\b", "\\B", "\\<", "\\>"] {
                    pattern = pattern.replace(assertion, "");
                }
            }
            if pattern.is_empty() {
                continue;
            }
            let mut query = Query { basic: true, ..Query::of(&pattern) };
            query.invert = random.chance(5);
            if random.chance(10) {
                query.case = Case::Insensitive;
            }
            if random.chance(5) {
                query.boundary = Boundary::Line;
            }
            if random.chance(10) {
                query.mode = Mode::CountLines;
            }
            if !run.case(dir.path(), &files, &query, &against_grep) {
                return run.end();
            }
        }
    }
    run.end();
}
