//! Recipes of CONTRIBUTING.md: an addition takes at most four steps. Every name in the code is in
//! the files of its recipe, and no other source file lists such names. Every setting has a row and is used.

use crate::Tree;
use crate::modules::code;
use quackd_egress::models::{provider_names, provider_variables};
use quackd_policy::hosts::presets::{PRESETS, PresetHosts};
use quackd_protocol::tools::{self, Offer};
use std::collections::BTreeSet;

/// Most steps of a recipe. A step names each file that it changes.
const MAX_STEPS: usize = 4;

/// Files in which names of tools are other words: settings of other agents, and tags of frames.
const NOT_TOOLS: [&str; 2] = [CLIENTS, "crates/protocol/src/worker.rs"];

/// Limit of a recipe whose names any other file may list: only its own files are checked.
const ANY: usize = usize::MAX;

/// The rows of the MCP clients.
const CLIENTS: &str = "crates/cli/src/subcommands/mcp/install/clients.rs";

/// The directory with the rows of the configuration keys.
const KEYS: &str = "crates/config/src/key/";

/// The settings that stay in force from an untrusted file. It copies them and uses none.
const UNTRUSTED: &str = "crates/config/src/untrusted.rs";

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

/// Returns the sources of the product with their paths.
fn products(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let is_product =
        |path: &str| path.ends_with(".rs") && path.contains("/src/") && !path.contains("/tests");
    let files = tree.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    files.filter(move |(path, _)| is_product(path))
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
        !NOT_TOOLS.contains(&path) && !places.iter().any(|(group, _)| is_in(path, group))
    };
    for (path, text) in products(tree).filter(|(path, _)| is_other(path)) {
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
    for (path, text) in products(tree).filter(|(path, _)| !is_in(path, &NAMES_METHODS)) {
        let text = code(text);
        let own = methods.iter().filter(|method| method.starts_with("quack."));
        let named = own.filter(|method| text.contains(&format!("\"{method}\"")));
        complaints.extend(named.map(|method| format!("{path} names {method}")));
    }
    complaints
}

/// Whether a source reads or names a field, such as `config.log.level`.
fn names_field(text: &str, field: &str) -> bool {
    let dotted = format!(".{field}");
    let mut rests = text.split(dotted.as_str()).skip(1);
    rests.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Settings without a row in the table of keys, and settings that nothing uses. The compiler accepts both, because the
/// fields are public.
fn setting_complaints(tree: &Tree) -> Vec<String> {
    let rows = products(tree).filter(|(path, _)| path.starts_with(KEYS));
    let rows: String = rows.map(|(_, text)| code(text)).collect();
    let users = products(tree).filter(|(path, _)| !is_in(path, &[KEYS, UNTRUSTED]));
    let users: Vec<String> = users.map(|(_, text)| code(text)).collect();
    let config = products(tree).filter(|(path, _)| path.starts_with("crates/config/src/"));
    let fields = config.flat_map(|(_, text)| text.lines()).filter_map(|line| {
        line.trim_start().strip_prefix("pub ")?.split_once(": Setting<").map(|(field, _)| field)
    });

    let mut complaints = Vec::new();
    for field in fields {
        if !names_field(&rows, field) {
            complaints.push(format!("the setting {field} has no row in {KEYS}"));
        }
        if !users.iter().any(|text| names_field(text, field)) {
            complaints.push(format!("nothing uses the setting {field}"));
        }
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
            names: tools::all().map(|tool| owned(tool.name)).collect(),
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
                (&[KEYS], |name| format!("\"{name}\"")),
                (&["docs/configuration.md"], |name| format!("`{name}`")),
            ],
        },
        Recipe {
            title: "A subcommand",
            names: crate::texts::verbs(args),
            // The rows of the methods: `attach` and nine others have the names of subcommands.
            max_others: 10,
            places: vec![
                (&["crates/cli/src/args.rs"], |verb| format!("    {}", camel(verb))),
                (&["crates/cli/src/subcommands/mod.rs"], |verb| format!("Verb::{}", camel(verb))),
            ],
        },
    ]
}

/// Returns the texts of a member in the rows of a table, without empty ones.
fn members(table: &str, member: &str) -> BTreeSet<String> {
    let before = format!("\n    {member}: \"");
    let rests = table.split(before.as_str()).skip(1);
    let texts = rests.filter_map(|rest| rest.split('"').next()).filter(|text| !text.is_empty());
    texts.map(str::to_owned).collect()
}

/// Recipes of which only the documents and tests are checked, because nothing else reminds of them.
fn reminders(tree: &Tree) -> Vec<Recipe> {
    let clients = tree.get(CLIENTS).map_or("", String::as_str);
    let offered = tools::all().filter(|tool| tool.offer != Offer::Ask);
    let derived = PRESETS.iter().filter(|preset| matches!(preset.hosts, PresetHosts::Derived(_)));
    vec![
        Recipe {
            title: "A tool",
            names: offered.map(|tool| tool.name.to_owned()).collect(),
            max_others: ANY,
            places: vec![(&["docs/agents.md"], |name| format!("`{name}`"))],
        },
        Recipe {
            title: "A model provider",
            names: provider_names().map(str::to_owned).collect(),
            max_others: ANY,
            places: vec![(&["tests/black_box/agent/providers.rs"], |name| format!("\"{name}\""))],
        },
        Recipe {
            title: "A model provider",
            names: provider_variables().flatten().map(str::to_owned).collect(),
            max_others: ANY,
            places: vec![(&["docs/configuration.md"], |name| format!("`{name}`"))],
        },
        Recipe {
            title: "A network preset",
            names: derived.map(|preset| preset.name.to_owned()).collect(),
            max_others: ANY,
            places: vec![(&["docs/operations.md"], |name| format!("| `@{name}` |"))],
        },
        Recipe {
            title: "An MCP client",
            names: members(clients, "id"),
            max_others: ANY,
            places: vec![
                (&["docs/agents.md"], |name| format!("| `{name}` |")),
                (&["tests/black_box/mcp_install.rs"], |name| format!("\"{name}\"")),
            ],
        },
        Recipe {
            title: "An MCP client",
            names: members(clients, "label"),
            max_others: ANY,
            places: vec![(&["README.md"], str::to_owned)],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn each_recipe_has_four_steps_and_no_other_file_lists_the_names() {
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
        for recipe in recipes(&tree).into_iter().chain(reminders(&tree)) {
            assert!(5 < recipe.names.len(), "{}", recipe.title);
            assert_eq!(complaints(&tree, document, &recipe), NOTHING);
        }
    }

    #[test]
    fn rows_have_members_with_a_text() {
        let table =
            "const A: X = X {\n    id: \"a\",\n    label: \"A b\",\n};\nX {\n    id: \"\",\n}";
        assert_eq!(members(table, "id"), BTreeSet::from(["a".to_owned()]));
        assert_eq!(members(table, "label"), BTreeSet::from(["A b".to_owned()]));
    }

    #[test]
    fn every_setting_has_a_row_and_is_used() {
        let broken = tree_of(&[
            (
                "crates/config/src/config.rs",
                "    pub a: Setting<bool>,\n    pub ab: Setting<u8>,\n    pub c: u8,\n",
            ),
            ("crates/config/src/key/t.rs", "field!(t.ab)\n#[cfg(test)]\nmod tests { field!(t.a) }"),
            (UNTRUSTED, "config.t.ab"),
            ("x/src/lib.rs", "config.t.a.value"),
        ]);
        let expected =
            ["the setting a has no row in crates/config/src/key/", "nothing uses the setting ab"];
        assert_eq!(setting_complaints(&broken), expected);
        assert_eq!(setting_complaints(&read_tree().unwrap()), NOTHING);
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
