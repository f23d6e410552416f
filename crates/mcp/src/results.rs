//! From the daemon's reply to the result that an agent gets.

use crate::tool_list::FIELDS;
use quackd_protocol::client::{ToolInfo, ToolResult};
use quackd_protocol::output::with_signal;
use quackd_protocol::tools::{self, EDIT_FILE};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Map, Value, json};
use std::path::Path;
use url::Url;

/// The reply of `quack.tool`.
pub(crate) type Reply = ToolResult;

/// Returns the result of a call: the tool's text, and the facts as structured content.
///
/// The structured content repeats the text, because some agents show the model nothing else. `structured`: the agent
/// gets it.
pub(crate) fn complete(tool: &str, reply: Reply, structured: bool) -> CallToolResult {
    let ToolResult { mut text, info, data, .. } = reply;
    text = with_signal(&text, info.signal).into_owned();

    // A hint of `edit_file` tells a model how to go on.
    if let Some(hint) = info.hint.as_ref().filter(|_| tool == EDIT_FILE.name || info.hint_adds) {
        text.push_str(&format!("\n{hint}"));
    }

    let mut facts = facts(&info);
    // The data of other tools repeats the text.
    if let Some(data) = data.filter(|_| tools::find(tool).is_some_and(|tool| tool.returns_data)) {
        facts.insert("data".to_owned(), data);
    }

    facts.insert("text".to_owned(), text.clone().into());
    let mut content = vec![ContentBlock::text(text)];
    let whole_output = info.full_output_path.as_deref().and_then(|path| resource(Path::new(path)));
    content.extend(whole_output.map(ContentBlock::resource_link));
    result(content, structured.then_some(facts), info.is_error)
}

/// Returns the result of a call that did not reach the tool.
pub(crate) fn failure(text: &str, structured: bool) -> CallToolResult {
    let facts = || Map::from_iter([("text".to_owned(), text.into())]);
    result(vec![ContentBlock::text(text)], structured.then(facts), true)
}

fn result(
    content: Vec<ContentBlock>,
    facts: Option<Map<String, Value>>,
    is_error: bool,
) -> CallToolResult {
    let mut result =
        if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = facts.map(Value::Object);
    result
}

/// Returns the fields of [`FIELDS`] that are set.
fn facts(info: &ToolInfo) -> Map<String, Value> {
    let all = json!(info);
    let is_set = |value: &&Value| !matches!(value, Value::Null | Value::Bool(false));
    let pick = |name: &&str| Some(((*name).to_owned(), all.get(*name).filter(is_set)?.clone()));
    FIELDS.iter().filter_map(pick).collect()
}

/// Returns the file of a long output as a resource.
pub(crate) fn resource(path: &Path) -> Option<Resource> {
    let uri = Url::from_file_path(path).ok()?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    let about = "The whole output of a command; read_file reads it by lines.";
    Some(Resource::new(uri, name).with_description(about).with_mime_type("text/plain"))
}
