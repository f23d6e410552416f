//! Recipes of CONTRIBUTING.md: an addition changes at most four files. Every name in the code is in
//! the files of its recipe, and no other source file lists such names.

use crate::Tree;
use crate::modules::code;
use std::collections::BTreeSet;

/// Most steps of a recipe. Each step is one file.
const MAX_STEPS: usize = 4;

/// Files in which names of tools are other words: settings of other agents, and tags of frames.
const NOT_TOOLS: [&str; 2] =
    ["crates/cli/src/subcommands/mcp/install/clients.rs", "crates/protocol/src/worker.rs"];

/// Returns a name as a file writes it.
type Written = fn(&str) -> String;

/// One recipe: its names, and the files that have them.
struct Recipe {
    /// Heading in CONTRIBUTING.md.
    title: &'static str,
    names: BTreeSet<String>,
    /// Most names that a file outside of the recipe may have: special cases, but no list. These numbers only fall.
    max_others: usize,
    /// Files or directories that the recipe names. A name is in one of each group.
    places: Vec<(&'static [&'static str], Written)>,
}

/// Paths in the numbered steps of a recipe.
fn steps<'a>(document: &'a str, title: &str) -> Vec<&'a str> {
    let section = document.split("\n### ").find(|section| section.starts_with(title));
    let is_step = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
    section.unwrap_or_default().lines().filter(is_step).collect()
}

/// Whether a file is in one of these files and directories.
fn is_in(path: &str, group: &[&str]) -> bool {
    group.iter().any(|place| path.starts_with(place))
}

fn complaints(tree: &Tree, document: &str, recipe: &Recipe) -> Vec<String> {
    let Recipe { title, names, max_others, places } = recipe;
    let mut complaints = Vec::new();
    let steps = steps(document, title);
    if !(1..=MAX_STEPS).contains(&steps.len()) {
        complaints.push(format!("{title}: {} steps", steps.len()));
    }
    for (group, written) in places {
        let is_unnamed = |place: &&&str| !steps.iter().any(|step| step.contains(**place));
        let unnamed = group.iter().filter(is_unnamed);
        complaints.extend(unnamed.map(|place| format!("{title}: no step names {place}")));
        let files = tree.iter().filter(|(path, _)| is_in(path, group));
        let files: Vec<&String> = files.map(|(_, text)| text).collect();
        let is_absent = |name: &&String| !files.iter().any(|text| text.contains(&written(name)));
        complaints.extend(
            names
                .iter()
                .filter(is_absent)
                .map(|name| format!("{title}: {name} is not in {}", group.join(" or "))),
        );
    }
    let is_other = |path: &str| {
        path.ends_with(".rs")
            && path.contains("/src/")
            && !path.contains("/tests")
            && !NOT_TOOLS.contains(&path)
            && !places.iter().any(|(group, _)| is_in(path, group))
    };
    for (path, text) in tree.iter().filter(|(path, _)| is_other(path)) {
        let text = code(text);
        let listed = names.iter().filter(|name| text.contains(&format!("\"{name}\""))).count();
        if *max_others < listed {
            complaints.push(format!("{title}: {path} lists {listed} of them"));
        }
    }
    complaints
}

/// Files that name quackd's own methods: the rows of clients, and what the daemon says about its methods.
const NAMES_METHODS: [&str; 2] = ["crates/protocol/src/", "supervisor/src/methods/"];

/// Product files that name a method as text. A client calls the type of its parameters.
fn named_as_text(tree: &Tree, methods: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_product = |path: &str| {
        path.ends_with(".rs")
            && path.contains("src/")
            && !path.contains("/tests")
            && !NAMES_METHODS.iter().any(|place| path.starts_with(place))
    };
    for (path, text) in tree.iter().filter(|(path, _)| is_product(path)) {
        let text = code(text);
        let own = methods.iter().filter(|method| method.starts_with("quack."));
        let named = own.filter(|method| text.contains(&format!("\"{method}\"")));
        complaints.extend(named.map(|method| format!("{path} names {method}")));
    }
    complaints
}

/// `LoginEnvironment` as `login-environment`, and the other way round.
fn camel(verb: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    verb.split('-').map(capital).collect()
}

/// The recipes with the names that the code knows today.
fn recipes(tree: &Tree) -> Vec<Recipe> {
    let owned = |name: &str| name.to_owned();
    let args = tree.get("crates/cli/src/args.rs").map_or("", String::as_str);
    let (methods, _) = quackd_schema::names();
    vec![
        Recipe {
            title: "A tool",
            names: quackd_protocol::tools::all().map(|tool| owned(tool.name)).collect(),
            max_others: 1,
            places: vec![
                (&["crates/protocol/src/tools/"], |name| format!("name: \"{name}\"")),
                (&["crates/tools/src/lib.rs", "crates/facades/src/lib.rs"], |name| {
                    format!("\"{name}\" =>")
                }),
                (&["docs/tools.md"], |name| format!("## {name}\n")),
            ],
        },
        Recipe {
            title: "A method",
            names: methods.into_iter().map(owned).collect(),
            max_others: 3,
            places: vec![
                (&["crates/protocol/src/client/"], |name| format!(" = \"{name}\" =>")),
                (&["docs/protocol.md"], owned),
            ],
        },
        Recipe {
            title: "A configuration key",
            names: quackd_config::keys().iter().map(|key| owned(key.name())).collect(),
            max_others: 7,
            places: vec![
                (&["crates/config/src/key.rs"], |name| format!("\"{name}\"")),
                (&["docs/configuration.md"], |name| format!("`{name}`")),
            ],
        },
        Recipe {
            title: "A subcommand",
            names: crate::texts::verbs(args),
            max_others: 9,
            places: vec![
                (&["crates/cli/src/args.rs"], |verb| format!("    {}", camel(verb))),
                (&["crates/cli/src/subcommands/mod.rs"], |verb| format!("Verb::{}", camel(verb))),
            ],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn each_recipe_changes_four_files_and_no_other_file_lists_the_names() {
        let names: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
        let listed: String = names.iter().map(|name| format!("\"{name}\", ")).collect();
        let few = listed.replacen("\"n0\", ", "", 1);
        let broken = tree_of(&[
            ("a/src/table.rs", &few),
            ("b/src/list.rs", &listed),
            ("b/src/some.rs", &few),
            ("b/src/tested.rs", &format!("#[cfg(test)]\n{listed}")),
        ]);
        let document =
            "### A thing\n\n1. `a/src/table.rs`\n2. x\n3. x\n4. x\n5. x\n\n### Another\n";
        let recipe = Recipe {
            title: "A thing",
            names: names.into_iter().collect(),
            max_others: 9,
            places: vec![
                (&["a/src/table.rs"], |name| format!("\"{name}\"")),
                (&["b/src/some.rs"], str::to_owned),
            ],
        };
        let expected = [
            "A thing: 5 steps",
            "A thing: n0 is not in a/src/table.rs",
            "A thing: no step names b/src/some.rs",
            "A thing: n0 is not in b/src/some.rs",
            "A thing: b/src/list.rs lists 10 of them",
        ];
        assert_eq!(complaints(&broken, &format!("\n{document}"), &recipe), expected);

        let tree = read_tree().unwrap();
        let document = tree.get("CONTRIBUTING.md").unwrap();
        for recipe in recipes(&tree) {
            assert!(10 < recipe.names.len(), "{}", recipe.title);
            assert_eq!(complaints(&tree, document, &recipe), NOTHING);
        }
    }

    #[test]
    fn no_client_names_a_method_as_text() {
        let broken = tree_of(&[
            ("a/src/lib.rs", "client.request(\"quack.ps\", params);\n// \"quack.ps\"\n"),
            ("a/src/own.rs", "client.call(PsParams {});\n#[cfg(test)]\nmod tests {\"quack.ps\"}\n"),
            ("a/tests/a.rs", "\"quack.ps\""),
            ("crates/protocol/src/client/methods.rs", "\"quack.ps\""),
        ]);
        assert_eq!(named_as_text(&broken, &["ping", "quack.ps"]), ["a/src/lib.rs names quack.ps"]);
        let (methods, _) = quackd_schema::names();
        assert_eq!(named_as_text(&read_tree().unwrap(), &methods), NOTHING);
    }
}
