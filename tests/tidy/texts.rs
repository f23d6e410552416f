//! Texts in documents: the sources contain every text that docs/troubleshooting.md quotes, and
//! every subcommand in a document for users exists. docs/privacy.md explains each file of the state
//! directory.

use std::collections::BTreeSet;

/// Documents whose subcommands must exist.
const FOR_USERS: &[&str] = &[
    "README.md",
    "SECURITY.md",
    "docs/install.md",
    "docs/operations.md",
    "docs/privacy.md",
    "docs/security.md",
    "docs/troubleshooting.md",
];

/// Internal subcommands that `main.rs` handles before clap. Users do not call them.
const NOT_FOR_PEOPLE: &[&str] = &["clean-repositories", "limited", "probe", "read-only"];

/// Minimum length in characters of at least one piece of a quoted text: every source contains
/// shorter pieces.
const MIN_PIECE: usize = 8;

/// The texts in backticks in the first lines of list items.
fn quoted_texts(document: &str) -> impl Iterator<Item = &str> {
    let items = document.lines().filter(|line| line.starts_with("- "));
    items.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The part of a source without its tests, with literals that `\` splits joined into one line.
fn product(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut pieces = source.split("\\\n");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push_str(piece.trim_start());
    }
    text.replace("\\\"", "\"")
}

/// Returns true if one line of a source contains all pieces of a text in order. `…` separates the
/// pieces.
fn says(source: &str, text: &str) -> bool {
    let pieces: Vec<&str> = text.split('…').filter(|piece| !piece.trim().is_empty()).collect();
    source.lines().any(|line| {
        let mut rest = Some(line);
        for piece in &pieces {
            rest = rest.and_then(|rest| rest.split_once(piece)).map(|(_, after)| after);
        }
        rest.is_some()
    })
}

/// Quoted texts that no source contains, or that are too short for a search.
fn text_complaints(document: &str, sources: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for text in quoted_texts(document) {
        if !text.split('…').any(|piece| MIN_PIECE <= piece.trim().chars().count()) {
            complaints.push(format!("`{text}` is too short to be found"));
        } else if !sources.iter().any(|source| says(source, text)) {
            complaints.push(format!("nothing prints `{text}`"));
        }
    }
    complaints
}

/// Subcommands of the command line: the variants of its `enum Verb`, in clap's spelling.
pub(crate) fn verbs(arguments: &str) -> BTreeSet<String> {
    let body = arguments.split_once("enum Verb {").map_or("", |(_, rest)| rest);
    let body = body.split_once("\n}").map_or(body, |(body, _)| body);
    let variants = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = variants.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let words = names.map(|line| {
        let name = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let parts = name.char_indices().map(|(at, c)| match c {
            c if c.is_ascii_uppercase() && 0 < at => format!("-{}", c.to_ascii_lowercase()),
            c => c.to_ascii_lowercase().to_string(),
        });
        parts.collect()
    });
    words.collect()
}

/// Subcommands that a document names and the command line lacks: the word after `quack ` at the
/// start of code.
fn verb_complaints(path: &str, document: &str, verbs: &BTreeSet<String>) -> Vec<String> {
    let prose =
        document.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2));
    let blocks = document.split("```").skip(1).step_by(2).flat_map(str::lines);
    let blocks = blocks.filter_map(|line| line.strip_prefix("$ "));
    let named = prose.chain(blocks).filter_map(|code| code.strip_prefix("quack "));
    let words = named.map(|rest| rest.split([' ', ';', ',', '|']).next().unwrap_or_default());
    let is_verb = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let is_known = |word: &&str| verbs.contains(*word) || NOT_FOR_PEOPLE.contains(word);
    let missing = words.filter(is_verb).filter(|word| !is_known(word));
    missing.map(|word| format!("{path}: there is no `quack {word}`")).collect()
}

/// Names in the state directory that a document does not have in backticks. The module that owns
/// the names joins them to the directory.
fn file_complaints(document: &str, owner: &str) -> Vec<String> {
    let owner = product(owner);
    let names = owner.split("dir.join(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let is_explained = |name: &&str| {
        let quoted = document.split('`').skip(1).step_by(2);
        quoted.flat_map(|code| code.split(['/', ' '])).any(|part| part == *name)
    };
    let missing = names.filter(|name| !is_explained(name));
    missing.map(|name| format!("nobody says what is in {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree};

    #[test]
    fn texts_that_troubleshooting_quotes_are_printed() {
        let source = "let a = format!(\"the \\\"daemon\\\" of {user} \\\n    is not here\");\n\
            let b = \"ends elsewhere\";\n#[cfg(test)]\nmod tests { \"only in tests\" }";
        let document = "`outside of lists`\n\
            - `the \"daemon\" of … is not here`, `is not … elsewhere`:\n  `not looked at`\n\
            - `only in tests`:\n- `…daemon…`:\n";
        let expected = [
            "nothing prints `is not … elsewhere`",
            "nothing prints `only in tests`",
            "`…daemon…` is too short to be found",
        ];
        assert_eq!(text_complaints(document, &[product(source)]), expected);

        let tree = read_tree().unwrap();
        let is_product = |path: &str| path.contains("src/") && !path.contains("/tests");
        let sources = tree.iter().filter(|(path, _)| path.ends_with(".rs") && is_product(path));
        let sources: Vec<String> = sources.map(|(_, text)| product(text)).collect();
        let document = tree.get("docs/troubleshooting.md").unwrap();
        assert!(40 < quoted_texts(document).count());
        assert_eq!(text_complaints(document, &sources), NOTHING);
    }

    #[test]
    fn verbs_that_documents_name_exist() {
        let verbs = verbs(
            "enum Other {\n    No,\n}\nenum Verb {\n    /// Text.\n    Ps(PsArgs),\n    PiWorker,\n}\nX(",
        );
        assert_eq!(verbs, BTreeSet::from(["pi-worker".to_owned(), "ps".to_owned()]));
        let text = "`quack ps`, `quack gone -x`, quack prose `quack DIR` `quack`\n\
            ```console\n$ quack ps\n$ quack lost; ls\nquack output\n```\n";
        let expected = ["a.md: there is no `quack gone`", "a.md: there is no `quack lost`"];
        assert_eq!(verb_complaints("a.md", text, &verbs), expected);

        let tree = read_tree().unwrap();
        let verbs = super::verbs(tree.get("crates/cli/src/args.rs").unwrap());
        assert!(verbs.contains("doctor"));
        for path in FOR_USERS {
            assert_eq!(verb_complaints(path, tree.get(*path).unwrap(), &verbs), NOTHING);
        }
    }

    #[test]
    fn every_file_of_the_state_directory_is_explained() {
        let owner = "self.dir.join(\"a.json\"); dir.join(\"b\"); self.dir.join(\"c\").join(\"d\")\n\
            #[cfg(test)]\nmod tests { dir.join(\"e\") }";
        let text = "| `a.json`, `.bak` | it | `run/b` c |";
        assert_eq!(file_complaints(text, owner), ["nobody says what is in c"]);

        let tree = read_tree().unwrap();
        let owner = tree.get("crates/home/src/home.rs").unwrap();
        assert!(8 < product(owner).matches("dir.join(\"").count());
        assert_eq!(file_complaints(tree.get("docs/privacy.md").unwrap(), owner), NOTHING);
    }
}
