//! Differences between platforms are gathered: an operating system is named only where a module is selected for it.

use crate::Tree;
use crate::sources::code_and_comment;

/// Mark of code for one platform, also in `cfg!` and `cfg_attr`.
const MARK: &str = "target_os";

/// Marks in all files. A change that removes one lowers this number. One more module for the platform has two.
const MAX_MARKS: usize = 91;

/// Lines of a file that selects a module by its two marks, each with the path of a file.
const SELECTS: [&str; 2] = [
    "#[cfg_attr(target_os = \"linux\", path = \"",
    "#[cfg_attr(not(target_os = \"linux\"), path = \"",
];

/// Number of marks in the code of a file.
fn n_marks(text: &str) -> usize {
    text.lines().map(|line| code_and_comment(line).0.matches(MARK).count()).sum()
}

/// Whether a file has tests only. It may have marks: a whole test can be for one platform.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Whether a file is named as the one that selects a module.
fn is_selector(path: &str) -> bool {
    path.ends_with("/platform.rs") || path.ends_with("/platform/mod.rs")
}

/// Marks that select no module, and a number of marks that is not `max`.
fn complaints(tree: &Tree, max: usize) -> Vec<String> {
    let sources = tree.iter().filter(|(path, _)| path.ends_with(".rs"));
    let marks: Vec<_> = sources.map(|(path, text)| (path, text, n_marks(text))).collect();
    let complaint = |(path, text, n): &(&String, &String, usize)| {
        if *n == 0 || is_test(path) {
            return None;
        }
        if !is_selector(path) {
            return Some(format!(
                "{path}: names an operating system; gather the difference in `platform`"
            ));
        }
        let selects =
            |start: &&str| text.lines().filter(|line| line.starts_with(start)).count() == 1;
        let is_idiom = *n == SELECTS.len() && SELECTS.iter().all(selects);
        (!is_idiom).then(|| format!("{path}: does more than select a module"))
    };
    let n: usize = marks.iter().map(|(.., n)| n).sum();
    let number = (n != max).then(|| format!("{n} differences between platforms, not {max}"));
    marks.iter().filter_map(complaint).chain(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn differences_between_platforms_are_gathered() {
        let [linux, other] = SELECTS;
        let selector = format!("{linux}linux.rs\")]\n{other}macos.rs\")]\nmod system;\n");
        let tree = tree_of(&[
            ("a/src/platform.rs", &selector),
            ("a/src/platform/mod.rs", "#[cfg(target_os = \"linux\")]\nmod linux; // target_os\n"),
            ("a/src/y.rs", "const A: bool = cfg!(target_os = \"macos\");\n"),
            ("a/src/z.rs", "const A: &str = \"target_os\";\n"),
            ("a/src/z/tests.rs", "#![cfg(target_os = \"linux\")]\n"),
            ("a/tests/x.rs", "#![cfg(target_os = \"linux\")]\n"),
        ]);
        let expected = [
            "a/src/platform/mod.rs: does more than select a module",
            "a/src/y.rs: names an operating system; gather the difference in `platform`",
            "6 differences between platforms, not 5",
        ];
        assert_eq!(complaints(&tree, 5), expected);
        assert_eq!(complaints(&tree, 6), expected[..2]);
        assert_eq!(complaints(&read_tree().unwrap(), MAX_MARKS), NOTHING);
    }
}
