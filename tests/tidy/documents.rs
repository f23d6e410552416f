//! Documents: promises name the tests that cover them, decisions have numbers, and paths exist.

use crate::Tree;
use std::collections::BTreeSet;

/// The documents whose paths must exist.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/adr/",
    "docs/agents.md",
    "docs/escapes.md",
    "docs/install.md",
    "docs/privacy.md",
    "docs/promises.md",
    "docs/releasing.md",
    "docs/troubleshooting.md",
];

/// Text between backticks, outside code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// Returns true if the test `crate::file::name` exists; the crate may be omitted.
fn exists(tree: &Tree, test: &str) -> bool {
    let mut parts = test.rsplit("::");
    let (Some(name), Some(file)) = (parts.next(), parts.next()) else { return false };
    let package = parts.next().map_or_else(String::new, |package| format!("{package}/"));
    let function = format!("fn {name}(");
    tree.iter().any(|(path, text)| {
        let is_file = path.ends_with(&format!("/{file}.rs"))
            || path.ends_with(&format!("/{file}/tests.rs"))
            || path.ends_with(&format!("/{file}/mod.rs"));
        is_file && path.contains(&package) && text.contains(&function)
    })
}

/// The ids in the first column of a table.
fn ids(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().filter(|line| line.starts_with("| P-")).map(|line| {
        let id = line.get(2..6).unwrap_or(line);
        (id, line)
    })
}

/// Each promise of the first table names a test, and every named test exists. No table has a promise twice, and one of
/// them has each promise that the code mentions.
fn promise_complaints(promises: &str, tree: &Tree) -> Vec<String> {
    let (kept, not_kept) = promises.split_once("\n## Not kept yet").unwrap_or((promises, ""));
    let (not_kept, limits) = not_kept.split_once("\n## Permanent limits").unwrap_or((not_kept, ""));
    let mut complaints = Vec::new();
    for (id, row) in ids(kept) {
        let tests = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
        if !quoted(tests).any(|test| test.contains("::")) {
            complaints.push(format!("{id} names no test"));
        }
    }
    let tests = quoted(promises).filter(|word| word.contains("::"));
    let missing = tests.filter(|test| !exists(tree, test));
    complaints.extend(missing.map(|test| format!("there is no test {test}")));
    for table in [kept, not_kept, limits] {
        let mut seen = BTreeSet::new();
        let twice = ids(table).filter(|(id, _)| !seen.insert(*id));
        complaints.extend(twice.map(|(id, _)| format!("{id} is there twice")));
    }
    let known: BTreeSet<&str> = ids(promises).map(|(id, _)| id).collect();
    for (path, text) in tree.iter().filter(|(path, _)| is_product(path)) {
        for (at, _) in text.match_indices("P-") {
            let id = text.get(at..at + 4).unwrap_or_default();
            let is_id = id.chars().skip(2).all(|c| c.is_ascii_digit());
            if is_id && id.len() == 4 && !known.contains(id) {
                complaints.push(format!("{path} mentions {id}, which docs/promises.md lacks"));
            }
        }
    }
    complaints
}

/// Every test that the page of the escape corpus names exists, and every advisory names a test or a case of its table.
fn escape_complaints(page: &str, tree: &Tree) -> Vec<String> {
    let tests = quoted(page).filter(|word| word.contains("::") && !exists(tree, word));
    let mut complaints: Vec<String> =
        tests.map(|test| format!("there is no test {test}")).collect();
    let is_case = |word: &str| page.lines().any(|line| line.starts_with(&format!("| {word} |")));
    for section in page.split("\n## ").filter(|section| section.contains("| tried by |")) {
        for row in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let tried = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
            let is_found = |word: &str| word.contains("::") || is_case(word);
            let missing = quoted(tried).filter(|word| !is_found(word));
            complaints.extend(missing.map(|word| format!("there is no case {word}")));
            if quoted(tried).next().is_none() {
                complaints.push(format!("nothing tries {row}"));
            }
        }
    }
    complaints
}

fn is_product(path: &str) -> bool {
    path.ends_with(".rs") && !path.starts_with("tests/tidy")
}

/// Decision numbers are unique.
fn decision_complaints<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for name in names {
        let number = name.split_once('-').map_or("", |(number, _)| number);
        if number.len() != 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
            complaints.push(format!("{name} does not begin with a number of four digits"));
        } else if !seen.insert(number) {
            complaints.push(format!("{number} is there twice"));
        }
    }
    complaints
}

/// Documents name existing files: a path in backticks, or the target of a link to a file.
fn path_complaints(document: &str, text: &str, tree: &Tree) -> Vec<String> {
    let directory = document.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut named: Vec<&str> =
        quoted(text).filter(|word| word.ends_with(".rs") && word.contains('/')).collect();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    named.extend(links.filter(|target| target.ends_with(".md") && !target.contains("://")));
    let is_there = |path: &str| {
        let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
        for part in path.split('/') {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        tree.contains_key(path) || tree.contains_key(&parts.join("/"))
    };
    let missing = named.into_iter().filter(|path| !path.contains([' ', '*']) && !is_there(path));
    missing.map(|path| format!("{document}: there is no {path}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn every_promise_that_is_kept_names_a_test() {
        let tree = tree_of(&[
            ("tests/black_box/faults.rs", "fn a_death_is_told() {}\n// P-77 and P-01, not P-x\n"),
            ("crates/store/src/load/tests.rs", "async fn loads() {}"),
        ]);
        let promises = "| P-01 | Text `x`. | `faults::a_death_is_told`, `store::load::loads` |\n\
            | P-02 | Text. | `home::load::loads`, `faults::a_death` |\n| P-03 | Text `x::y`. | `z` |\n\
            | P-03 | Text. | `faults::a_death_is_told` |\n\n## Not kept yet\n| P-01 | Also here. | why |\n\n\
            ## Permanent limits\n| P-01 | Also here. | why |\n";
        let expected = [
            "P-03 names no test",
            "there is no test home::load::loads",
            "there is no test faults::a_death",
            "there is no test x::y",
            "P-03 is there twice",
            "tests/black_box/faults.rs mentions P-77, which docs/promises.md lacks",
        ];
        assert_eq!(promise_complaints(promises, &tree), expected);

        let tree = read_tree().unwrap();
        let promises = tree.get("docs/promises.md").unwrap();
        assert!(promises.contains("\n## Not kept yet") && 10 < ids(promises).count());
        assert_eq!(promise_complaints(promises, &tree), NOTHING);
    }

    #[test]
    fn every_attack_in_the_security_page_names_tests_that_exist() {
        let tree = read_tree().unwrap();
        let page = tree.get("docs/security.md").unwrap();
        let tests = || quoted(page).filter(|word| word.starts_with("attack::"));
        let missing: Vec<&str> = tests().filter(|test| !exists(&tree, test)).collect();
        assert_eq!(missing, Vec::<&str>::new());
        assert!(18 <= tests().count());
    }

    #[test]
    fn every_advisory_is_tried_by_a_test_or_a_case() {
        let tree = tree_of(&[("tests/black_box/faults.rs", "fn a_death_is_told() {}")]);
        let page = "| case |\n|---|\n| path-01 | x |\n\n## Advisories\n\n| advisory | class | tried by |\n|---|---|---|\n\
            | A | b | `path-01`, `faults::a_death_is_told` |\n| B | b | `path-02`, `faults::x` |\n| C | `path-01` | none |\n";
        let expected = [
            "there is no test faults::x",
            "there is no case path-02",
            "nothing tries | C | `path-01` | none |",
        ];
        assert_eq!(escape_complaints(page, &tree), expected);

        let tree = read_tree().unwrap();
        let page = tree.get("docs/escapes.md").unwrap();
        assert_eq!(escape_complaints(page, &tree), NOTHING);
        assert!(
            50 < page.lines().filter(|line| line.contains("CVE-") || line.contains("::")).count()
        );
    }

    #[test]
    fn decisions_have_numbers_of_their_own() {
        let broken = ["0001-a.md", "0002-b.md", "0001-c.md", "3-d.md", "notes.md"];
        let found = decision_complaints(broken.into_iter());
        assert_eq!(found.len(), 3, "{found:?}");

        let tree = read_tree().unwrap();
        let names = tree.keys().filter_map(|path| path.strip_prefix("docs/adr/"));
        assert!(names.clone().next().is_some());
        assert_eq!(decision_complaints(names), NOTHING);
    }

    #[test]
    fn documents_name_files_that_exist() {
        let tree = tree_of(&[("src/a.rs", ""), ("docs/b.md", "")]);
        let text = "`src/a.rs`, `src/z.rs`, ```\n`src/y.rs`\n```, `z.rs` [b](docs/b.md#head), [c](docs/c.md), [d](https://x/d.md)";
        let expected = ["README.md: there is no src/z.rs", "README.md: there is no docs/c.md"];
        assert_eq!(path_complaints("README.md", text, &tree), expected);
        assert_eq!(path_complaints("docs/adr/1.md", "[b](../b.md) `src/a.rs`", &tree), NOTHING);

        let tree = read_tree().unwrap();
        let is_document = |path: &str| DOCUMENTS.iter().any(|prefix| path.starts_with(prefix));
        let documents = tree.iter().filter(|(path, _)| is_document(path));
        let found: Vec<String> =
            documents.flat_map(|(path, text)| path_complaints(path, text, &tree)).collect();
        assert_eq!(found, NOTHING);
    }
}
