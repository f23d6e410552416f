//! Git in safe mode: rejects options and subcommands, and adds options so that settings of a repository or a
//! user run no other program.
//!
//! Like the whole list, this is not a confinement: git has subcommands that write, and filters and aliases that
//! run programs.

/// Settings of every call, which override those of files: no pager, no file monitor, no hooks.
const SETTINGS: [&str; 6] =
    ["-c", "core.pager=cat", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];

/// Options for subcommands that run configured programs to show differences.
const NO_PROGRAMS: [&str; 2] = ["--no-ext-diff", "--no-textconv"];

/// Subcommands that accept [`NO_PROGRAMS`].
const SHOWING: &[&str] = &["diff", "log", "show", "whatchanged", "blame", "annotate"];

/// Options that run a program or write a file. Git also accepts their abbreviations.
const REFUSED: &[&str] = &[
    "--config-env",
    "--exec",
    "--exec-path",
    "--ext-diff",
    "--open-files-in-pager",
    "--output",
    "--output-directory",
    "--receive-pack",
    "--textconv",
    "--upload-pack",
];

/// Complete options that are also the start of a rejected one.
const COMPLETE: &[&str] = &["--text"];

/// Subcommands that run another program.
const REFUSED_VERBS: &[&str] = &[
    "difftool",
    "filter-branch",
    "for-each-repo",
    "hook",
    "instaweb",
    "mergetool",
    "remote-ext",
    "remote-fd",
    "web--browse",
];

/// Rejected subcommands with their next word.
const REFUSED_PAIRS: &[(&str, &str)] = &[("bisect", "run"), ("submodule", "foreach")];

/// Options before the subcommand whose value is the next word.
const WITH_VALUE: &[&str] =
    &["-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"];

/// Short options of `git grep` whose value is the rest of the word or the next one.
const GREP_WITH_VALUE: &[char] = &['e', 'f', 'A', 'B', 'C', 'm'];

/// Whether a git command line is rejected. The first word is `git`.
pub(super) fn is_refused(words: &[String]) -> bool {
    if words.iter().any(|word| word == "-c" || is_refused_option(word)) {
        return true;
    }
    let Some(at) = verb_at(words) else { return false };
    let verb = words.get(at).map_or("", String::as_str);
    let rest = words.get(at + 1..).unwrap_or_default();
    let next = rest.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str);
    REFUSED_VERBS.contains(&verb)
        || REFUSED_PAIRS.contains(&(verb, next))
        || (verb == "grep" && opens_pager(rest))
}

/// Returns the command line with the options that keep git from running other programs.
pub(super) fn hardened(words: Vec<String>) -> Vec<String> {
    let at = verb_at(&words).and_then(|at| Some((at, words.get(at)?.as_str())));
    let options_at = match at {
        Some((at, verb)) if SHOWING.contains(&verb) => Some(at + 1),
        // `git reflog` shows by default. Its other subcommands do not accept the options.
        Some((at, "reflog")) => match words.get(at + 1).map(String::as_str) {
            Some("show") => Some(at + 2),
            Some(word) if !word.starts_with('-') => None,
            _ => Some(at + 1),
        },
        _ => None,
    };

    let mut hardened = Vec::with_capacity(words.len() + SETTINGS.len() + NO_PROGRAMS.len());
    for (n, word) in words.into_iter().enumerate() {
        if Some(n) == options_at {
            hardened.extend(NO_PROGRAMS.map(str::to_owned));
        }
        hardened.push(word);
        if n == 0 {
            hardened.extend(SETTINGS.map(str::to_owned));
        }
    }

    // The subcommand is the last word, so the loop saw no word after it.
    if options_at.is_some_and(|at| hardened.len() == at + SETTINGS.len()) {
        hardened.extend(NO_PROGRAMS.map(str::to_owned));
    }
    hardened
}

/// Whether an option is rejected. Git accepts every unambiguous prefix of a long option.
fn is_refused_option(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let is_option = name.starts_with("--") && 2 < name.len() && !COMPLETE.contains(&name);
    is_option && REFUSED.iter().any(|refused| refused.starts_with(name))
}

/// Returns the index of the subcommand: the first word that is not an option or the value of one.
fn verb_at(words: &[String]) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = words.get(at)?;
        if !word.starts_with('-') {
            return Some(at);
        }
        at += if WITH_VALUE.contains(&word.as_str()) { 2 } else { 1 };
    }
}

/// Whether `-O`, alone or among other letters, makes `git grep` open its matches in a program.
fn opens_pager(words: &[String]) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            continue;
        };
        let option = letters.char_indices().find(|(_, c)| *c == 'O' || GREP_WITH_VALUE.contains(c));
        match option {
            Some((_, 'O')) => return true,
            // The value is the next word.
            Some((at, _)) if at + 1 == letters.len() => drop(words.next()),
            _ => (),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_runs_programs_or_writes_is_refused_in_every_spelling() {
        for line in [
            "git grep -Oid x",
            "git grep -nOid x",
            "git grep -O x",
            "git -C d grep -lO x",
            "git grep -n -e a -Oid",
            "git grep --open-files-in-pager=id x",
            "git grep --open x",
            "git diff --ext-diff",
            "git diff --ext",
            "git log -p --textconv",
            "git log -p --textc",
            "git grep --textconv x",
            "git log --outp=f",
            "git format-patch --output-d=x HEAD",
            "git ls-remote --upload-p=id .",
            "git ls-remote --exec=id .",
            "git push --receive=id .",
            "git -c a.b=c status",
            "git --config-e=a.b=C status",
            "git difftool -y",
            "git submodule foreach id",
            "git submodule --quiet foreach id",
            "git bisect run id",
        ] {
            assert!(is_refused(&words(line)), "{line}");
        }
    }

    #[test]
    fn what_reads_is_not_refused() {
        for line in [
            "git",
            "git status -sb",
            "git log --oneline -- --",
            "git diff --text",
            "git diff -O order",
            "git grep -e -O2",
            "git grep -n -f patterns",
            "git grep -eO x",
            "git grep -Fe x --or -e y",
            "git diff --output-indicator-new=x",
            "git show --expand-tabs",
            "git branch -u x",
            "git submodule status",
            "git bisect log",
        ] {
            assert!(!is_refused(&words(line)), "{line}");
        }
    }

    #[test]
    fn git_is_told_to_run_no_programs_where_it_understands_that() {
        let settings = SETTINGS.join(" ");
        let cases = [
            ("git", ""),
            ("git diff", "diff --no-ext-diff --no-textconv"),
            ("git -C d log -p", "-C d log --no-ext-diff --no-textconv -p"),
            ("git --no-pager show HEAD", "--no-pager show --no-ext-diff --no-textconv HEAD"),
            ("git blame f", "blame --no-ext-diff --no-textconv f"),
            ("git reflog", "reflog --no-ext-diff --no-textconv"),
            ("git reflog -p", "reflog --no-ext-diff --no-textconv -p"),
            ("git reflog show", "reflog show --no-ext-diff --no-textconv"),
            ("git reflog list", "reflog list"),
            ("git status", "status"),
            ("git grep diff", "grep diff"),
            ("git -C diff", "-C diff"),
        ];
        for (line, rest) in cases {
            let expected = format!("git {settings} {rest}");
            assert_eq!(hardened(words(line)).join(" "), expected.trim_end(), "{line}");
        }
    }
}
