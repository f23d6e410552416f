//! Rule for names that the table does not have: programs keep adding names, and most have one of a few forms. Pure.

use crate::obeyed::{Held, Obeyed, Rule};
use std::ffi::OsStr;
use std::path::Path;

/// Row for names that only the rule of [`unlisted`] finds.
static RULE_ONLY: Obeyed = Obeyed {
    name: "",
    program: "unknown programs",
    reason: "has the form of a settings file",
    rule: Rule::Unlisted,
    held: Held::Reported,
};

/// Number of directory levels to which the rule applies: the top of the workspace and its directories.
const LEVELS: usize = 2;

/// Endings of settings files. Below the top, `crc.c` and `src.txt` are ordinary files.
const ENDINGS: [&str; 15] = [
    "json", "json5", "jsonc", "yaml", "yml", "toml", "ini", "xml", "js", "cjs", "mjs", "ts", "cts",
    "mts", "lua",
];

/// Dot names that name no program: lists of names, caches, results of tests, and settings of other machines.
const HARMLESS: [&str; 52] = [
    ".DS_Store",
    ".angular",
    ".azure-pipelines",
    ".buildkite",
    ".cache",
    ".circleci",
    ".coverage",
    ".dart_tool",
    ".editorconfig",
    ".eggs",
    ".eslintcache",
    ".fingerprint",
    ".git",
    ".git-blame-ignore-revs",
    ".git_archival.txt",
    ".gitea",
    ".github",
    ".gitkeep",
    ".gitlab",
    ".gitlab-ci.yml",
    ".gradle",
    ".hypothesis",
    ".ipynb_checkpoints",
    ".jekyll-cache",
    ".keep",
    ".mailmap",
    ".metals",
    ".mypy_cache",
    ".next",
    ".nox",
    ".npm",
    ".nuxt",
    ".nyc_output",
    ".output",
    ".parcel-cache",
    ".phpunit.result.cache",
    ".placeholder",
    ".pytest_cache",
    ".pytype",
    ".ruff_cache",
    ".sass-cache",
    ".stack-work",
    ".stylelintcache",
    ".svelte-kit",
    ".terraform.lock.hcl",
    ".tmp",
    ".tox",
    ".travis.yml",
    ".tsbuildinfo",
    ".turbo",
    ".vite",
    ".woodpecker.yml",
];

/// Returns the row of the rule if the entry `name` of `directory` has the form of a settings file.
pub(super) fn unlisted(
    directory: &Path,
    name: &OsStr,
    is_directory: bool,
) -> Option<&'static Obeyed> {
    let level = directory.components().count();
    let text = name.to_string_lossy();
    if LEVELS <= level || is_harmless(&text) {
        return None;
    }

    let is_settings = text.starts_with('.')
        || (!is_directory && (has_form(&text, level == 0) || is_dot_directory(directory)));
    is_settings.then_some(&RULE_ONLY)
}

/// Returns true for a dot directory at the top that the table does not have. The table's are watched with their
/// entries.
fn is_dot_directory(directory: &Path) -> bool {
    let name = directory.to_string_lossy();
    name.starts_with('.')
        && !name.contains('/')
        && !is_harmless(&name)
        && Obeyed::reported(Path::new(""), directory.as_os_str()).is_none()
}

fn has_form(name: &str, is_at_top: bool) -> bool {
    let has_ending = || ENDINGS.iter().any(|ending| name.rsplit('.').next() == Some(ending));
    name.ends_with("rc")
        || name.contains(".config.")
        || (name.contains("rc.") && (is_at_top || has_ending()))
}

fn is_harmless(name: &str) -> bool {
    let is_temporary = name.starts_with(".#") || name.starts_with(".nfs") || name.ends_with(".swp");
    // A file tool writes such a file before it renames it (`crate::staged`).
    let is_staged = name.starts_with(".quackd-") && name.ends_with(".tmp");
    is_temporary
        || is_staged
        || (name.starts_with('.') && name.ends_with("ignore"))
        || HARMLESS.binary_search(&name).is_ok()
        || Obeyed::all().any(|row| !row.held.is_reported() && row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_files_of_unknown_programs_are_found_near_the_top() {
        assert!(HARMLESS.is_sorted());
        let is = |directory: &str, name: &str, is_directory| {
            unlisted(Path::new(directory), OsStr::new(name), is_directory).is_some()
        };
        for (directory, name, is_directory) in [
            ("", ".newtool", false),
            ("", ".quackd-x", false),
            ("", ".newtool", true),
            ("a", ".newtool.yml", false),
            ("", "newrc", false),
            ("", "newrc.py", false),
            ("a", "newrc.json", false),
            ("", "new.config.rs", false),
            ("a", "new.config.js", false),
            (".config", "newrc", false),
            (".newtool", "hooks", false),
        ] {
            assert!(is(directory, name, is_directory), "{directory} {name}");
        }
        for (directory, name, is_directory) in [
            ("a/b", ".newtool", false),
            ("", ".quackd-00ff.tmp", false),
            ("", "src", true),
            ("a", "crc.c", false),
            ("", ".gitignore", false),
            ("", ".git", true),
            ("", ".hg", true),
            ("", ".pytest_cache", true),
            ("", "main.rs", false),
            ("", ".github", true),
            (".github", "dependabot.yml", false),
            (".vscode", "tasks.json", false),
        ] {
            assert!(!is(directory, name, is_directory), "{directory} {name}");
        }
    }
}
