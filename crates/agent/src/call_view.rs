//! Subject of a tool call, and the lines that an edit changes, for readers. Used by exports and by the command
//! line.

use quackd_protocol::tools::{
    EDIT_FILE, NEW_TEXT, OLD_TEXT, READ_FILE, Tool, WRITE_FILE, find_spelling,
};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// Limits of two texts that are compared, so that a huge edit is shown in bounded time.
const MAX_DIFF_BYTES: usize = 64 * 1024;
const MAX_DIFF_LINES: usize = 4_000;

/// A line of an edit, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The edit removes it.
    Removed(String),
    /// The edit adds it.
    Added(String),
    /// The edit names it, and leaves it as it is.
    Kept(String),
    /// The texts are too long to be compared.
    TooLarge,
}

/// Whether the tool replaces parts of a file.
#[must_use]
pub fn is_edit(tool: &str) -> bool {
    is_of(tool, &EDIT_FILE)
}

/// Whether the tool writes a whole file.
#[must_use]
pub fn is_write(tool: &str) -> bool {
    is_of(tool, &WRITE_FILE)
}

/// Whether the tool returns the content of a file.
#[must_use]
pub fn is_read(tool: &str) -> bool {
    is_of(tool, &READ_FILE)
}

/// Whether a model knows this tool by the name.
fn is_of(name: &str, tool: &Tool) -> bool {
    find_spelling(name).is_some_and(|named| named.name == tool.name)
}

/// Returns the command or the path that a call is about. `None` if all its arguments matter.
#[must_use]
pub fn subject<'a>(tool: &str, args: &'a Value) -> Option<&'a str> {
    let tool = find_spelling(tool)?;
    let command = tool.main.filter(|_| tool.runs_commands());
    args.get(tool.file.or(command)?)?.as_str()
}

/// Returns the lines of the texts of an edit. `clean` makes a text safe to show. Empty for other calls.
#[must_use]
pub fn changes(tool: &str, args: &Value, clean: impl Fn(&str) -> String) -> Vec<Change> {
    if !is_edit(tool) {
        return Vec::new();
    }
    let edits = args.get("edits").and_then(Value::as_array);
    let edits = edits.map_or_else(|| std::slice::from_ref(args), Vec::as_slice);

    let mut changes = Vec::new();
    for edit in edits {
        let text = |keys: &[&str]| keys.iter().find_map(|key| edit.get(key)?.as_str());
        let (Some(old), Some(new)) = (text(OLD_TEXT), text(NEW_TEXT)) else { continue };

        let lines = old.lines().count() + new.lines().count();
        if MAX_DIFF_BYTES < old.len() + new.len() || MAX_DIFF_LINES < lines {
            changes.push(Change::TooLarge);
            continue;
        }

        let (old, new) = (clean(old), clean(new));
        for change in TextDiff::from_lines(&old, &new).iter_all_changes() {
            let line = change.value().trim_end_matches('\n').to_owned();
            changes.push(match change.tag() {
                ChangeTag::Delete => Change::Removed(line),
                ChangeTag::Insert => Change::Added(line),
                ChangeTag::Equal => Change::Kept(line),
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_of_an_edit_has_its_lines_and_a_long_one_is_not_compared() {
        let one = json!({"path": "a", "oldText": "x\ny\n", "newText": "x\nz\n"});
        let several = json!({"path": "a", "edits": [{"find": "1", "replace": "2"}, {"find": "3"}]});
        let keep = |text: &str| text.to_owned();
        let [kept, removed, added] = ["x", "y", "z"].map(str::to_owned);
        assert_eq!(
            changes("edit", &one, keep),
            [Change::Kept(kept), Change::Removed(removed), Change::Added(added)]
        );
        assert_eq!(changes("edit_file", &several, keep).len(), 2);
        for long in ["x".repeat(MAX_DIFF_BYTES), "\n".repeat(MAX_DIFF_LINES)] {
            let long = json!({"old_text": long, "new_text": "y"});
            assert_eq!(changes("edit", &long, keep), [Change::TooLarge]);
        }
        assert_eq!(changes("bash", &one, keep), []);
        assert_eq!(subject("edit", &one), Some("a"));
        assert_eq!(subject("grep", &one), None);
    }
}
