//! The session's tools behind the names that models use. Called by [`super::tools`], and by readers of a conversation.

use quackd_protocol::tools::{self, EDIT_FILE, FIND, GREP_SEARCH, Parameter, READ_FILE};
use serde_json::{Map, Value, json};

/// Argument of `edit_file` with which typographic quotes and blanks at line ends may differ.
const SIMILAR: &str = "similar";

/// Argument of `edit_file` with which its data describes the change.
const DIFF: &str = "diff";

/// Lines of a file that a call reads if it names no limit. The same limit as Pi's.
const MAX_LINES: u64 = 2000;

/// A tool of the session, with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRoute {
    /// Name of the session's tool.
    pub tool: &'static str,
    /// Arguments for this tool.
    pub arguments: Map<String, Value>,
    /// The file that the call writes. Such calls of one answer run one after the other.
    pub writes: Option<String>,
}

/// Finds the session's tool for a call. A model may use the names of the session's tools, or those of Pi's, which have
/// fewer parameters. `None` for an unknown tool.
#[must_use]
pub fn route(name: &str, arguments: &Map<String, Value>) -> Option<ToolRoute> {
    let mut given = arguments.clone();
    let tool = match name {
        "edit" => {
            snake_case_edits(&mut given);
            &EDIT_FILE
        }
        "grep" => {
            rename(&mut given, "literal", "fixed_strings");
            rename(&mut given, "limit", "total_max_matches");
            rename(&mut given, "glob", "include");
            if let Some(Value::Bool(ignore)) = given.remove("ignoreCase") {
                given.insert("case_sensitive".to_owned(), Value::Bool(!ignore));
            }
            &GREP_SEARCH
        }
        "ls" => {
            let path = given.get("path").cloned().unwrap_or_else(|| ".".into());
            let limit = given.get("limit").cloned().unwrap_or_else(|| 500.into());
            let list = json!({
                "path": path, "limit": limit, "kind": ["any"], "max_depth": 1, "hidden": true,
                "ignore": "none",
            });
            given = list.as_object().cloned().unwrap_or_default();
            &FIND
        }
        other => match tools::find_spelling(other) {
            Some(tool) => tool,
            // Models that know other agents write Read, Bash or Grep.
            None if other.chars().any(|c| c.is_ascii_uppercase()) => {
                return route(&other.to_ascii_lowercase(), arguments);
            }
            None => return None,
        },
    };

    let path = tool.file.map(|name| {
        let names = tool.parameter(name).into_iter().flat_map(Parameter::names);
        let path = names.into_iter().find_map(|name| given.get(name)?.as_str());
        path.unwrap_or_default().trim_start_matches('@').trim_start_matches("./").to_owned()
    });

    // Models write typographic quotes as plain ones. The diff is shown by clients.
    if tool.name == EDIT_FILE.name {
        given.insert(SIMILAR.to_owned(), true.into());
        given.insert(DIFF.to_owned(), true.into());
    }

    if tool.runs_commands() {
        timeout_in_ms(&mut given);
    }

    if tool.name != READ_FILE.name {
        let writes = path.filter(|_| !tool.reads_only);
        return Some(ToolRoute { tool: tool.name, arguments: given, writes });
    }

    if path.as_deref().is_some_and(is_image) {
        return Some(ToolRoute { tool: tools::IMAGE, arguments: given, writes: None });
    }
    // As many lines as a model reads at once. The answer says how to go on.
    given.entry("limit").or_insert_with(|| MAX_LINES.into());
    Some(ToolRoute { tool: tool.name, arguments: given, writes: None })
}

/// Converts Pi's parameter of commands, in seconds.
fn timeout_in_ms(given: &mut Map<String, Value>) {
    let seconds = given.remove("timeout").and_then(|it| it.as_f64());
    let Some(seconds) = seconds.filter(|it| *it > 0.0) else { return };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number; the conversion saturates"
    )]
    // One day at most.
    let ms = (seconds * 1000.0).min(86_400_000.0) as u64;
    given.entry("timeout_ms").or_insert_with(|| ms.into());
}

/// Whether the name is that of an image format which models read.
fn is_image(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|it| ["png", "jpg", "jpeg", "gif", "webp"].contains(&it.as_str()))
}

fn rename(given: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = given.remove(from) {
        given.insert(to.to_owned(), value);
    }
}

fn snake_case_edits(given: &mut Map<String, Value>) {
    let Some(Value::Array(edits)) = given.get_mut("edits") else { return };
    for edit in edits.iter_mut().filter_map(Value::as_object_mut) {
        rename(edit, "oldText", "old_text");
        rename(edit, "newText", "new_text");
    }
}
