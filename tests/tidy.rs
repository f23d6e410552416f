//! The project's rules about itself. Each rule is a function from texts to complaints: its test first shows
//! it a small example that breaks it, then the tree, which must give none.
//!
//! - [`manifests`]: who may depend on whom, and where versions stand.
//! - [`modules`]: import cycles and the size of actors.
//! - [`sources`]: heads, sizes and words of source files.
//! - [`documents`]: promises, decisions and paths.
//! - [`texts`]: what documents say that programs print, and which verbs they name.
//!
//! Nothing is written. What the rules mean for a contributor stands in CONTRIBUTING.md.

#[path = "tidy/manifests.rs"]
mod manifests;

#[path = "tidy/modules.rs"]
mod modules;

#[path = "tidy/sources.rs"]
mod sources;

#[path = "tidy/documents.rs"]
mod documents;

#[path = "tidy/texts.rs"]
mod texts;

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Files of the tree by their path from the root, with `/`.
type Tree = BTreeMap<String, String>;

/// Reads every text file that a rule looks at. Follows no link; leaves out `target` and what begins
/// with a dot.
fn read_tree() -> io::Result<Tree> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tree = Tree::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') || name == "target" {
                continue;
            }
            let path = format!("{directory}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(format!("{path}/"));
            } else if kind.is_file() && [".rs", ".toml", ".md"].iter().any(|e| path.ends_with(e)) {
                tree.insert(path, fs::read_to_string(entry.path())?);
            }
        }
    }
    Ok(tree)
}

/// A tree for an example.
fn tree_of(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// What a rule says of a tree in order.
const NOTHING: [String; 0] = [];
