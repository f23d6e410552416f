//! Differences between platforms are gathered: few files name an operating system, and ever fewer.

use crate::Tree;
use crate::sources::code_and_comment;

/// Mark of code for one platform, also in `cfg!` and `cfg_attr`.
const MARK: &str = "target_os";

/// Marks in all files. A change that removes one lowers this number. A change that needs another gathers it in a
/// module for the platform: two files, which `cfg_attr` with `path` selects as one module, or `mod linux; pub use linux::*;`.
const MAX_MARKS: usize = 86;

/// Source files that may have marks. Files of tests may have them too: a whole test can be for one platform.
const FILES: &[&str] = &[
    "crates/cli/src/platform/mod.rs",
    "crates/cli/src/subcommands/demo/crash/tests.rs",
    "crates/home/src/keep/tests.rs",
    "crates/home/src/platform/mod.rs",
    "crates/ipc/src/platform/mod.rs",
    "crates/process/src/platform/mod.rs",
    "crates/sandbox/src/access/platform.rs",
    "crates/sandbox/src/audit/platform.rs",
    "crates/sandbox/src/confine/platform.rs",
    "crates/sandbox/src/platform/mod.rs",
    "crates/sandbox/src/root/tests.rs",
    "crates/search/src/platform/mod.rs",
    "crates/service/src/platform/mod.rs",
    "crates/store/src/platform/mod.rs",
    "crates/tools/src/platform/mod.rs",
    "crates/tools/src/watched_names/tests.rs",
    "supervisor/src/platform/mod.rs",
    "workers/environment/src/platform/mod.rs",
    "workers/network/src/relay/tests.rs",
    "workers/session/src/platform/mod.rs",
];

/// Number of marks in the code of a file.
fn n_marks(text: &str) -> usize {
    text.lines().map(|line| code_and_comment(line).0.matches(MARK).count()).sum()
}

/// Whether a file has tests only.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/")
}

/// Marks outside of `files`, files without a mark, and a number of marks that is not `max`.
fn complaints(tree: &Tree, files: &[&str], max: usize) -> Vec<String> {
    let sources = tree.iter().filter(|(path, _)| path.ends_with(".rs"));
    let marks: Vec<(&String, usize)> =
        sources.map(|(path, text)| (path, n_marks(text))).filter(|(_, n)| *n != 0).collect();
    let is_listed = |path: &str| files.contains(&path);
    let strangers = marks.iter().filter(|(path, _)| !is_test(path) && !is_listed(path));
    let strangers = strangers.map(|(path, _)| {
        format!("{path}: names an operating system; gather the difference in a module")
    });
    let left = files.iter().filter(|file| !marks.iter().any(|(path, _)| path == *file));
    let left = left.map(|file| format!("{file}: has no difference any more; remove it from FILES"));
    let n: usize = marks.iter().map(|(_, n)| n).sum();
    let number = (n != max).then(|| format!("{n} differences between platforms, not {max}"));
    strangers.chain(left).chain(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn differences_between_platforms_are_gathered() {
        let tree = tree_of(&[
            ("a/src/x.rs", "#[cfg(target_os = \"linux\")]\nmod linux; // target_os\n"),
            ("a/src/y.rs", "const A: bool = cfg!(target_os = \"macos\");\n"),
            ("a/src/z.rs", "const A: &str = \"target_os\";\n"),
            ("a/tests/x.rs", "#![cfg(target_os = \"linux\")]\n"),
        ]);
        let expected = [
            "a/src/y.rs: names an operating system; gather the difference in a module",
            "a/src/z.rs: has no difference any more; remove it from FILES",
            "3 differences between platforms, not 2",
        ];
        assert_eq!(complaints(&tree, &["a/src/x.rs", "a/src/z.rs"], 2), expected);
        assert_eq!(complaints(&tree, &["a/src/x.rs", "a/src/y.rs"], 3), NOTHING);
        assert_eq!(complaints(&read_tree().unwrap(), FILES, MAX_MARKS), NOTHING);
    }
}
