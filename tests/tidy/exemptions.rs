//! Black-box tests that cannot hold in tier M: the mark is in the right place, and docs/security.md has the numbers.

use crate::Tree;
use std::collections::BTreeMap;

/// Begin of the line that leaves out a test. It must be the first one of its function.
const MARK: &str = "    needs!(";

/// File with the reasons.
const REASONS: &str = "tests/black_box/harness/tier.rs";

/// File with a row for each reason: its name in code, the number of tests, what is missing.
const DOCUMENT: &str = "docs/security.md";

/// Complaints about marks that leave out nothing, and the number of marked tests by reason.
fn marks(tree: &Tree) -> (Vec<String>, BTreeMap<String, usize>) {
    let (mut complaints, mut numbers) = (Vec::new(), BTreeMap::new());
    let tests = tree.iter().filter(|(path, _)| crate::sources::is_black_box(path));
    for (path, text) in tests.filter(|(path, _)| path.as_str() != REASONS) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in (1_usize..).zip(&lines) {
            let Some(reason) = line.trim_start().strip_prefix(MARK.trim_start()) else { continue };
            let mut above = lines.iter().take(number.saturating_sub(1)).rev();
            let is_first = line.starts_with(MARK)
                && above.next().is_some_and(|line| line.starts_with("fn "))
                && above.take_while(|line| line.starts_with("#[")).any(|line| *line == "#[test]");
            if !is_first {
                complaints.push(format!("{path}: line {number}: not the first line of a test"));
            }
            *numbers.entry(reason.trim_end_matches(");").to_owned()).or_default() += 1;
        }
    }
    (complaints, numbers)
}

/// Complaints about numbers that the document does not have, and about rows without a test.
fn numbers_complaints(tree: &Tree, numbers: &BTreeMap<String, usize>) -> Vec<String> {
    let document = tree.get(DOCUMENT).map(String::as_str).unwrap_or_default();
    let row = |line: &str| -> Option<(String, usize)> {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let reason = cells.next()?.strip_suffix('`')?.to_owned();
        Some((reason, cells.next()?.trim().parse().ok()?))
    };
    let reasons = tree.get(REASONS).map(String::as_str).unwrap_or_default();
    let rows = document.lines().filter_map(row);
    let documented: BTreeMap<String, usize> =
        rows.filter(|(reason, _)| reasons.contains(&format!("Self::{reason} =>"))).collect();
    if documented == *numbers {
        return Vec::new();
    }
    vec![format!("{DOCUMENT} has {documented:?}, the tests have {numbers:?}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn the_tests_that_are_left_out_in_tier_m_are_counted_in_the_documents() {
        let reasons = "Self::Namespaces => \"\",\nSelf::OwnTier => \"\",\n";
        let good = "#[test]\nfn a() {\n    needs!(Namespaces);\n    b();\n}\n";
        let late = "#[test]\nfn a() {\n    b();\n    needs!(OwnTier);\n}\n";
        let broken = tree_of(&[
            (REASONS, reasons),
            (DOCUMENT, "| `Namespaces` | 2 | x |\n| `Other` | 3 | y |\n"),
            ("tests/black_box/a.rs", &format!("{good}{late}")),
        ]);
        let (complaints, numbers) = marks(&broken);
        assert_eq!(complaints, ["tests/black_box/a.rs: line 9: not the first line of a test"]);
        let expected = "docs/security.md has {\"Namespaces\": 2}, \
                        the tests have {\"Namespaces\": 1, \"OwnTier\": 1}";
        assert_eq!(numbers_complaints(&broken, &numbers), [expected]);

        let tree = read_tree().unwrap();
        let (complaints, numbers) = marks(&tree);
        assert_eq!(complaints, NOTHING);
        assert_eq!(numbers_complaints(&tree, &numbers), NOTHING);
    }
}
