//! Files with instructions for agents, and references from one to others. The worker follows those of a workspace, the
//! supervisor those of the user's own file.

use serde::{Deserialize, Serialize};

/// A file with instructions for agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionFile {
    /// Path as the model and `quack state` show it.
    pub path: String,
    /// Content, which may be cut.
    pub text: String,
}

/// A file that a text with instructions names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Import<'a> {
    /// `@path`: relative to the file with the text.
    Relative(&'a str),
    /// `@~/path`: relative to the user's home.
    OfHome(&'a str),
}

/// Returns the paths after `@` in a text, outside of code.
pub fn imports(text: &str) -> impl Iterator<Item = Import<'_>> {
    let mut is_code = false;
    let lines = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });

    let words = lines.flat_map(|line| {
        // Every second part of a line is between backticks.
        line.split('`').step_by(2).flat_map(str::split_whitespace)
    });

    let paths = words.filter_map(|word| word.strip_prefix('@'));
    paths.map(|path| path.trim_end_matches(['.', ',', ';', ':', ')'])).filter_map(|path| {
        let is_plain = |c: char| !c.is_control() && !matches!(c, '"' | '<' | '>' | '~');
        let (import, path) = match path.strip_prefix("~/") {
            Some(path) => (Import::OfHome(path), path),
            None => (Import::Relative(path), path),
        };
        let is_path = !path.is_empty() && !path.starts_with('/') && path.chars().all(is_plain);
        is_path.then_some(import)
    })
}

/// Joins a directory, which ends with a slash, and a path. `None` if the result is outside of the root.
#[must_use]
pub fn joined(directory: &str, path: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in directory.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}
