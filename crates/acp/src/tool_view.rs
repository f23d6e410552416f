//! Tool calls for display: kind, title, locations, and content with diffs. Pure.

use crate::prompt::{fenced, title};
use quackd_protocol::tools::{self, Action, NEW_TEXT, OLD_TEXT};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::{Component, Path, PathBuf};

/// Maximum number of edits of one call that are shown as diffs.
const MAX_EDITS: usize = 100;

/// Kind of a tool call, which selects icon and form in an editor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Fetch,
    Other,
}

impl Kind {
    fn of(tool: &str) -> Self {
        match tool {
            // Usual names of other agents' tools. Pi's `ls` reads a directory.
            "ls" => Self::Read,
            "apply_patch" => Self::Edit,
            "delete" | "delete_file" => Self::Delete,
            "move" | "move_file" => Self::Move,
            "glob" => Self::Search,
            "fetch" | "web_fetch" => Self::Fetch,
            _ => match tools::find_spelling(tool).map(|tool| tool.action) {
                Some(Action::Read) => Self::Read,
                Some(Action::Edit) => Self::Edit,
                Some(Action::Search) => Self::Search,
                Some(Action::Execute) => Self::Execute,
                Some(Action::Fetch) => Self::Fetch,
                Some(Action::Other) | None => Self::Other,
            },
        }
    }
}

/// A tool call: the tool, its arguments, and the directory of relative paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) tool: &'a str,
    pub(crate) args: &'a Value,
    pub(crate) cwd: &'a Path,
}

impl Call<'_> {
    /// Returns the members of a `tool_call` that describe the call.
    pub(crate) fn described(&self) -> Map<String, Value> {
        let kind = Kind::of(self.tool);
        let mut members = Map::from_iter([
            ("title".to_owned(), self.title(kind).into()),
            ("name".to_owned(), self.tool.into()),
            ("kind".to_owned(), json!(kind)),
        ]);

        if !self.args.is_null() {
            members.insert("rawInput".to_owned(), self.args.clone());
        }
        if let Some(location) = self.location(&Value::Null) {
            members.insert("locations".to_owned(), json!([location]));
        }
        members
    }

    /// Returns the members of the update with the result.
    pub(crate) fn ended(
        &self,
        content: &[Value],
        details: &Value,
        is_error: bool,
    ) -> Map<String, Value> {
        // A failed edit has changed nothing.
        let mut display = if is_error { Vec::new() } else { self.diffs() };
        if display.is_empty() {
            display = self.content(content);
        }

        let status = if is_error { "failed" } else { "completed" };
        let mut members = Map::from_iter([
            ("status".to_owned(), status.into()),
            ("content".to_owned(), display.into()),
        ]);
        if let Some(location) = self.location(details).filter(|at| at.get("line").is_some()) {
            members.insert("locations".to_owned(), json!([location]));
        }
        members
    }

    /// Returns the blocks of a result as content of a tool call.
    pub(crate) fn content(&self, blocks: &[Value]) -> Vec<Value> {
        let is_plain = matches!(Kind::of(self.tool), Kind::Execute | Kind::Read | Kind::Search);
        let convert = |block: &Value| {
            let block = match block.get("type").and_then(Value::as_str)? {
                "text" => {
                    let text = block.get("text").and_then(Value::as_str)?;
                    let text = text.trim_end().trim_start_matches('\n');
                    if text.is_empty() {
                        return None;
                    }
                    // Editors render Markdown, in which the output of a command would lose its lines.
                    let text = if is_plain { fenced(text) } else { text.to_owned() };
                    json!({"type": "text", "text": text})
                }
                "image" => json!({"type": "image", "data": block.get("data")?.as_str()?,
                    "mimeType": block.get("mimeType")?.as_str()?}),
                _ => return None,
            };
            Some(json!({"type": "content", "content": block}))
        };
        blocks.iter().filter_map(convert).collect()
    }

    /// Returns the changes of an edit or a write. Empty for other tools.
    fn diffs(&self) -> Vec<Value> {
        let Some(path) = self.path().filter(|_| Kind::of(self.tool) == Kind::Edit) else {
            return Vec::new();
        };
        if let Some(text) = self.written() {
            return vec![json!({"type": "diff", "path": path, "newText": text})];
        }

        let diff = |edit: &Value| {
            let old = text_of(edit, OLD_TEXT)?;
            let new = text_of(edit, NEW_TEXT)?;
            Some(json!({"type": "diff", "path": path, "oldText": old, "newText": new}))
        };

        match self.args.get("edits").and_then(Value::as_array) {
            Some(edits) => edits.iter().take(MAX_EDITS).filter_map(diff).collect(),
            None => diff(self.args).into_iter().collect(),
        }
    }

    fn title(&self, kind: Kind) -> String {
        let path = self.text(PATHS);
        let pattern = self.text(&["pattern", "query", "glob", "name"]);
        let text = match (kind, self.tool) {
            (Kind::Execute, _) => self.text(&["command"]).map(title),
            (Kind::Read, "ls") => path.map(|path| format!("List {path}")),
            (Kind::Read, _) => path.map(|path| format!("Read {path}")),
            (Kind::Edit, _) if self.written().is_some() => path.map(|path| format!("Write {path}")),
            (Kind::Edit, _) => path.map(|path| format!("Edit {path}")),
            (Kind::Delete, _) => path.map(|path| format!("Delete {path}")),
            (Kind::Move, _) => path.map(|path| format!("Move {path}")),
            (Kind::Search, _) => pattern.map(|pattern| match path {
                Some(path) => format!("Search {pattern} in {path}"),
                None => format!("Search {pattern}"),
            }),
            (Kind::Fetch, _) => {
                self.text(&["query", "url"]).map(|query| format!("Search the web: {query}"))
            }
            _ => None,
        };

        let name = if self.tool.is_empty() { "Tool call" } else { self.tool };
        let text = text.map(|text| title(&text)).filter(|text| !text.is_empty());
        text.unwrap_or_else(|| name.to_owned())
    }

    /// Returns the new content of a whole file.
    fn written(&self) -> Option<&str> {
        self.text(&["content"])
    }

    fn location(&self, details: &Value) -> Option<Value> {
        let path = self.path()?;
        let line = details.get("firstChangedLine").or_else(|| self.args.get("offset"));
        let line = line.or_else(|| self.args.get("start_line")).and_then(Value::as_u64);
        let line = line.and_then(|line| u32::try_from(line).ok());
        Some(match line {
            Some(line) => json!({"path": path, "line": line}),
            None => json!({ "path": path }),
        })
    }

    /// Returns the absolute path of the call's file.
    fn path(&self) -> Option<String> {
        let path = self.text(PATHS).filter(|path| !path.is_empty())?;
        let absolute = self.cwd.join(path);

        // Without the file system: the file may not exist yet.
        let mut plain = PathBuf::new();
        for part in absolute.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    plain.pop();
                }
                part => plain.push(part),
            }
        }
        Some(plain.to_string_lossy().into_owned())
    }

    fn text(&self, names: &[&str]) -> Option<&str> {
        text_of(self.args, names)
    }
}

/// Names of the argument with the path, in the order in which they are tried.
const PATHS: &[&str] = &["path", "file_path", "filePath", "file"];

fn text_of<'a>(args: &'a Value, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| args.get(name)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(tool: &'a str, args: &'a Value) -> Call<'a> {
        Call { tool, args, cwd: Path::new("/w") }
    }

    #[test]
    fn a_call_is_described_by_its_arguments() {
        for (tool, args, kind, title, location) in [
            (
                "read",
                json!({"path": "a.rs", "offset": 7}),
                "read",
                "Read a.rs",
                json!({"path": "/w/a.rs", "line": 7}),
            ),
            (
                "edit_file",
                json!({"path": "/x/../b"}),
                "edit",
                "Edit /x/../b",
                json!({"path": "/b"}),
            ),
            (
                "write",
                json!({"path": "./c", "content": ""}),
                "edit",
                "Write ./c",
                json!({"path": "/w/c"}),
            ),
            ("bash", json!({"command": "ls\nrm x"}), "execute", "ls", Value::Null),
            (
                "grep",
                json!({"pattern": "x", "path": "src"}),
                "search",
                "Search x in src",
                json!({"path": "/w/src"}),
            ),
            ("web_search", json!({"query": "q"}), "fetch", "Search the web: q", Value::Null),
            ("own", json!({"path": 5}), "other", "own", Value::Null),
            ("", Value::Null, "other", "Tool call", Value::Null),
        ] {
            let shown = call(tool, &args).described();
            assert_eq!((&shown["kind"], &shown["title"]), (&json!(kind), &json!(title)));
            let found = shown.get("locations").map_or(Value::Null, |all| all[0].clone());
            assert_eq!(found, location, "{tool}");
        }
    }

    #[test]
    fn edits_and_writes_are_diffs_unless_they_failed() {
        let blocks = [json!({"type": "text", "text": "done"})];
        let edits = json!({"path": "a", "edits": [{"oldText": "1", "newText": "2"}, {"old_text": "3", "new_text": "4"}]});
        let shown = call("edit", &edits).ended(&blocks, &json!({"firstChangedLine": 3}), false);
        assert_eq!(
            shown["content"],
            json!([{"type": "diff", "path": "/w/a", "oldText": "1", "newText": "2"},
                {"type": "diff", "path": "/w/a", "oldText": "3", "newText": "4"}])
        );
        assert_eq!(shown["locations"], json!([{"path": "/w/a", "line": 3}]));
        let one = json!({"path": "a", "old_text": "1", "new_text": "2"});
        assert_eq!(
            call("edit_file", &one).ended(&blocks, &Value::Null, false)["content"][0]["newText"],
            "2"
        );
        let write = json!({"path": "a", "content": "x"});
        let shown = call("write", &write).ended(&blocks, &Value::Null, false);
        assert_eq!(shown["content"], json!([{"type": "diff", "path": "/w/a", "newText": "x"}]));
        let failed = call("write", &write).ended(&blocks, &Value::Null, true);
        assert_eq!(failed["status"], "failed");
        assert_eq!(failed["content"][0]["content"]["text"], "done");
    }

    #[test]
    fn output_of_a_command_keeps_its_lines() {
        let blocks = [
            json!({"type": "text", "text": "\na\nb\n"}),
            json!({"type": "text", "text": ""}),
            json!(5),
        ];
        let shown = call("bash", &json!({})).content(&blocks);
        assert_eq!(
            shown,
            [json!({"type": "content", "content": {"type": "text", "text": "```\na\nb\n```"}})]
        );
    }
}
