//! The project's rules for its own source tree. Each rule is a function from texts to complaints.
//! Its test first applies the rule to a small example that breaks it, then to the tree, which must
//! have no complaints.
//!
//! - [`manifests`]: allowed dependencies between crates, and the place of versions.
//! - [`modules`]: import cycles, and the replies of messages to actors.
//! - [`sources`]: headers, sizes, parameters and words of source files.
//! - [`platforms`]: files that differ between operating systems.
//! - [`documents`]: promises, decisions and paths.
//! - [`recipes`]: the files that an addition changes, settings that nothing uses, and methods that are named as text.
//! - [`exemptions`]: black-box tests that are left out in tier M.
//! - [`texts`]: printed texts that documents quote, and subcommands that they name.
//!
//! The rules write no files. CONTRIBUTING.md explains them to contributors.

#[path = "tidy/manifests.rs"]
mod manifests;

#[path = "tidy/modules.rs"]
mod modules;

#[path = "tidy/sources.rs"]
mod sources;

#[path = "tidy/platforms.rs"]
mod platforms;

#[path = "tidy/documents.rs"]
mod documents;

#[path = "tidy/recipes.rs"]
mod recipes;

#[path = "tidy/exemptions.rs"]
mod exemptions;

#[path = "tidy/texts.rs"]
mod texts;

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Files of the tree by their path relative to the root, with `/`.
type Tree = BTreeMap<String, String>;

/// Reads every text file that a rule checks. Follows no links, and skips `target`, the packages of
/// tests/mcp and names that begin with a dot.
fn read_tree() -> io::Result<Tree> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tree = Tree::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') || ["target", "node_modules", "venv"].contains(&name.as_str())
            {
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

/// Builds the tree of an example.
fn tree_of(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Complaints about a correct tree.
const NOTHING: [String; 0] = [];
