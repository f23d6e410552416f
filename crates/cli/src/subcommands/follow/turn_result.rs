//! The result of one turn as one JSON object, for `quack say --result json`, and the check of an answer with a schema.
//! Takes the events of the turn, and what it has done to files.

use super::changed_files::{FileChanges, FilesBefore};
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use quackd_agent::engine::route;
use quackd_protocol::far::FarWorkspace;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Limits of the result: the files that are listed, and the calls that are remembered.
const MAX_FILES: usize = 10_000;
const MAX_CALLS: usize = 1_000;

/// Limits of reported violations of a schema: their number, and the characters of one.
const MAX_VIOLATIONS: usize = 10;
const MAX_VIOLATION: usize = 300;

/// Session and directory of a turn.
#[derive(Debug, Default)]
pub(crate) struct TurnPlace {
    pub(crate) session: String,
    pub(crate) workspace: String,
    /// Absolute path of the user's directory, if it is another one.
    pub(crate) directory: Option<String>,
}

/// The result so far.
#[derive(Debug, Default)]
pub(crate) struct TurnResult {
    place: TurnPlace,
    /// Files before the prompt was sent. With them, the object is the only output.
    files: Option<Arc<FilesBefore>>,
    /// Schema of the answer, which [`check_schema`] has accepted.
    schema: Option<Value>,
    text: String,
    changed: BTreeSet<String>,
    deleted: BTreeSet<String>,
    /// Old and new names.
    renamed: BTreeSet<(String, String)>,
    /// Reason for which not all of them are known.
    files_error: Option<String>,
    /// Files of the running calls that write one.
    writing: HashMap<String, String>,
    cost: f64,
    is_cost_unknown: bool,
    tokens: u64,
    stop_reason: Option<String>,
    reason: Option<String>,
    error: Option<String>,
}

impl TurnResult {
    /// Creates the result of a turn of this session. With `files`, the object is the only output.
    pub(crate) fn new(place: TurnPlace, files: Option<FilesBefore>, schema: Option<Value>) -> Self {
        Self { place, files: files.map(Arc::new), schema, ..Self::default() }
    }

    /// Returns the files before the prompt was sent, if the object needs them.
    pub(super) fn files_before(&self) -> Option<Arc<FilesBefore>> {
        self.files.clone()
    }

    /// Adds what the turn has done to files of the workspace.
    pub(super) fn compared(&mut self, changes: FileChanges) {
        let workspace = Path::new(&self.place.workspace);
        if FarWorkspace::of(&self.place.workspace).is_none() {
            // Drops files that a tool wrote and a later step removed.
            self.changed.retain(|path| workspace.join(path).symlink_metadata().is_ok());
        }
        self.changed.extend(changes.changed.into_iter().take(MAX_FILES));
        self.deleted = changes.deleted.into_iter().take(MAX_FILES).collect();
        self.renamed = changes.renamed.into_iter().take(MAX_FILES).collect();
        self.files_error = changes.error;
    }

    /// Whether the object is the only output.
    pub(super) fn is_alone(&self) -> bool {
        self.files.is_some()
    }

    /// Handles an event of the turn.
    pub(super) fn happened(&mut self, name: &str, data: &Value) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
        match name {
            // The path is in the arguments, which only the event of the start has.
            "tool_execution_start" if self.writing.len() < MAX_CALLS => {
                let none = Map::new();
                let arguments = data.get("args").and_then(Value::as_object).unwrap_or(&none);
                let tool = text("toolName").unwrap_or_default();
                let writes = route(&tool, arguments).and_then(|known| known.writes);
                if let (Some(path), Some(id)) = (writes, text("toolCallId")) {
                    self.writing.insert(id, path);
                }
            }
            "tool_execution_end" => {
                let path = self.writing.remove(&text("toolCallId").unwrap_or_default());
                // A call that has failed may have written nothing.
                let has_failed = data.get("isError") == Some(&Value::Bool(true));
                let path = path.filter(|_| !has_failed && self.changed.len() < MAX_FILES);
                self.changed.extend(path.map(|path| self.place.in_workspace(&path)));
            }
            "message_end" => self.ended(data.get("message").unwrap_or(&Value::Null)),
            "agent_end" => self.reason = text("reason"),
            "prompt_error" => self.error = text("error"),
            _ => {}
        }
    }

    fn ended(&mut self, message: &Value) {
        let text = |key: &str| message.get(key).and_then(Value::as_str).map(str::to_owned);
        if text("role").as_deref() != Some("assistant") {
            return;
        }

        let blocks = message.get("content").and_then(Value::as_array);
        let texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
        // The last answer of the model is that of the turn.
        self.text = texts.collect();
        (self.stop_reason, self.error) = (text("stopReason"), text("errorMessage"));

        let cost = message.pointer("/usage/cost");
        let total = cost.and_then(|cost| cost.get("total")?.as_f64());
        self.cost += total.unwrap_or_default();
        let unknown = cost.and_then(|cost| cost.get("unknown")?.as_bool());
        // Without a total, the sum would be too small.
        self.is_cost_unknown |= unknown == Some(true) || total.is_none();

        let tokens = message.pointer("/usage/totalTokens").and_then(Value::as_u64);
        self.tokens = self.tokens.saturating_add(tokens.unwrap_or_default());
    }

    /// Prints the object, unless something else is the output, and checks the answer. Returns the exit code.
    pub(super) fn finish(self, exit: ExitCode, output: CliOutput) -> io::Result<ExitCode> {
        let answer = serde_json::from_str::<Value>(&self.text).ok();
        let schema = self.schema.as_ref();
        let violations = schema.map_or_else(Vec::new, |schema| match &answer {
            Some(answer) => violations(schema, answer),
            None => vec![
                "the answer is not JSON, although a schema was sent: the provider may ignore it"
                    .to_owned(),
            ],
        });

        // The failure of a turn is reported already.
        let is_wrong = exit == ExitCode::Ok && !violations.is_empty();
        if is_wrong {
            output.failure(&violations.join("\n"));
        }

        if self.is_alone() {
            let cost = (!self.is_cost_unknown).then_some(self.cost);
            let renamed = |(from, to)| json!({ "from": from, "to": to });
            let renamed: Vec<Value> = self.renamed.into_iter().map(renamed).collect();
            let mut object = json!({
                "sessionId": self.place.session, "text": self.text, "filesChanged": self.changed,
                "filesDeleted": self.deleted, "filesRenamed": renamed,
                "cost": cost, "tokens": self.tokens, "stopReason": self.stop_reason,
                "reason": self.reason, "error": self.error,
            });

            if let Some(fields) = object.as_object_mut() {
                if schema.is_some() {
                    fields.insert("output".to_owned(), answer.unwrap_or_default());
                    fields.insert("schemaErrors".to_owned(), violations.into());
                }
                if let Some(error) = self.files_error {
                    fields.insert("filesError".to_owned(), error.into());
                }
            }
            output.document(&object)?;
        }
        Ok(if is_wrong { ExitCode::NoAnswer } else { exit })
    }
}

impl TurnPlace {
    /// Returns a path of a tool relative to the workspace, or as it is if it leads elsewhere.
    fn in_workspace(&self, path: &str) -> String {
        let far = FarWorkspace::of(&self.workspace).map(|far| far.path);
        let workspace = Path::new(far.as_ref().unwrap_or(&self.workspace));
        let directory = self.directory.as_ref().map_or(workspace, Path::new);

        let mut absolute = PathBuf::new();
        for part in directory.join(path).components() {
            // Without the file system: the file may be deleted by now.
            match part {
                Component::CurDir => {}
                Component::ParentDir => drop(absolute.pop()),
                part => absolute.push(part),
            }
        }

        let below =
            absolute.strip_prefix(workspace).ok().filter(|path| !path.as_os_str().is_empty());
        below.map_or_else(|| path.to_owned(), |below| below.display().to_string())
    }
}

/// Checks that answers can be compared with the schema.
///
/// # Errors
/// The reason in one line.
pub(crate) fn check_schema(schema: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema);
    validator.map(drop).map_err(|error| display::cut(&error.to_string(), MAX_VIOLATION))
}

/// Returns where the answer differs from the schema.
fn violations(schema: &Value, answer: &Value) -> Vec<String> {
    let Ok(validator) = jsonschema::validator_for(schema) else { return Vec::new() };
    let line = |error: jsonschema::ValidationError<'_>| {
        let place = error.instance_path().to_string();
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        display::cut(&format!("the answer does not fit the schema{at}: {error}"), MAX_VIOLATION)
    };
    validator.iter_errors(answer).take(MAX_VIOLATIONS).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_tools_are_relative_to_the_workspace() {
        let place = TurnPlace {
            session: String::new(),
            workspace: "/w".to_owned(),
            directory: Some("/w/sub".to_owned()),
        };
        for (path, relative) in [
            ("a.txt", "sub/a.txt"),
            ("../a.txt", "a.txt"),
            ("./b/../a.txt", "sub/a.txt"),
            ("/w/c", "c"),
            ("/elsewhere", "/elsewhere"),
            ("../../x", "../../x"),
        ] {
            assert_eq!(place.in_workspace(path), relative);
        }
        for workspace in ["/w", "ssh:build1:/w"] {
            let place = TurnPlace { workspace: workspace.to_owned(), ..TurnPlace::default() };
            assert_eq!(place.in_workspace("a.txt"), "a.txt");
            assert_eq!(place.in_workspace("/w/b/a.txt"), "b/a.txt");
        }
    }

    #[test]
    fn files_of_another_machine_are_not_compared_with_files_here() {
        let place =
            TurnPlace { workspace: "ssh:build1:/no/such/w".to_owned(), ..TurnPlace::default() };
        let mut result = TurnResult::new(place, None, None);
        result.changed.insert("written.txt".to_owned());
        result.compared(FileChanges::default());
        assert!(result.changed.contains("written.txt"));
    }

    #[test]
    fn an_answer_that_does_not_fit_is_told_with_its_place_and_within_bounds() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}},
            "required": ["n", "m"], "additionalProperties": false});
        assert_eq!(violations(&schema, &json!({"n": 1, "m": 2})).len(), 1, "m is not allowed");
        let texts = violations(&schema, &json!({"n": "x".repeat(9_999)}));
        assert!(texts.iter().any(|it| it.contains(" at /n: ")), "{texts:?}");
        assert!(texts.iter().all(|it| it.chars().count() <= MAX_VIOLATION + 1));
        let many: Vec<Value> = (0..99).map(|_| json!("x")).collect();
        let list = json!({"items": {"type": "integer"}});
        assert_eq!(violations(&list, &json!(many)).len(), MAX_VIOLATIONS);
        for wrong in [json!({"type": "nonsense"}), json!({"$ref": "https://a.example/schema"})] {
            assert!(check_schema(&wrong).is_err(), "{wrong}");
        }
        let draft = "http://json-schema.org/draft-07/schema#";
        assert_eq!(
            check_schema(
                &json!({"$schema": draft, "$ref": "#/definitions/a", "definitions": {"a": {}}})
            ),
            Ok(())
        );
    }
}
