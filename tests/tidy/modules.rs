//! Modules of a crate form no import cycles, and an actor handles few kinds of messages.

use crate::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of message kinds that one actor handles.
const MAX_MESSAGES: usize = 8;

/// Top-level modules of a crate, each with the top-level modules that it imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Code without comments and without unit tests. Strings remain, which is harmless here.
fn code(text: &str) -> String {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let plain = code.map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    plain.collect::<Vec<_>>().join("\n")
}

/// Names after each `crate::`, also in a group with braces.
fn imported(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let name = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    for (at, mark) in code.match_indices("crate::") {
        let rest = code.get(at + mark.len()..).unwrap_or_default();
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let (mut depth, mut is_start) = (0, true);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => is_start = true,
                c if is_start && !c.is_whitespace() => {
                    found.insert(name(group.get(at..).unwrap_or_default()));
                    is_start = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// Import graph of the crate whose sources begin with `root`.
fn graph(tree: &Tree, root: &str) -> Graph {
    let top = |path: &str| {
        let inside = path.strip_prefix(root)?;
        let first = inside.split('/').next()?;
        Some(first.trim_end_matches(".rs").to_owned())
    };
    let modules: BTreeSet<String> = tree.keys().filter_map(|path| top(path)).collect();
    let mut graph = Graph::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let Some(module) = top(path).filter(|it| !["lib", "main", "tests"].contains(&&**it)) else {
            continue;
        };
        let others = imported(&code(text)).into_iter();
        let others = others.filter(|it| modules.contains(it) && *it != module);
        graph.entry(module.clone()).or_default().extend(others);
    }
    graph
}

/// Repeatedly removes modules without imports. Returns the rest: modules on a cycle, and modules
/// that import one of them.
fn on_cycles(mut graph: Graph) -> Vec<String> {
    loop {
        let free: BTreeSet<String> = graph
            .iter()
            .filter(|(_, others)| others.is_empty())
            .map(|(it, _)| it.clone())
            .collect();
        if free.is_empty() {
            return graph.into_keys().collect();
        }
        graph.retain(|module, _| !free.contains(module));
        graph.values_mut().for_each(|others| others.retain(|it| !free.contains(it)));
    }
}

/// Roots of the sources of all crates.
fn roots(tree: &Tree) -> BTreeSet<String> {
    let sources = tree.keys().filter(|path| !path.starts_with("tests/") && path.ends_with(".rs"));
    sources.filter_map(|path| Some(format!("{}/src/", path.split_once("/src/")?.0))).collect()
}

fn cycles(tree: &Tree) -> Vec<String> {
    let complaint = |root: &String| {
        let left = on_cycles(graph(tree, root));
        (!left.is_empty()).then(|| format!("{root}: import cycle among {}", left.join(", ")))
    };
    roots(tree).iter().filter_map(complaint).collect()
}

/// Actors with more than [`MAX_MESSAGES`] kinds of messages.
fn large_actors(tree: &Tree) -> Vec<String> {
    let mut actors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".rs")) {
        for line in code(text).lines() {
            let Some(rest) = line.strip_prefix("impl Handler<") else { continue };
            let Some((message, actor)) = rest.split_once("> for ") else { continue };
            let root = path.split("/src/").next().unwrap_or_default();
            let actor = format!("{root}: {}", actor.trim_end_matches(" {"));
            actors.entry(actor).or_default().insert(message.to_owned());
        }
    }
    let complaint = |(actor, messages): (String, BTreeSet<String>)| {
        let n = messages.len();
        (MAX_MESSAGES < n).then(|| format!("{actor} handles {n} messages: {messages:?}"))
    };
    actors.into_iter().filter_map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn modules_form_no_cycles() {
        let broken = tree_of(&[
            ("a/src/lib.rs", "mod x;"),
            ("a/src/x.rs", "use crate::y::Y; // crate::w"),
            ("a/src/y/mod.rs", "mod z;"),
            ("a/src/y/z.rs", "use crate::{\n    w::{A, x},\n    x::B};"),
            ("a/src/w.rs", "/// [`crate::x`]\n#[cfg(test)]\nuse crate::y;"),
            ("b/src/x.rs", "use crate::y;"),
            ("b/src/y.rs", ""),
        ]);
        assert_eq!(cycles(&broken), ["a/src/: import cycle among x, y"]);
        assert_eq!(cycles(&read_tree().unwrap()), NOTHING);
    }

    #[test]
    fn actors_handle_few_messages() {
        let handler = |n: usize| format!("impl Handler<M{n}> for A {{\n");
        let eight: String = (0..8).map(handler).collect();
        let broken = tree_of(&[("a/src/x.rs", &eight), ("a/src/y.rs", &handler(8))]);
        assert_eq!(large_actors(&broken).len(), 1);
        let allowed = tree_of(&[("a/src/x.rs", &eight), ("b/src/y.rs", &handler(8))]);
        assert_eq!(large_actors(&allowed), NOTHING);
        assert_eq!(large_actors(&read_tree().unwrap()), NOTHING);
    }
}
