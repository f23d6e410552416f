//! Compares the selection of files with `rg --files` and `git ls-files`.

use crate::engine_under_test;
use crate::known_differences::Known;
use crate::normalized_output::{names, shown};
use crate::programs::{Program, command_line, git, rg, run};
use crate::query::words;
use crate::random::{Random, cases};
use crate::run::{Kind, Run, Verdict};
use crate::shrink::Smaller;
use crate::tree::{Files, rule, with_ignore_files};
use quackd_search::{Hidden, Ignore, Scope};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A request for files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Selection {
    /// Use ripgrep's ignore files in addition to git's.
    pub(crate) dot_ignore: bool,
    /// Include names with a leading dot.
    pub(crate) hidden: bool,
    /// A directory of the tree, or empty.
    pub(crate) start: String,
    pub(crate) max_depth: Option<usize>,
    pub(crate) max_filesize: Option<u64>,
    pub(crate) types: Vec<String>,
    pub(crate) types_not: Vec<String>,
}

impl Smaller for Selection {
    fn smaller(&self) -> Vec<Self> {
        let smaller = vec![
            Self { start: String::new(), ..self.clone() },
            Self { max_depth: None, ..self.clone() },
            Self { max_filesize: None, ..self.clone() },
            Self { types: Vec::new(), ..self.clone() },
            Self { types_not: Vec::new(), ..self.clone() },
            Self { dot_ignore: false, ..self.clone() },
            Self { hidden: true, ..self.clone() },
        ];
        smaller.into_iter().filter(|candidate| candidate != self).collect()
    }
}

impl Selection {
    fn scope(&self) -> Scope {
        Scope {
            starts: vec![PathBuf::from(&self.start)],
            ignore: if self.dot_ignore { Ignore::All } else { Ignore::Git },
            hidden: if self.hidden { Hidden::Show } else { Hidden::Leave },
            max_depth: self.max_depth,
            max_filesize: self.max_filesize,
            types: self.types.clone(),
            types_not: self.types_not.clone(),
            ..Scope::default()
        }
    }

    fn for_rg(&self, is_repository: bool) -> Vec<OsString> {
        let mut args = words("--no-config --files -0 --sort=path -g !.git");
        for (is_on, word) in [
            (!is_repository, "--no-require-git --no-ignore-parent"),
            (self.hidden, "--hidden"),
            (!self.dot_ignore, "--no-ignore-dot"),
        ] {
            args.extend(words(if is_on { word } else { "" }));
        }
        args.extend(self.max_depth.map(|n| format!("--max-depth={n}").into()));
        args.extend(self.max_filesize.map(|n| format!("--max-filesize={n}").into()));
        args.extend(self.types.iter().map(|name| format!("-t{name}").into()));
        args.extend(self.types_not.iter().map(|name| format!("-T{name}").into()));
        args.push(format!("./{}", self.start).into());
        args
    }
}

fn is_repository(files: &Files) -> bool {
    files.0.iter().any(|(path, _)| path == ".git/HEAD")
}

/// Lists files with find. Search and replace must read the same files.
fn listed(dir: &Path, scope: &Scope) -> Result<Vec<Vec<u8>>, String> {
    let listed = engine_under_test::names(dir, scope)?;
    let searched = engine_under_test::searched(dir, scope)?;
    if listed != searched {
        let (listed, searched) = (shown(&listed), shown(&searched));
        return Err(format!("find and search differ:\n  find:\n{listed}  search:\n{searched}"));
    }
    let has_x = |name: &&Vec<u8>| {
        let content = fs::read(dir.join(OsStr::from_bytes(name)));
        content.is_ok_and(|content| content.contains(&b'x'))
    };
    let with_x: Vec<Vec<u8>> = listed.iter().filter(has_x).cloned().collect();
    let planned = engine_under_test::planned(dir, scope)?;
    if with_x != planned {
        let (with_x, planned) = (shown(&with_x), shown(&planned));
        return Err(format!("find and replace differ:\n  find:\n{with_x}  replace:\n{planned}"));
    }
    Ok(listed)
}

fn differs(
    program: &Program,
    args: &[OsString],
    ours: &Result<Vec<Vec<u8>>, String>,
    theirs: &[Vec<u8>],
) -> Verdict {
    let ours = match ours {
        Ok(ours) if ours == theirs => return Verdict::Same,
        Ok(ours) => shown(ours),
        Err(error) => format!("    {error}\n"),
    };
    let (line, theirs) = (command_line(program, args), shown(theirs));
    Verdict::Differs(Kind::Answer, format!("  {line}\n  ours:\n{ours}  theirs:\n{theirs}"))
}

pub(crate) fn against_rg(dir: &Path, files: &Files, query: &Selection) -> Verdict {
    let Some(rg) = rg() else { return Verdict::Same };
    if !query.start.is_empty() && !dir.join(&query.start).is_dir() {
        return Verdict::Same;
    }
    let ours = listed(dir, &query.scope());
    let args = query.for_rg(is_repository(files));
    let theirs = names(&run(rg, dir, &args).stdout);
    let verdict = differs(rg, &args, &ours, &theirs);
    if matches!(verdict, Verdict::Same) {
        return verdict;
    }
    if rg.version < (14, 0) {
        let rewritten = for_old_rg(files, query);
        if rewritten != *files {
            return match against_rg(rewritten.lay().path(), &rewritten, query) {
                Verdict::Differs(..) => verdict,
                Verdict::Same | Verdict::Known(_) => Verdict::Known(Known::IgnoreFilesInOldRg),
            };
        }
    }
    if !query.types.is_empty() && !query.hidden {
        let untyped = Selection { types: Vec::new(), ..query.clone() };
        let mut both = names(&run(rg, dir, &untyped.for_rg(is_repository(files))).stdout);
        both.retain(|name| theirs.contains(name));
        if ours.as_ref() == Ok(&both) {
            return Verdict::Known(Known::TypesShowHiddenNames);
        }
    }
    if !query.start.is_empty() {
        return below_start(rg, dir, files, query, &ours).unwrap_or(verdict);
    }
    verdict
}

/// Returns the tree without the parts of ignore files that ripgrep 13 interprets differently.
fn for_old_rg(files: &Files, query: &Selection) -> Files {
    let mut rewritten = files.clone();
    for (path, rules) in &mut rewritten.0 {
        if path.ends_with(".rgignore") && !query.dot_ignore {
            rules.clear();
        } else if path.ends_with("ignore") && rules.starts_with(b"\xef\xbb\xbf") {
            rules.drain(..3);
        }
    }
    rewritten
}

/// A start path is searched as a part of the root, or without rules if it is ignored as a whole.
fn below_start(
    rg: &Program,
    dir: &Path,
    files: &Files,
    query: &Selection,
    ours: &Result<Vec<Vec<u8>>, String>,
) -> Option<Verdict> {
    let ours = ours.as_ref().ok()?;
    let depth = query.start.split('/').count();
    let root = Selection {
        start: String::new(),
        max_depth: query.max_depth.map(|n| n + depth),
        ..query.clone()
    };
    let beneath = format!("{}/", query.start).into_bytes();
    let mut whole = names(&run(rg, dir, &root.for_rg(is_repository(files))).stdout);
    whole.retain(|name| name.starts_with(&beneath));
    if *ours == whole {
        return Some(Verdict::Known(Known::RulesOfTheRootBelowAStart));
    }
    let mut args = query.for_rg(is_repository(files));
    args.insert(0, "--no-ignore".into());
    let unruled = names(&run(rg, dir, &args).stdout);
    let is_said = engine_under_test::says_ignored_start(dir, &query.scope());
    (is_said && whole.is_empty() && *ours == unruled)
        .then_some(Verdict::Known(Known::IgnoredStartIsSearched))
}

fn against_git(dir: &Path, files: &Files, query: &Selection) -> Verdict {
    let Some(git) = git() else { return Verdict::Same };
    let parts = ["HEAD", "config", "objects/", "refs/heads/"];
    let has =
        |part: &&str| files.0.iter().any(|(path, _)| path.strip_prefix(".git/") == Some(*part));
    if !parts.iter().all(has) {
        return Verdict::Same;
    }
    let args =
        words("-c core.quotePath=false -c safe.directory=* ls-files -co --exclude-standard -z");
    let said = run(git, dir, &args);
    let mut theirs = names(&said.stdout);
    if said.code != Some(0) {
        return Verdict::Differs(Kind::Refusal, String::from_utf8_lossy(&said.stderr).into_owned());
    }
    // git lists a directory that it does not enter. Remove it.
    theirs.retain(|name| !name.ends_with(b"/"));
    differs(git, &args, &listed(dir, &query.scope()), &theirs)
}

/// Compares with git after rewriting the tree's rules so that git interprets them as the library does.
pub(crate) fn against_git_rewritten(dir: &Path, files: &Files, query: &Selection) -> Verdict {
    let verdict = against_git(dir, files, query);
    if !matches!(verdict, Verdict::Differs(Kind::Answer, _)) {
        return verdict;
    }
    let ours = listed(dir, &query.scope());
    let rewritten = |rewrite: &dyn Fn(&str) -> String| {
        let mut rewritten = files.clone();
        for (path, content) in &mut rewritten.0 {
            if path.ends_with(".gitignore") {
                let text = String::from_utf8_lossy(content).into_owned();
                *content = text.split_inclusive('\n').map(rewrite).collect::<String>().into_bytes();
            }
        }
        let args = words("-c safe.directory=* ls-files -co --exclude-standard -z");
        let other = rewritten.lay();
        git().map(|git| names(&run(git, other.path(), &args).stdout))
    };
    let Ok(ours) = ours else { return verdict };
    for (known, rewrite) in REWRITES {
        if Some(&ours) == rewritten(rewrite).as_ref() {
            return Verdict::Known(*known);
        }
    }
    let all =
        |line: &str| REWRITES.iter().fold(line.to_owned(), |line, (_, rewrite)| rewrite(&line));
    if Some(&ours) == rewritten(&all).as_ref() {
        return Verdict::Known(Known::SeveralInIgnoreFiles);
    }
    verdict
}

/// Rewrites a rule with its line feed, so that git interprets it as the library does.
type Rewrite = (Known, fn(&str) -> String);

const REWRITES: &[Rewrite] = &[
    (Known::BracesInIgnoreFiles, without_braces),
    (Known::BeginningsOfRulesInGit, with_wild_beginning),
    (Known::TabsAtEndsOfRules, |line| {
        let text = line.trim_end_matches(['\n', '\r', '\t']);
        if line.contains('\t') { format!("{text}\n") } else { line.to_owned() }
    }),
    (Known::LoneExclamationMarks, |line| {
        if line.trim_end() == "!" { line.replace('!', "!*") } else { line.to_owned() }
    }),
    (Known::StarsInARow, |line| line.replace("***", "*")),
    (Known::EscapedSlashes, |line| line.replace("\\/", "/")),
    (Known::UnclosedClasses, |line| {
        if line.contains(']') { line.to_owned() } else { line.replace('[', "\\[") }
    }),
];

/// Rewrites a rule with two stars: each letter before them becomes a class.
fn with_wild_beginning(line: &str) -> String {
    let Some((head, rest)) = line.split_once("**") else { return line.to_owned() };
    let class = |c: char| if c.is_ascii_alphanumeric() { format!("[{c}]") } else { c.to_string() };
    let is_plain = !head.contains(['[', '\\', '*', '?']);
    let head = if is_plain { head.chars().map(class).collect() } else { head.to_owned() };
    format!("{head}**{rest}")
}

/// Rewrites a rule with one pair of braces as one rule per alternative.
fn without_braces(line: &str) -> String {
    let parts = line.split_once('{').and_then(|(head, rest)| {
        let (alternatives, tail) = rest.split_once('}')?;
        Some((head, alternatives, tail))
    });
    let Some((head, alternatives, tail)) = parts else { return line.to_owned() };
    let rule = |one: &str| format!("{head}{one}{tail}");
    alternatives.split(',').map(rule).collect()
}

fn random_selection(random: &mut Random, files: &Files) -> Selection {
    let mut query = Selection {
        dot_ignore: random.chance(60),
        hidden: random.chance(60),
        ..Selection::default()
    };
    if random.chance(35) {
        let (path, _) = &files.0[random.below(files.0.len())];
        let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
        if let Some(at) = slashes.get(random.below(slashes.len().max(1))) {
            path[..*at].clone_into(&mut query.start);
        }
    }
    if random.chance(15) {
        query.max_depth = Some(1 + random.below(3));
    }
    if random.chance(10) {
        query.max_filesize = Some(random.below(12) as u64);
    }
    if random.chance(12) {
        query.types.push(random.pick(&["rust", "c", "make", "log", "md"]).to_owned());
    } else if random.chance(12) {
        query.types_not.push(random.pick(&["rust", "c", "make", "log"]).to_owned());
    }
    query
}

#[test]
fn the_files_are_those_of_rg() {
    let (mut run, mut random) = Run::new("the_files_are_those_of_rg");
    run.expects(&[Known::IgnoredStartIsSearched]);
    for _ in 0..cases(200) {
        let mut files = with_ignore_files(&mut random, &[".gitignore", ".ignore", ".rgignore"]);
        if random.chance(60) {
            files.add_repository("");
            if random.chance(20) {
                let rules = rule(&mut random) + "\n";
                files.add(".git/info/exclude", rules.into_bytes());
            }
        }
        if random.chance(8) {
            let at = random.pick(&["a/", "src/"]);
            if files.0.iter().any(|(path, _)| path.starts_with(at)) {
                files.add_repository(at);
            }
        }
        let dir = files.lay();
        for _ in 0..2 {
            let query = random_selection(&mut random, &files);
            if !run.case(dir.path(), &files, &query, &against_rg) {
                return run.end();
            }
        }
    }
    run.end();
}

#[test]
fn the_files_are_those_of_git() {
    let (mut run, mut random) = Run::new("the_files_are_those_of_git");
    run.expects(&[Known::BracesInIgnoreFiles]);
    let query = Selection { hidden: true, ..Selection::default() };
    for i in 0..cases(150) {
        let mut files = with_ignore_files(&mut random, &[".gitignore"]);
        files.add_repository("");
        let has_braces = i % 10 == 0;
        if has_braces {
            let rule = random.pick(&["*.{rs,log}\n", "{a,b}\n", "/{foo,src}/\n", "!{a,c}\n"]);
            files.0.retain(|(path, _)| path != ".gitignore");
            files.add(".gitignore", rule.as_bytes().to_vec());
        }
        let dir = files.lay();
        if !run.case(dir.path(), &files, &query, &against_git_rewritten) {
            return run.end();
        }
    }
    run.end();
}
