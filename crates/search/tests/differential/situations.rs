//! A table of situations that once were bugs or surprises in search programs. Each is given to the library and
//! to ripgrep (and to git, if it applies).

use crate::known_differences::Known;
use crate::lines;
use crate::programs;
use crate::query::{Boundary, Case, Encoding, Mode, Multiline, Query};
use crate::replace::{self, Change, FILE};
use crate::run::{Run, Verdict};
use crate::selection::{self, Selection};
use crate::tree::Files;
use std::path::Path;

/// Query of a situation.
pub(crate) enum Ask {
    Files(Selection),
    Lines(Query),
    /// A basic expression, compared with grep instead of ripgrep.
    Basic(Query),
    Change(Change),
}

/// A tree and a query, named by the behavior that it shows.
pub(crate) struct Situation {
    name: &'static str,
    files: Files,
    ask: Ask,
}

/// Situations in which ripgrep 13 differs from later versions.
const MENDED_AFTER_OLD_RG: &[&str] = &[
    "an escaped slash at the end",
    "a class that does not end is no rule, and not an error",
    "flags of one pattern do not leak into the next",
    "a limit across lines",
];

type Tree<'a> = &'a [(&'a str, &'a [u8])];

/// Creates a query for the files of a repository, including hidden files.
pub(crate) fn files(name: &'static str, tree: Tree<'_>) -> Situation {
    files_as(name, tree, Selection { hidden: true, ..Selection::default() })
}

pub(crate) fn files_as(name: &'static str, tree: Tree<'_>, selection: Selection) -> Situation {
    let mut files = Files::of(tree);
    files.add_repository("");
    Situation { name, files, ask: Ask::Files(selection) }
}

/// Like [`files`], without a repository and with ripgrep's own ignore files.
pub(crate) fn plain_files(name: &'static str, tree: Tree<'_>, selection: Selection) -> Situation {
    let selection = Selection { dot_ignore: true, ..selection };
    Situation { name, files: Files::of(tree), ask: Ask::Files(selection) }
}

pub(crate) fn lines(name: &'static str, content: &[u8], query: Query) -> Situation {
    Situation { name, files: Files::of(&[(FILE, content)]), ask: Ask::Lines(query) }
}

/// A basic expression.
pub(crate) fn basic(name: &'static str, content: &[u8], pattern: &str) -> Situation {
    let query = Query { basic: true, ..Query::of(pattern) };
    Situation { name, files: Files::of(&[(FILE, content)]), ask: Ask::Basic(query) }
}

pub(crate) fn change(
    name: &'static str,
    content: &[u8],
    query: Query,
    template: &str,
) -> Situation {
    let ask = Ask::Change(Change { query, template: template.to_owned() });
    Situation { name, files: Files::of(&[(FILE, content)]), ask }
}

pub(crate) fn query(pattern: &str, change: impl Fn(&mut Query)) -> Query {
    let mut query = Query::of(pattern);
    change(&mut query);
    query
}

fn from(start: &str) -> Selection {
    Selection { start: start.to_owned(), hidden: true, ..Selection::default() }
}

const X: &[u8] = b"x\n";

/// Rules of `.gitignore`.
fn rules() -> Vec<Situation> {
    vec![
        files(
            "a rule with a slash at its end means directories at any depth",
            &[
                (".gitignore", b"ghi/\n"),
                ("ghi/toplevel.txt", X),
                ("def/ghi/subdir.txt", X),
                ("abc/ghi", X),
            ],
        ),
        files(
            "a slash at the beginning anchors to the directory of the file",
            &[
                (".gitignore", b"/llvm/\n"),
                ("src/llvm/foo", X),
                ("llvm/foo", X),
                ("src/.gitignore", b"/own\n"),
                ("src/own", X),
                ("src/deep/own", X),
            ],
        ),
        files(
            "what is below a directory can come back one by one",
            &[
                (".gitignore", b"vendor/**\n!vendor/manifest\n"),
                ("vendor/manifest", X),
                ("vendor/other", X),
            ],
        ),
        files(
            "a slash in the middle anchors too",
            &[(".gitignore", b"foo/bar\n"), ("test/foo/bar/baz", X), ("foo/bar/baz", X)],
        ),
        files(
            "a slash in the middle anchors wildcards",
            &[
                (".gitignore", b"XXX/YYY/\nabc/*.x\n"),
                ("abc/def/XXX/YYY/bar", X),
                ("XXX/YYY/bar", X),
                ("abc/a.x", X),
                ("z/abc/a.x", X),
            ],
        ),
        files(
            "everything goes and one directory comes back",
            &[(".gitignore", b"/*\n!/dir\n"), ("dir/bar", X), ("foo", X), ("dir/sub/baz", X)],
        ),
        files(
            "stars beside letters are one star",
            &[
                (".gitignore", b"foo\n**no-vcs**\n"),
                ("foo", X),
                ("no-vcs", X),
                ("a-no-vcs-b", X),
                ("d/no-vcs1", X),
            ],
        ),
        files(
            "two stars between letters do not cross directories",
            &[(".gitignore", b"a**b\n"), ("afoob", X), ("a/b", X), ("ab", X), ("a/foo/b", X)],
        ),
        files(
            "two stars alone mean everything",
            &[(".gitignore", b"**\n"), ("foo", X), ("a/b", X)],
        ),
        files(
            "two stars twice mean everything below",
            &[(".gitignore", b"**/**/*\n"), ("foo", X), ("a/b/c/d", X)],
        ),
        files(
            "an escaped letter is the letter",
            &[(".gitignore", b"f\\oo\n\\#hash\n\\!bang\n"), ("foo", X), ("#hash", X), ("!bang", X)],
        ),
        files(
            "an escaped slash at the end",
            &[(".gitignore", b"foo\\/\n"), ("foo/bar", X), ("b", X)],
        ),
        files(
            "blanks at the end are not part of a rule unless escaped",
            &[
                (".gitignore", b"foo  \nbar\\ \n"),
                ("foo", X),
                ("foo  ", X),
                ("bar ", X),
                ("bar", X),
            ],
        ),
        files(
            "letters outside ASCII",
            &[(".gitignore", "TopÑapa\n".as_bytes()), ("TopÑapa", X), ("a", X)],
        ),
        files(
            "a class that does not end is no rule, and not an error",
            &[(".gitignore", b"[abc\nfoo\n"), ("[abc", X), ("a", X), ("foo", X)],
        ),
        files(
            "a byte order mark before the first rule",
            &[(".gitignore", b"\xef\xbb\xbffoo\nbar\n"), ("foo", X), ("bar", X), ("baz", X)],
        ),
        files(
            "carriage returns at the ends of rules",
            &[(".gitignore", b"foo\r\nbar/\r\n"), ("foo", X), ("bar/a", X), ("baz", X)],
        ),
        files(
            "rules of git's own exclude file",
            &[
                (".git/info/exclude", b"foo\n/b/c\n"),
                ("foo", X),
                ("a/foo", X),
                ("b/c", X),
                ("a/b/c", X),
            ],
        ),
        files(
            "a nearer file wins against one above",
            &[
                (".gitignore", b"*.log\n"),
                ("a/.gitignore", b"!keep.log\n"),
                ("a/keep.log", X),
                ("a/b.log", X),
                ("keep.log", X),
            ],
        ),
        files(
            "a file below an ignored directory cannot come back",
            &[(".gitignore", b"dir/\n!dir/keep\n"), ("dir/keep", X), ("dir/other", X)],
        ),
        files(
            "the last rule that fits decides",
            &[
                (".gitignore", b"!foo\nfoo\n"),
                ("foo", X),
                ("sub/.gitignore", b"foo\n!foo\n"),
                ("sub/foo", X),
            ],
        ),
        files(
            "a dot directory with a rule below it",
            &[(".gitignore", b".a/b\n"), (".a/b", X), (".a/c", X), ("d/.a/b", X)],
        ),
        files(
            "names with blanks and brackets",
            &[
                (".gitignore", b"a b/\n/x\\[1\\]\n"),
                ("a b/c", X),
                ("x[1]", X),
                ("x1", X),
                ("d/x[1]", X),
            ],
        ),
        files(
            "a directory that is called minus",
            &[(".gitignore", b"a\n"), ("-/a", X), ("-/b", X)],
        ),
    ]
}

/// Names with a dot, start paths, ignore files of ripgrep, limits.
fn places() -> Vec<Situation> {
    let shown = Selection { hidden: true, ..Selection::default() };
    let hidden = Selection::default();
    vec![
        files_as(
            "names with a dot are left out",
            &[(".foo", X), (".d/a", X), ("a", X)],
            hidden.clone(),
        ),
        files_as(
            "a rule with an exclamation mark brings a dot name back",
            &[(".gitignore", b"!.foo\n"), (".foo", X), (".bar", X)],
            hidden.clone(),
        ),
        files_as(
            "rules for all dot names do not hide the root",
            &[(".gitignore", b".*\n!.*.x\n"), ("a", X), (".a.x", X), (".b", X)],
            shown.clone(),
        ),
        files_as(
            "rules above a start hold below it",
            &[
                (".gitignore", b"/src/generated\n*.log\n"),
                ("src/generated/a", X),
                ("src/a.log", X),
                ("src/a", X),
            ],
            from("src"),
        ),
        files_as(
            "rules of directories between root and start hold",
            &[
                ("a/.gitignore", b"/b/c\nd\n"),
                ("a/b/c", X),
                ("a/b/d", X),
                ("a/b/e", X),
                ("a/b/x/c", X),
            ],
            from("a/b"),
        ),
        files_as(
            "a start that is ignored by name",
            &[(".gitignore", b"node_modules/\n"), ("node_modules/a", X), ("b", X)],
            from("node_modules"),
        ),
        files_as(
            "a start of which everything is ignored",
            &[(".gitignore", b"scripts/*\n"), ("scripts/a", X), ("b", X)],
            from("scripts"),
        ),
        files_as(
            "a hidden start",
            &[(".hid/a", X), (".hid/.b", X)],
            Selection { hidden: false, ..from(".hid") },
        ),
        files_as(
            "a start whose name begins another's",
            &[("foo/a", X), ("foobar/b", X)],
            from("foo"),
        ),
        files_as(
            "a repository below ends the climb of its files",
            &[
                (".gitignore", b"foo\n"),
                ("sub/.git/HEAD", b"ref: refs/heads/main\n"),
                ("sub/foo", X),
                ("sub/bar", X),
            ],
            from("sub"),
        ),
        files_as(
            "a work tree's file in place of the directory ends it too",
            &[
                (".gitignore", b"foo\n"),
                ("sub/.git", b"gitdir: ../elsewhere\n"),
                ("sub/foo", X),
                ("sub/bar", X),
            ],
            from("sub"),
        ),
        plain_files(
            "without a repository the rules hold all the same",
            &[(".gitignore", b"foo\n"), ("foo", X), ("bar", X)],
            shown.clone(),
        ),
        plain_files(
            "an ignore file of ripgrep outranks git's",
            &[
                (".gitignore", b"foo\n"),
                (".ignore", b"!foo\nbar\n"),
                ("foo", X),
                ("bar", X),
                ("baz", X),
            ],
            shown.clone(),
        ),
        plain_files(
            "the more special ignore file outranks the other",
            &[(".ignore", b"foo\n"), (".rgignore", b"!foo\n"), ("foo", X), ("bar", X)],
            shown.clone(),
        ),
        plain_files(
            "braces in ignore files are alternatives",
            &[(".gitignore", b"*.{a,b}\n"), ("x.a", X), ("x.b", X), ("x.c", X)],
            shown.clone(),
        ),
        plain_files(
            "a depth of one",
            &[("a", X), ("d/b", X)],
            Selection { max_depth: Some(1), ..shown.clone() },
        ),
        plain_files(
            "a depth of two from a start",
            &[("d/a", X), ("d/e/b", X), ("d/e/f/c", X)],
            Selection { max_depth: Some(2), ..from("d") },
        ),
        plain_files(
            "files that are just as large as allowed",
            &[("a", b"1234"), ("b", b"12345"), ("c", b"")],
            Selection { max_filesize: Some(4), ..shown.clone() },
        ),
        plain_files(
            "types",
            &[("a.rs", X), ("b.c", X), ("Makefile", X), ("c.txt", X)],
            Selection { types: vec!["rust".into(), "make".into()], ..shown.clone() },
        ),
        plain_files(
            "types that are not wanted",
            &[("a.rs", X), ("b.c", X), ("c", X)],
            Selection { types_not: vec!["rust".into()], ..shown },
        ),
    ]
}

/// Bytes, ends of lines, encodings.
fn bytes() -> Vec<Situation> {
    let multiline = |q: &mut Query| q.multiline = Multiline::On;
    let only = |q: &mut Query| q.mode = Mode::OnlyMatching;
    let with_marks = |q: &mut Query| q.encoding = Encoding::Auto;
    let shift_jis: &[u8] = b"\x84Y\x84u\x84\x82\x84|\x84\x80\x84{ \x84V\x84\x80\x84|\x84}\x84\x83";
    let utf16: &[u8] = b"\xff\xfe(\x045\x04@\x04;\x04>\x04:\x04 \x00%\x04>\x04;\x04<\x04A\x04";
    vec![
        lines("Shift JIS", shift_jis, query("Шерлок", |q| q.encoding = Encoding::Label("sjis"))),
        lines("UTF-16 by its mark", utf16, query("Шерлок Холмс", with_marks)),
        lines(
            "UTF-16 by its name",
            &utf16[2..],
            query("Шерлок", |q| q.encoding = Encoding::Label("utf-16le")),
        ),
        lines("UTF-16 is bytes if marks are not looked for", utf16, query("Шерлок", |_| ())),
        lines(
            "an unknown encoding",
            b"a\n",
            query("a", |q| q.encoding = Encoding::Label("foobar")),
        ),
        lines(
            "a mark of UTF-8 before the beginning",
            b"\xef\xbb\xbf# Heading\n",
            query("^# H", with_marks),
        ),
        lines("a mark of UTF-8 that is text", b"\xef\xbb\xbf# Heading\n", query("^# H", |_| ())),
        lines("columns behind a mark", b"\xef\xbb\xbfabc\n", query("bc", with_marks)),
        lines("bytes that are not UTF-8", b"quux\xffbaz\n\xe9t\xe9\n", query("quux|t", |_| ())),
        lines("a point is not a byte outside UTF-8", b"a\xffb\naxb\n", query("a.b", |_| ())),
        lines("a carriage return is not an end", b"foo\r\nbar\r\n", query("foo$", |_| ())),
        lines("a carriage return is white space", b"foo\r\n", query("foo\\s$", |_| ())),
        lines(
            "a vertical tab is not an end",
            b"01234567\x0bcdefghi\x0b\x0bab\n",
            query("0|ab", |_| ()),
        ),
        lines("a line without an end", b"foo\nbar", query("bar", |_| ())),
        lines("an empty file", b"", query("()", |_| ())),
        lines("an end alone", b"\n", query("^$", |_| ())),
        lines("NUL bytes are text if asked", b"a\0foo\nfoo\n", query("foo", |_| ())),
        lines("a NUL byte in a pattern", b"a\0b\nab\n", query("a\\x00b", |_| ())),
        lines("only matches before carriage returns", b"ab\r\nb\r\n", query(".*", only)),
        lines("matches across carriage returns", b"a\r\nb\r\n", query("a\\s+b", multiline)),
    ]
}

/// Meaning of patterns.
fn patterns() -> Vec<Situation> {
    let word = |q: &mut Query| q.boundary = Boundary::Word;
    let only_words = |q: &mut Query| (q.boundary, q.mode) = (Boundary::Word, Mode::OnlyMatching);
    let smart = |q: &mut Query| q.case = Case::Smart;
    let insensitive = |q: &mut Query| q.case = Case::Insensitive;
    vec![
        lines(
            "a part that cannot be taken for all",
            b"192.168.1.1\n",
            query(r"(\d{1,3}\.){3}\d{1,3}", |_| ()),
        ),
        lines(
            "hash signs and quotes",
            b"#parse('widgets/a.vm')\n",
            query(r##"#(?:parse|include)\s*\("##, |_| ()),
        ),
        lines("smart case does not count escapes", b"tEsT\ntest\n", query(r"\btest\b", smart)),
        lines("smart case counts capitals", b"tEsT\ntest\n", query("tEst", smart)),
        lines("smart case and a class", b"S\ns\n", query(r"\S\w*", smart)),
        lines(
            "smart case with several patterns",
            b"A\na\nB\nb\n",
            query("A", |q| {
                (q.case, q.patterns) = (Case::Smart, vec!["A".to_owned(), "b".to_owned()]);
            }),
        ),
        lines(
            "letters outside ASCII have two cases",
            "привет\nПривет\n".as_bytes(),
            query("привет", insensitive),
        ),
        lines(
            "words with signs at their ends",
            "peshwaship 're' seminomata\n".as_bytes(),
            query("'re'", |q| {
                (q.boundary, q.mode) = (Boundary::Word, Mode::OnlyMatching);
            }),
        ),
        lines(
            "alternatives inside words",
            b"min minimum amin\nmax maximum amax\n",
            query("min|max", only_words),
        ),
        lines("repetitions that are small", b"153.230000\n", query(r"\d\d\d00", |_| ())),
        lines("a cut literal", b"ccc\n", query(r"aa|\bcc", |_| ())),
        lines("literals of all sorts", b"foo\xe2\x98\x83bar\n", query("foo☃bar|x", word)),
        lines(
            "repetition of a class with spaces",
            b"abcdefghijklmnopq abcd;\n",
            query("[a-z]{17} [a-z]+;", |_| ()),
        ),
        lines("an empty match for every word", b"\n##\nfoo bar\n", query("()", only_words)),
        lines("empty matches with words", b"\n \nab\n##\n", query("()", word)),
    ]
}

/// Meaning of further patterns.
fn more_patterns() -> Vec<Situation> {
    let line = |q: &mut Query| q.boundary = Boundary::Line;
    let both = |q: &mut Query| q.patterns.push("b".to_owned());
    let counted = |q: &mut Query| q.mode = Mode::CountMatches;
    vec![
        lines(
            "the beginning of a text is not that of each line",
            b"a\nba\n",
            query(r"\Aa", |_| ()),
        ),
        lines(
            "flags of one pattern do not leak into the next",
            b"A\na\nB\nb\n",
            query("(?i)a", both),
        ),
        lines("an unclosed flag group", b"A\nb\n", query("(?i:a)", both)),
        lines("several matches in a line", b"aaa b aa\n", query("a+", counted)),
        lines("whole lines", b"foo\nfoo bar\n\nbar\n", query("foo|bar", line)),
        lines("a pattern that matches nothing", b"a\n\nb", query("()", |_| ())),
        lines("the empty pattern as a whole line", b"a\n\nb\n", query("()", line)),
        lines("a pattern that begins with a minus", b"-foo\n--bar\n", query("-f|--b", |_| ())),
        lines("a text with signs", b"a.b*c\naXbbc\n", query("a.b*c", |q| q.fixed = true)),
        lines("a line feed is refused within lines", b"a\nb\n", query("a\\nb", |_| ())),
        lines(
            "white space does not take the end",
            b"a \nb\n",
            query(r"a\s+", |q| q.mode = Mode::OnlyMatching),
        ),
        lines("what is not a letter does not take the end", b"a\nb\n", query("a[^x]", |_| ())),
        lines("a back-reference is refused", b"aa\n", query(r"(a)\1", |_| ())),
        lines("an unclosed class is refused", b"[a\n", query("[a", |_| ())),
    ]
}

/// Context, limits, inversion.
fn shapes() -> Vec<Situation> {
    let limited = |q: &mut Query| (q.max_per_file, q.after) = (Some(1), 2);
    let around = |q: &mut Query| (q.before, q.after) = (1, 1);
    vec![
        lines(
            "context behind the last match that is allowed",
            b"a\nb\nc\nd\ne\nd\ne\nd\n",
            query("d", limited),
        ),
        lines("a match in the context of the last one", b"a\na\na\na\n", query("a", limited)),
        lines("contexts that touch are one", b"x\na\nx\na\nx\nx\nx\na\n", query("a", around)),
        lines(
            "context of lines that do not match",
            b"a\nx\na\na\na\nx\n",
            query("a", |q| {
                (q.invert, q.before, q.after) = (true, 1, 1);
            }),
        ),
        lines(
            "inverted and limited",
            b"a\nx\ny\na\nz\n",
            query("a", |q| {
                (q.invert, q.max_per_file) = (true, Some(2));
            }),
        ),
        lines(
            "inverted and counted",
            b"a\nx\ny\n",
            query("a", |q| {
                (q.invert, q.mode) = (true, Mode::CountLines);
            }),
        ),
        lines(
            "inverted matches are counted as lines",
            b"a a\nx\ny\n",
            query("a", |q| {
                (q.invert, q.mode) = (true, Mode::CountMatches);
            }),
        ),
        lines(
            "a limit on counted matches is one of lines",
            b"a a\na a a\na\n",
            query("a", |q| {
                (q.mode, q.max_per_file) = (Mode::CountMatches, Some(2));
            }),
        ),
    ]
}

/// Matches across lines.
fn across_lines() -> Vec<Situation> {
    let across = |q: &mut Query| q.multiline = Multiline::On;
    let across_all = |q: &mut Query| q.multiline = Multiline::DotAll;
    vec![
        lines(
            "matches that overlap in lines",
            b"xxx\nabc\ndefxxxabc\ndefxxx\nxxx",
            query("abc\\ndef", across),
        ),
        lines(
            "matches that end and begin in one line",
            b"xxx\nabc\ndefabc\ndefxxx\nxxx",
            query("abc\\ndef", across),
        ),
        lines("a point stays within its line", b"a\nb\n", query("a.b", across)),
        lines("a point that does not", b"a\nb\nc\n", query("a.b", across_all)),
        lines(
            "counted across lines",
            b"a\nb\na\nb\n",
            query("a\\nb", |q| {
                (q.multiline, q.mode) = (Multiline::On, Mode::CountMatches);
            }),
        ),
        lines(
            "lines counted across lines",
            b"a\nb\na\nb\n",
            query("a\\nb", |q| {
                (q.multiline, q.mode) = (Multiline::On, Mode::CountLines);
            }),
        ),
        lines(
            "context across lines",
            b"1\na\nb\n2\n3\na\nb\n4\n",
            query("a\\nb", |q| {
                (q.multiline, q.before, q.after) = (Multiline::On, 1, 1);
            }),
        ),
        lines(
            "a limit across lines",
            b"a\nb\na\nb\na\nb\n",
            query("a\\nb", |q| {
                (q.multiline, q.max_per_file) = (Multiline::On, Some(1));
            }),
        ),
        lines("a match that is only an end of line", b"a\n\nb\n", query("\\n", across)),
        lines(
            "inverted across lines",
            b"a\nb\nc\nd\n",
            query("b\\nc", |q| {
                (q.multiline, q.invert) = (Multiline::On, true);
            }),
        ),
    ]
}

/// Replacing.
fn changes() -> Vec<Situation> {
    let plain = |_: &mut Query| ();
    vec![
        change("everything before an end", b"a\nb\nc\n", query(".*", plain), "x"),
        change(
            "everything before an end with a carriage return",
            b"a\r\n\r\nc\r\n",
            query(".*", plain),
            "x",
        ),
        change("white space at the ends of lines", b"a \r\nb\t\n\nc  ", query("\\s+$", plain), ""),
        change("groups", b"foo bar\n", query("(\\w+) (\\w+)", plain), "${2} ${1}"),
        change("named groups", b"foo bar\n", query("(?P<a>\\w+) (?P<b>\\w+)", plain), "$b $a"),
        change("dollars", b"a\n", query("a", plain), "$$1"),
        change("empty matches", b"ab\n\nc", query("x*", plain), "-"),
        change("empty matches behind others", b"aab\n", query("a*", plain), "-"),
        change("beginnings", b"a\nb\n", query("^", plain), "> "),
        change("a text", b"a.b axb\n", query("a.b", |q| q.fixed = true), "$1"),
        change("bytes outside UTF-8 stay", b"\xffa\xfe\nb\xe9a\n", query("a", plain), "é"),
        change("no line feed is added", b"a\na", query("a", plain), "b"),
        change(
            "lines become one",
            b"a\nb\nc\n",
            query("a\\nb", |q| q.multiline = Multiline::On),
            "x",
        ),
    ]
}

/// Compares one situation.
pub(crate) fn compare(run: &mut Run, situation: &Situation) {
    let Situation { name, files, ask } = situation;
    let dir = files.lay();
    match ask {
        Ask::Lines(query) => against_rg(run, name, dir.path(), files, query, lines::against_rg),
        Ask::Basic(query) => run.named(name, dir.path(), files, query, &lines::against_grep),
        Ask::Change(change) => {
            run.named(name, dir.path(), files, change, &replace::against_perl);
            if change.query.multiline == Multiline::Off {
                against_rg(run, name, dir.path(), files, change, replace::against_rg);
            }
        }
        Ask::Files(selection) => {
            against_rg(run, name, dir.path(), files, selection, selection::against_rg);
            let is_for_git = !selection.dot_ignore && *selection == from("");
            if is_for_git {
                let compare = &selection::against_git_rewritten;
                run.named(name, dir.path(), files, selection, compare);
            }
        }
    }
}

fn against_rg<Q: std::fmt::Debug>(
    run: &mut Run,
    name: &str,
    dir: &Path,
    files: &Files,
    query: &Q,
    compare: fn(&Path, &Files, &Q) -> Verdict,
) {
    let is_mended = MENDED_AFTER_OLD_RG.contains(&name)
        && programs::rg().is_some_and(|program| program.version < (14, 0));
    run.named(name, dir, files, query, &|dir, files, query| match compare(dir, files, query) {
        Verdict::Differs(..) if is_mended => Verdict::Known(Known::MendedAfterOldRg),
        verdict => verdict,
    });
}

#[test]
fn situations_that_were_surprises_are_none() {
    let (mut run, _) = Run::new("situations_that_were_surprises_are_none");
    run.expects(&[Known::IgnoredStartIsSearched, Known::EscapedSlashes, Known::UnclosedClasses]);
    let tables = [
        rules(),
        places(),
        bytes(),
        patterns(),
        more_patterns(),
        shapes(),
        across_lines(),
        changes(),
    ];
    for situation in tables.iter().flatten() {
        compare(&mut run, situation);
    }
    run.end();
}
