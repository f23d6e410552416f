//! Modules of a crate form no import cycles, nor do files. Each type of message to an actor has its own reply.

use crate::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Top-level modules of a crate, each with the top-level modules that it imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Code without comments and without unit tests. Strings remain, which is harmless here.
pub(crate) fn code(text: &str) -> String {
    let mut lines = text.lines();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            // One declaration or import for tests, or else the tests themselves, which come last.
            match lines.next() {
                Some(next) if next.ends_with(';') => continue,
                _ => break,
            }
        }
        code.push_str(line.split_once("//").map_or(line, |(code, _)| code));
        code.push('\n');
    }
    code
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

/// Path of a module in its crate, such as `["session", "worker"]`.
type ModulePath = Vec<String>;

/// One import: the words of its path, and the name that it gets in the module.
struct Import {
    is_public: bool,
    path: Vec<String>,
    name: String,
}

/// The file of a module.
struct Source {
    file: String,
    /// Code without imports.
    code: String,
    imports: Vec<Import>,
    /// Modules that it declares.
    children: BTreeSet<String>,
}

/// Files of a crate by their modules.
type Sources = BTreeMap<ModulePath, Source>;

/// Reads the leaves of the tree of an import into `imports`.
fn leaves(parents: &[String], tree: &str, is_public: bool, imports: &mut Vec<Import>) {
    let words = |path: &str| {
        let words = path.split("::").map(str::trim).filter(|word| !word.is_empty());
        parents.iter().cloned().chain(words.map(str::to_owned)).collect::<Vec<_>>()
    };
    let Some((parent, group)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = words(path);
        let is_itself = path.last().is_some_and(|last| last == "self");
        let last = path.iter().rev().nth(usize::from(is_itself)).cloned().unwrap_or_default();
        let name = if alias.is_empty() { last } else { alias.trim().to_owned() };
        return imports.push(Import { is_public, path, name });
    };
    let parents = words(parent);
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let mut depth = 0;
    for part in group.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    }) {
        if !part.trim().is_empty() {
            leaves(&parents, part, is_public, imports);
        }
    }
}

/// Reads a file without its unit tests.
fn source(file: &str, text: &str) -> Source {
    let (mut rest, mut statement) = (String::new(), String::new());
    let (mut imports, mut children) = (Vec::new(), BTreeSet::new());
    for line in code(text).lines() {
        let words = line.trim_start();
        let is_import =
            words.starts_with("use ") || words.starts_with("pub") && words.contains(" use ");
        if is_import || !statement.is_empty() {
            statement.push_str(line);
            if let Some((is_public, tree)) =
                statement.trim_end().strip_suffix(';').and_then(|it| it.split_once("use "))
            {
                leaves(&[], tree, !is_public.trim().is_empty(), &mut imports);
                statement.clear();
            }
        } else if let Some((_, child)) =
            words.strip_suffix(';').and_then(|words| words.split_once("mod "))
        {
            children.insert(child.to_owned());
        } else {
            rest.push_str(line);
            rest.push('\n');
        }
    }
    Source { file: file.to_owned(), code: rest, imports, children }
}

fn sources(tree: &Tree, root: &str) -> Sources {
    let files = tree.iter().filter(|(path, _)| path.ends_with(".rs"));
    let module = |(path, text): (&String, &String)| {
        let inside = path.strip_prefix(root)?.strip_suffix(".rs")?;
        let mut module: ModulePath = inside.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        let is_product = !module.iter().any(|word| word == "tests" || word == "bin");
        is_product.then(|| (module, source(path, text)))
    };
    files.filter_map(module).collect()
}

/// Returns the module whose file has the item that `path` names in the module `at`: behind re-exports, the one that
/// defines it. `None` for a path out of the crate.
fn defining(sources: &Sources, at: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
    let first = path.first()?;
    let n_super = path.iter().take_while(|word| *word == "super").count();
    let (mut module, mut rest) = match first.as_str() {
        "crate" => (Vec::new(), path.get(1..)?),
        "self" => (at.to_vec(), path.get(1..)?),
        "super" => (at.get(..at.len().checked_sub(n_super)?)?.to_vec(), path.get(n_super..)?),
        child if sources.get(at)?.children.contains(child) => (at.to_vec(), path),
        _ => return None,
    };
    while let [word, others @ ..] = rest {
        module.push(word.clone());
        if !sources.contains_key(&module) {
            module.pop();
            break;
        }
        rest = others;
    }
    let source = sources.get(&module)?;
    let Some(item) = rest.first().filter(|_| depth < 8) else { return Some(module) };
    let mut imports = source.imports.iter().filter(|import| import.name == *item);
    let behind = imports.find_map(|import| defining(sources, &module, &import.path, depth + 1));
    Some(behind.unwrap_or(module))
}

/// Paths with several words in code.
fn paths(code: &str) -> impl Iterator<Item = Vec<String>> {
    let chunks = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    chunks
        .filter(|chunk| chunk.contains("::"))
        .map(|chunk| chunk.trim_matches(':').split("::").map(str::to_owned).collect::<Vec<_>>())
}

/// Modules whose items the file of `module` uses. A re-export alone is no use.
fn uses(sources: &Sources, module: &ModulePath, source: &Source) -> BTreeSet<ModulePath> {
    let words: BTreeSet<&str> =
        source.code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let is_used = |import: &&Import| !import.is_public || words.contains(import.name.as_str());
    let named: Vec<Vec<String>> = paths(&source.code).collect();
    let mut found: BTreeSet<ModulePath> = BTreeSet::new();
    let mut add = |path: &[String]| found.extend(defining(sources, module, path, 0));
    for import in source.imports.iter().filter(is_used) {
        // Of an imported module, the items that the code names.
        let items = named.iter().filter(|path| path.first() == Some(&import.name));
        let items = items.filter_map(|path| Some([&import.path, path.get(1..)?].concat()));
        let items: Vec<_> = items.collect();
        if items.is_empty() {
            add(&import.path);
        }
        items.iter().for_each(|item| add(item));
    }
    named.iter().for_each(|path| add(path));
    found.remove(module);
    found
}

/// Circles of the files of a crate: the first file of each, and how many files use each other.
fn circles(tree: &Tree, root: &str) -> Vec<(String, usize)> {
    let sources = sources(tree, root);
    let arrows: BTreeMap<_, _> =
        sources.iter().map(|(module, source)| (module, uses(&sources, module, source))).collect();
    let mut reached = BTreeMap::new();
    for module in sources.keys() {
        let (mut found, mut left) = (BTreeSet::new(), vec![module]);
        while let Some(next) = left.pop() {
            let others = arrows.get(next).into_iter().flatten();
            left.extend(others.filter(|other| found.insert(*other)));
        }
        reached.insert(module, found);
    }
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let is_in =
            |other: &&&ModulePath| reached.get(**other).is_some_and(|found| found.contains(module));
        let circle = others.iter().filter(is_in).filter_map(|other| sources.get(*other));
        let circle: Vec<&str> = circle.map(|source| source.file.as_str()).collect();
        if let Some(first) = circle.iter().min() {
            circles.insert(((*first).to_owned(), circle.len()));
        }
    }
    circles.into_iter().collect()
}

/// Enums of requests that share one `bool`, or one enum of replies, and messages that bring a channel for their reply.
fn shared_replies(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let code = code(text);
        let lines: Vec<&str> = code.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let is_message = line.starts_with("#[rtype(");
            let is_reply = line.starts_with("#[derive(") && line.contains("MessageResponse");
            if !is_message && !is_reply {
                continue;
            }

            let mut item = lines.iter().skip(at + 1).skip_while(|line| line.starts_with("#["));
            let head = item.next().copied().unwrap_or_default();
            let is_shared = head.contains("enum ") && (is_reply || line.contains("\"bool\""));
            let mut fields = item.take_while(|line| head.ends_with('{') && !line.starts_with('}'));
            let has_channel = fields.any(|line| line.contains("oneshot::Sender<"))
                || head.contains("oneshot::Sender<");

            if is_shared || has_channel {
                complaints.push(format!("{path}: each message has its own reply: {head}"));
            }
        }
    }
    complaints
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
    fn files_form_no_circles() {
        let broken = tree_of(&[
            ("a/src/lib.rs", "mod x;\nmod y;\npub use x::X;"),
            ("a/src/x/mod.rs", "mod one;\nmod two;\npub(crate) use one::One;\npub struct X;"),
            ("a/src/x/one.rs", "use super::two::Two;\nstruct One(Two);"),
            ("a/src/x/two.rs", "use crate::{\n    x::{One as It},\n};\nstruct Two(It);"),
            ("a/src/y.rs", "use crate::X;\nfn y(x: X) {}\n#[cfg(test)]\nuse crate::z;"),
            ("b/src/lib.rs", "mod x;\npub use x::X;\nfn f() { x::f() }\nstruct L;"),
            ("b/src/x.rs", "// crate::L\nuse super::L;\nstruct X(L);"),
            ("c/src/lib.rs", "mod x;\npub use x::X;\nstruct L;"),
            ("c/src/x.rs", "use super::L;\nstruct X(L);"),
        ]);
        assert_eq!(circles(&broken, "a/src/"), [("a/src/x/one.rs".to_owned(), 2)]);
        assert_eq!(circles(&broken, "b/src/"), [("b/src/lib.rs".to_owned(), 2)]);
        assert_eq!(circles(&broken, "c/src/"), []);

        let tree = read_tree().unwrap();
        let found: Vec<_> = roots(&tree).iter().flat_map(|root| circles(&tree, root)).collect();
        assert_eq!(found, []);
    }

    #[test]
    fn each_message_has_its_own_reply() {
        let of = |text: &str| shared_replies(&tree_of(&[("a/src/x.rs", text)])).len();
        assert_eq!(of("#[rtype(result = \"bool\")]\nenum Tell {\n    A,\n}\n"), 1);
        assert_eq!(of("#[derive(MessageResponse)]\npub(crate) enum Reply {\n    A,\n}\n"), 1);
        let channel = "struct Ask {\n    reply: oneshot::Sender<u8>,\n}\n";
        assert_eq!(of(&format!("#[rtype(result = \"()\")]\n{channel}")), 1);
        assert_eq!(of(&format!("#[rtype(result = \"bool\")]\nstruct Evict;\n{channel}")), 0);
        assert_eq!(of("#[derive(MessageResponse)]\nstruct Reply {\n    a: bool,\n}\n"), 0);
        assert_eq!(shared_replies(&read_tree().unwrap()), NOTHING);
    }
}
