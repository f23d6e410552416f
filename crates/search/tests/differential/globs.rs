//! Compares globs of search and find with `rg --files -uuu -g`.
//!
//! ripgrep treats a glob as a rule that outranks ignore files, the library as one more condition. Without
//! ignore files, both are equivalent.

use crate::engine_under_test;
use crate::known_differences::Known;
use crate::normalized_output::{names, shown};
use crate::programs::{Program, command_line, rg, run};
use crate::query::{shorter_text, words};
use crate::random::{Random, cases};
use crate::run::{Kind, Run, Verdict};
use crate::shrink::Smaller;
use crate::tree::{Files, with_ignore_files};
use quackd_search::Scope;
use std::ffi::OsString;
use std::path::Path;

/// Globs that must match, and globs that must not match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Globs {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Smaller for Globs {
    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        for i in 0..self.include.len() {
            let mut fewer = self.clone();
            fewer.include.remove(i);
            smaller.push(fewer);
            for shorter in shorter_text(&self.include[i]) {
                let mut fewer = self.clone();
                fewer.include[i] = shorter;
                smaller.push(fewer);
            }
        }
        for i in 0..self.exclude.len() {
            let mut fewer = self.clone();
            fewer.exclude.remove(i);
            smaller.push(fewer);
            for shorter in shorter_text(&self.exclude[i]) {
                let mut fewer = self.clone();
                fewer.exclude[i] = shorter;
                smaller.push(fewer);
            }
        }
        smaller
    }
}

impl Globs {
    /// ripgrep 13 does not support nested braces. An equivalent glob has one pair.
    fn for_rg(&self, rg: &Program) -> Vec<OsString> {
        if rg.version < (14, 0) {
            let flat = |globs: &[String]| {
                globs.iter().map(|glob| glob.replace("{a,{b,c}}", "{a,b,c}")).collect()
            };
            let flat = Self { include: flat(&self.include), exclude: flat(&self.exclude) };
            return flat.args();
        }
        self.args()
    }

    fn args(&self) -> Vec<OsString> {
        let mut args = words("--no-config --files -uuu -0 --sort=path");
        args.extend(self.include.iter().flat_map(|glob| ["-g".into(), glob.into()]));
        args.extend(self.exclude.iter().flat_map(|glob| ["-g".into(), format!("!{glob}").into()]));
        args.push("./".into());
        args
    }
}

fn compare(dir: &Path, _: &Files, query: &Globs) -> Verdict {
    let Some(rg) = rg() else { return Verdict::Same };
    let scope = Scope {
        include: query.include.clone(),
        exclude: query.exclude.clone(),
        ..engine_under_test::everything()
    };
    let ours = engine_under_test::names(dir, &scope);
    let ask = |query: &Globs| {
        let said = run(rg, dir, &query.for_rg(rg));
        if said.code == Some(2) { Err(said.stderr) } else { Ok(names(&said.stdout)) }
    };
    let theirs = ask(query);
    let (Ok(ours), Ok(theirs)) = (&ours, &theirs) else {
        let line = command_line(rg, &query.for_rg(rg));
        let is_same = ours.is_err() && theirs.is_err();
        let verdict = format!("  {line}\n  ours: {ours:?}\n  theirs: {theirs:?}\n");
        return if is_same { Verdict::Same } else { Verdict::Differs(Kind::Refusal, verdict) };
    };
    if ours == theirs {
        return Verdict::Same;
    }
    // Globs that found nothing at the root are retried at any depth.
    let deep = |glob: &String| if glob.contains('/') { format!("**/{glob}") } else { glob.clone() };
    let deeper = Globs { include: query.include.iter().map(deep).collect(), ..query.clone() };
    if theirs.is_empty()
        && engine_under_test::says_glob_retried(dir, &scope)
        && ask(&deeper).as_ref() == Ok(ours)
    {
        return Verdict::Known(Known::GlobReadAtAnyDepth);
    }
    let line = command_line(rg, &query.for_rg(rg));
    let both = format!("  {line}\n  ours:\n{}  theirs:\n{}", shown(ours), shown(theirs));
    Verdict::Differs(Kind::Answer, both)
}

fn glob(random: &mut Random) -> String {
    let mut glob = String::new();
    let n = [1, 1, 1, 2, 2, 3][random.below(6)];
    for i in 0..n {
        if 0 < i {
            glob.push('/');
        }
        glob.push_str(random.pick(&[
            "a",
            "b",
            "src",
            "foo",
            "*",
            "**",
            "*.rs",
            "*.log",
            "*.{rs,c,log}",
            "{a,b}*",
            "[ab]",
            "[!a]*",
            "f?o",
            "?",
            "*o*",
            ".*",
            ".hid",
            "a b",
            "ü",
            "*.*",
            "foo.rs",
            "{foo,bar}.rs",
            "a*",
            "{a,{b,c}}",
        ]));
    }
    glob
}

#[test]
fn globs_choose_what_they_choose_for_rg() {
    let (mut run, mut random) = Run::new("globs_choose_what_they_choose_for_rg");
    run.expects(&[Known::GlobReadAtAnyDepth]);
    for _ in 0..cases(70) {
        let files = with_ignore_files(&mut random, &["c"]);
        let dir = files.lay();
        for _ in 0..3 {
            let mut query = Globs::default();
            for _ in 0..random.below(3) {
                query.include.push(glob(&mut random));
            }
            for _ in 0..random.below(2) {
                query.exclude.push(glob(&mut random));
            }
            if !run.case(dir.path(), &files, &query, &compare) {
                return run.end();
            }
        }
    }
    run.end();
}
