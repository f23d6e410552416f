//! Differences found by random cases, shrunk and stored. Fixed differences must not return, and intended
//! differences must not change.

use crate::known_differences::Known;
use crate::query::{Encoding, Mode, Multiline};
use crate::run::Run;
use crate::selection::Selection;
use crate::situations::{
    Situation, basic, change, compare, files, files_as, lines, plain_files, query,
};

const X: &[u8] = b"x\n";

fn mended() -> Vec<Situation> {
    vec![
        basic("a repetition without a lower bound", b"b\naab\naaab\n", r"^a\{,2\}b"),
        basic("a repetition of nothing is text", b"a?b\nab\n+\n", r"\(\+\)"),
        lines("an empty match at the end of a last line has a place", b"r", query("$", |_| ())),
        lines("and behind a mark", b"\xff\xfer\0", query("a?$", |q| q.encoding = Encoding::Auto)),
        lines(
            "an answer in lines counts lines",
            b"\n\n",
            query(r"\s", |q| (q.multiline, q.mode) = (Multiline::On, Mode::CountLines)),
        ),
        lines(
            "a match that ends its line does not reach the next one",
            b"bar\nfoo\n",
            query(r"bar\n", |q| (q.multiline, q.mode) = (Multiline::On, Mode::OnlyMatching)),
        ),
    ]
}

fn meant() -> Vec<Situation> {
    let shown = Selection { hidden: true, ..Selection::default() };
    vec![
        files("alternatives", &[(".gitignore", b"*.{a,b}\n"), ("x.a", X), ("x.c", X)]),
        files("a rule after a letter", &[(".gitignore", b"a**/a?\n"), ("a b/foo/ab/x", X)]),
        files("a tab behind a rule", &[(".gitignore", b"foo\t\n"), ("foo", X)]),
        files("an exclamation mark alone", &[(".gitignore", b"*\n!\n"), ("foo", X)]),
        files("three stars", &[(".gitignore", b"***/x\n"), ("x", X), ("d/e/x", X)]),
        files_as(
            "a type shows what is hidden",
            &[(".x.rs", X), ("x.rs", X), ("x.c", X)],
            Selection { types: vec!["rust".into()], ..Selection::default() },
        ),
        plain_files(
            "a start in which everything is ignored by its own rules",
            &[("d/.gitignore", b"*\n"), ("d/a", X)],
            Selection { start: "d".into(), ..shown },
        ),
        lines(
            "matches of lines without any",
            b"a\nb\n",
            query("a", |q| (q.invert, q.mode) = (true, Mode::OnlyMatching)),
        ),
        lines(
            "context of limited lines without a match",
            b"a\nb\nc\nd\n",
            query("x", |q| (q.invert, q.max_per_file, q.after) = (true, Some(1), 1)),
        ),
        lines(
            "the only match is empty and at the end",
            b"b",
            query("$", |q| q.mode = Mode::OnlyMatching),
        ),
        files("a tab and a carriage return", &[(".gitignore", b"*\n!a\t\r\n"), ("a", X)]),
        lines("an empty match at the end", b"ab", query("x*$", |_| ())),
        basic("letters of all languages", "[\u{fc}\n".as_bytes(), "[[:alpha:]]"),
        change(
            "an empty match inside a character",
            "\u{e9}\n".as_bytes(),
            query("()", |_| ()),
            "-",
        ),
        change("an empty match behind the last character", b"ab", query("x*$", |_| ()), "-"),
    ]
}

#[test]
fn differences_that_were_found_stay_gone() {
    let (mut run, _) = Run::new("differences_that_were_found_stay_gone");
    for regression in &mended() {
        compare(&mut run, regression);
    }
    run.end();
}

#[test]
fn differences_that_are_meant_are_all_there() {
    let (mut run, _) = Run::new("differences_that_are_meant_are_all_there");
    run.expects(&[
        Known::BracesInIgnoreFiles,
        Known::BeginningsOfRulesInGit,
        Known::TabsAtEndsOfRules,
        Known::LoneExclamationMarks,
        Known::StarsInARow,
        Known::TypesShowHiddenNames,
        Known::IgnoredStartIsSearched,
        Known::MatchesOfLinesWithoutAny,
        Known::LineInPlaceOfAnEmptyMatch,
        Known::EmptyMatchAtUnterminatedEnd,
        Known::ClassesOfGrep,
        Known::EmptyMatchInsideACharacter,
    ]);
    for regression in &meant() {
        compare(&mut run, regression);
    }
    run.end();
}
