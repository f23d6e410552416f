//! Checks that patterns match as in minimatch (compared with releases 10 and 11).

use super::*;

fn matches(pattern: &str, path: &str, with_dot: bool) -> bool {
    Glob::new(pattern, with_dot).unwrap().is_match(&path.split('/').map(folded).collect::<Vec<_>>())
}

#[test]
fn a_pattern_matches_what_minimatch_says() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("*.ts", &["a.ts", "src/deep/A.TS"], &["a.tsx", ".a.ts", "a.ts/b"]),
        ("*.{ts,tsx}", &["a.ts", "src/a.TSX"], &["a.js", "a.{ts,tsx}"]),
        ("{a,b}.*", &["a.x", "d/b.y"], &["c.x", "ab.x"]),
        ("{a,{b,c}}", &["a", "b", "c"], &["d", "{b,c}"]),
        ("{src,lib}/**/*.{rs,toml}", &["src/a.rs", "lib/x/y/b.toml"], &["a.rs", "bin/a.rs"]),
        ("**/*", &["a", "a/b", "a/b/c"], &[".a", ".a/b", "a/.b"]),
        ("**", &["a", "a/b"], &[".a"]),
        ("**/x", &["x", "a/x", "a/b/x"], &["ax", "x/y", ".a/x"]),
        ("a/**", &["a/b", "a/b/c"], &["a", "b/a"]),
        ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["a/bb", "b", "a/.x/b"]),
        ("**/a/**/b", &["a/b", "x/a/y/b", "a/a/b"], &["b/a"]),
        ("**/**/a", &["a", "x/y/a"], &["b"]),
        ("a**/b", &["axx/b", "a/b"], &["a/x/b"]),
        ("src/*.rs", &["src/a.rs"], &["src/deep/a.rs", "x/src/a.rs"]),
        ("src\\*.rs", &["src/a.rs"], &["src\\a.rs"]),
        ("/b.ts", &["/b.ts"], &["b.ts", "/a/b.ts"]),
        ("./b.ts", &["./b.ts"], &["b.ts", "/b.ts"]),
        ("b.ts/", &["b.ts/"], &["b.ts"]),
        ("a//b", &["a/b"], &["a"]),
        ("//b", &["/b"], &["b"]),
        ("x/../a/b", &["a/b"], &["b", "x/../a/b"]),
        ("*/../a/b", &["a/b"], &["x/a/b"]),
        ("../b", &["../b"], &["b"]),
        (".*/a", &[".x/a"], &["x/a"]),
        ("#a", &[], &["#a", "a"]),
        ("[#]a", &["#a"], &["a"]),
        ("!*.ts", &["a.rs", "src/a.rs"], &["a.ts", "src/a.ts"]),
        ("!!*.ts", &["a.ts"], &["a.rs"]),
        ("!src/*", &["a", "lib/a"], &["src/a"]),
        ("!#a", &["b"], &["#a"]),
        ("!(*.ts)", &["a.rs", "src/a.rs"], &["a.ts", "src/a.ts"]),
        ("!!(a)", &["a"], &["b"]),
        ("src/!(a|b).rs", &["src/c.rs"], &["src/a.rs", "src/b.rs", "c.rs"]),
        ("**/@(a|b)/+(c)", &["x/a/c", "b/ccc"], &["x/c/c"]),
        ("[a/b]", &["[a/b]"], &["a"]),
        (" \t*.ts\u{feff}", &["a.ts"], &["a.rs"]),
        ("a b", &["a b"], &["ab"]),
        ("", &[], &["a"]),
    ];
    for (pattern, yes, no) in cases {
        for path in *yes {
            assert!(matches(pattern, path, false), "{pattern:?} must match {path}");
        }
        for path in *no {
            assert!(!matches(pattern, path, false), "{pattern:?} must not match {path}");
        }
    }
}

#[test]
fn names_with_a_dot_are_matched_when_they_are_asked_for() {
    for (pattern, path) in
        [("**/*", ".a/b"), ("**", "a/.b"), ("*", ".a"), ("a/**/b", "a/.x/b"), ("*rc", ".bashrc")]
    {
        assert!(matches(pattern, path, true) && !matches(pattern, path, false), "{pattern} {path}");
    }
}

#[test]
fn a_pattern_that_is_too_large_is_refused() {
    let refusal = |pattern: &str| Glob::new(pattern, false).unwrap_err();
    assert_eq!(refusal(&"a".repeat(4097)), GlobError::TooLong { max: 4096 });
    assert_eq!(refusal(&"{a,b}".repeat(20)), GlobError::TooManyPatterns { max: 1024 });
}

#[test]
fn only_the_name_decides_where_no_pattern_has_a_slash() {
    for (pattern, by_name) in [("*.{a,b}", true), ("{a,b/c}", false), ("/a", false), ("#a/b", true)]
    {
        assert_eq!(Glob::new(pattern, false).unwrap().is_by_name(), by_name, "{pattern}");
    }
}
