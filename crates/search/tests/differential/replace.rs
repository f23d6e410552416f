//! Compares replacements: within lines with `rg --passthru -r` and perl, across lines with perl alone, because
//! ripgrep ends every line that it prints.

use crate::content::{Kinds, file, literal, pattern};
use crate::engine_under_test;
use crate::known_differences::Known;
use crate::programs::{Program, command_line, perl, rg, run};
use crate::query::{Case, Multiline, Query, shorter_text, words};
use crate::random::{Random, cases};
use crate::run::{Kind, Run, Verdict};
use crate::shrink::Smaller;
use crate::tree::Files;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// The only file of a case.
pub(crate) const FILE: &str = "file";

/// A pattern and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) query: Query,
    pub(crate) template: String,
}

impl Smaller for Change {
    fn smaller(&self) -> Vec<Self> {
        let queries = self.query.smaller().into_iter();
        let mut smaller: Vec<Self> = queries.map(|query| Self { query, ..self.clone() }).collect();
        let templates = shorter_text(&self.template).into_iter();
        smaller.extend(templates.map(|template| Self { template, ..self.clone() }));
        smaller
    }
}

/// Returns ripgrep's result for a file. For the library, a carriage return before a line feed belongs to the
/// line end; for ripgrep it belongs to the text. So ripgrep gets the lines without carriage returns, and they
/// are restored afterwards.
fn by_rg(rg: &Program, change: &Change, old: &[u8]) -> Result<Vec<u8>, String> {
    let lines: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
    let is_crlf: Vec<bool> = lines.iter().map(|line| line.ends_with(b"\r\n")).collect();
    let cut = |line: &&[u8]| {
        line.strip_suffix(b"\r\n").map_or_else(|| line.to_vec(), |t| [t, b"\n"].concat())
    };
    let plain: Vec<u8> = lines.iter().flat_map(cut).collect();
    let dir = Files::of(&[(FILE, plain.as_slice())]).lay();
    let said = run(rg, dir.path(), &for_rg(change));
    if said.code == Some(2) {
        return Err(String::from_utf8_lossy(&said.stderr).into_owned());
    }
    // ripgrep always ends the last line.
    let mut new = said.stdout;
    if !plain.ends_with(b"\n") && new.ends_with(b"\n") {
        new.pop();
    }
    let mut ends = is_crlf.into_iter();
    let back = |line: &[u8]| match (line.strip_suffix(b"\n"), ends.next()) {
        (Some(text), Some(true)) => [text, b"\r\n"].concat(),
        _ => line.to_vec(),
    };
    Ok(new.split_inclusive(|byte| *byte == b'\n').flat_map(back).collect())
}

fn for_rg(change: &Change) -> Vec<OsString> {
    let mut args = words("--passthru -N -I");
    let mut query = change.query.for_rg();
    let _root = query.pop();
    let left_out = ["--sort=path", "-uuu", "-0", "-H", "-n", "--no-heading", "--column"];
    args.extend(query.into_iter().filter(|arg| left_out.iter().all(|out| arg != out)));
    let template = if change.query.fixed {
        change.template.replace('$', "$$")
    } else {
        change.template.clone()
    };
    args.extend(["-r".into(), template.into(), FILE.into()]);
    args
}

pub(crate) fn against_rg(dir: &Path, _: &Files, change: &Change) -> Verdict {
    let Some(rg) = rg() else { return Verdict::Same };
    let Ok(old) = fs::read(dir.join(FILE)) else { return Verdict::Same };
    let ours = engine_under_test::replaced(dir, change, &old);
    let theirs = by_rg(rg, change, &old);
    let verdict = verdict(&ours, &theirs, || command_line(rg, &for_rg(change)));
    if !matches!(verdict, Verdict::Differs(Kind::Answer, _)) {
        return verdict;
    }
    let is_unterminated = !old.is_empty() && !old.ends_with(b"\n");
    let plain = |text: &[u8]| with_plain_letters(text, false);
    let plain_change = Change {
        query: Query {
            patterns: change.query.patterns.iter().map(|p| text_of(plain(p.as_bytes()))).collect(),
            ..change.query.clone()
        },
        template: text_of(plain(change.template.as_bytes())),
    };
    let ended = |new: Vec<u8>| new.strip_suffix(b"\n").map(<[u8]>::to_vec).unwrap_or(new);
    let with_end = [&old, b"\n".as_slice()].concat();
    let back = |new: Vec<u8>| with_plain_letters(&new, true);
    if is_unterminated && by_rg(rg, change, &with_end).map(ended) == ours {
        Verdict::Known(Known::EmptyMatchAtUnterminatedEnd)
    } else if by_rg(rg, &plain_change, &plain(&old)).map(back) == ours
        || (is_unterminated
            && by_rg(rg, &plain_change, &plain(&with_end)).map(ended).map(back) == ours)
    {
        Verdict::Known(Known::EmptyMatchInsideACharacter)
    } else {
        verdict
    }
}

/// Converts the multi-byte letters of the cases to one-byte control characters, or back.
fn with_plain_letters(text: &[u8], is_back: bool) -> Vec<u8> {
    let pairs = [("é", "\u{1}"), ("ü", "\u{2}"), ("ß", "\u{3}")];
    let mut changed = Vec::new();
    for chunk in text.utf8_chunks() {
        let mut valid = chunk.valid().to_owned();
        for (letter, plain) in pairs {
            let (from, to) = if is_back { (plain, letter) } else { (letter, plain) };
            valid = valid.replace(from, to);
        }
        changed.extend_from_slice(valid.as_bytes());
        changed.extend_from_slice(chunk.invalid());
    }
    changed
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("it was text before")
}

fn verdict(
    ours: &Result<Vec<u8>, String>,
    theirs: &Result<Vec<u8>, String>,
    command: impl Fn() -> String,
) -> Verdict {
    let kind = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if ours == theirs => return Verdict::Same,
        (Err(error), Err(_)) if !error.contains("contradicts") => return Verdict::Same,
        (Ok(_), Ok(_)) => Kind::Answer,
        _ => Kind::Refusal,
    };
    let shown = |answer: &Result<Vec<u8>, String>| match answer {
        Ok(new) => format!("b\"{}\"", new.escape_ascii()),
        Err(error) => error.clone(),
    };
    let (line, ours, theirs) = (command(), shown(ours), shown(theirs));
    Verdict::Differs(kind, format!("  {line}\n  ours:   {ours}\n  theirs: {theirs}\n"))
}

/// Replaces matches in each line before its end, `\r\n` or `\n`, or in the whole text. Skips patterns that
/// match the empty text: after a match, perl finds an empty match at its end, and the regex crate does not.
const PERL: &str = r#"
use strict; use warnings;
my ($pattern, $template, $whole, $file) = @ARGV;
utf8::decode($pattern); utf8::decode($template);
exit 3 if $pattern eq "";
my $re = eval { no warnings; $whole ? qr/$pattern/maa : qr/$pattern/aa } or exit 3;
exit 3 if "" =~ $re;
open(my $in, "<:raw", $file) or die; local $/; my $all = <$in>; $all = "" unless defined $all;
utf8::decode($all) or exit 3;
my $new = "";
sub render {
    my @group = @_; my $text = $template;
    $text =~ s/\$\{(\d+)\}|(\$\$)/defined $2 ? "\$" : defined $group[$1] ? $group[$1] : ""/ge;
    return $text;
}
sub change {
    my ($line) = @_; my $old = $line;
    $line =~ s/$re/render(map { defined $-[$_] ? substr($old, $-[$_], $+[$_] - $-[$_]) : undef } 0..$#+)/ge;
    return $line;
}
while (!$whole && $all =~ /\G([^\n]*?)(\r?\n|\z)/g) {
    my ($line, $end) = ($1, $2);
    $new .= change($line) . $end;
    last if $end eq "";
}
$new = change($all) if $whole;
binmode(STDOUT, ":raw"); utf8::encode($new); print $new;
"#;

pub(crate) fn against_perl(dir: &Path, _: &Files, change: &Change) -> Verdict {
    let Some(perl) = perl() else { return Verdict::Same };
    let Ok(old) = fs::read(dir.join(FILE)) else { return Verdict::Same };
    let Some(pattern) = change.query.patterns.first() else { return Verdict::Same };
    let names_groups = change.template.replace("${", "").replace("$$", "").contains('$');
    if change.query.fixed || names_groups {
        return Verdict::Same;
    }
    let whole = if change.query.multiline == Multiline::Off { "" } else { "whole" };
    // After the last line feed, the regex crate sees the start of a line and perl does not.
    if !whole.is_empty() && pattern.replace("[^", "").replace("\\^", "").contains('^') {
        return Verdict::Same;
    }
    // Across lines, the library sees `\r\n` as `\n`, and keeps it outside of matches.
    let without_crs = |text: &[u8]| if whole.is_empty() { text.to_vec() } else { folded(text) };
    let plain = Files::of(&[(FILE, without_crs(&old).as_slice())]).lay();
    let args: [&str; 7] = ["-e", PERL, "--", pattern, &change.template, whole, FILE];
    let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
    let said = run(perl, plain.path(), &args);
    let theirs = match said.code {
        Some(0) => Ok(said.stdout),
        // perl cannot decide this case.
        Some(3) => return Verdict::Same,
        _ => Err(String::from_utf8_lossy(&said.stderr).into_owned()),
    };
    let ours = engine_under_test::replaced(dir, change, &old).map(|new| without_crs(&new));
    verdict(&ours, &theirs, || "perl".to_owned())
}

fn folded(text: &[u8]) -> Vec<u8> {
    let is_kept = |at: &usize| !text.get(*at..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    (0..text.len()).filter(is_kept).map(|at| text[at]).collect()
}

/// Generates a template that refers only to existing groups.
fn template(random: &mut Random, query: &Query) -> String {
    let pattern = &query.patterns[0];
    let groups = pattern.matches('(').count() - pattern.matches("\\(").count();
    let mut template = String::new();
    for _ in 0..random.below(4) {
        match random.below(6) {
            0 if 0 < groups && !query.fixed => template.push_str("${1}"),
            1 if 1 < groups && !query.fixed => template.push_str("${2}"),
            2 => template.push_str(if query.fixed { "$1" } else { "${0}" }),
            3 => template.push_str("$$"),
            _ => template.push_str(random.pick(&["x", "", "foo", "é", " ", "\\", "a"])),
        }
    }
    template
}

#[test]
fn replacing_within_lines_makes_what_rg_and_perl_make() {
    let (mut run, mut random) = Run::new("replacing_within_lines_makes_what_rg_and_perl_make");
    for i in 0..cases(100) {
        let kinds = if i % 2 == 0 { Kinds::Text } else { Kinds::Bytes };
        let files = Files(vec![(FILE.to_owned(), file(&mut random, kinds))]);
        let dir = files.lay();
        for _ in 0..3 {
            let is_fixed = random.chance(15);
            let text = if is_fixed { literal(&mut random) } else { pattern(&mut random) };
            let mut query = Query { fixed: is_fixed, ..Query::of(&text) };
            let template = template(&mut random, &query);
            let is_plain = !is_fixed && kinds == Kinds::Text;
            let mut change = Change { query: query.clone(), template };
            if is_plain && !run.case(dir.path(), &files, &change, &against_perl) {
                return run.end();
            }
            if random.chance(15) {
                query.case = Case::Insensitive;
            }
            change.query = query;
            if !run.case(dir.path(), &files, &change, &against_rg) {
                return run.end();
            }
        }
    }
    run.end();
}

#[test]
fn replacing_across_lines_makes_what_perl_makes() {
    let (mut run, mut random) = Run::new("replacing_across_lines_makes_what_perl_makes");
    for _ in 0..cases(100) {
        let files = Files(vec![(FILE.to_owned(), file(&mut random, Kinds::Text))]);
        let dir = files.lay();
        for _ in 0..2 {
            let (a, b) = (pattern(&mut random), pattern(&mut random));
            let text = [format!("{a}\\n{b}"), format!("({a})\\n"), format!("({a})\\s+({b})")];
            let mut query = Query::of(&text[random.below(text.len())]);
            query.multiline = Multiline::On;
            let template = template(&mut random, &query);
            let change = Change { query, template };
            if !run.case(dir.path(), &files, &change, &against_perl) {
                return run.end();
            }
        }
    }
    run.end();
}
