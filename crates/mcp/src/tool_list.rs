//! The tools that an agent is offered: which, with which schemas, and with annotations that match the confinement.

use quackd_protocol::client::ToolResult;
use quackd_protocol::tools::{self, Action, Offer, TERM_READ, TTY, Tool as KnownTool};
use rmcp::model::{Implementation, JsonObject, MetaObject, Tool, ToolAnnotations};
use schemars::schema_for;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

/// Name of the argument that selects the directory of a call.
pub const WORKSPACE: &str = "workspace";

/// Fields of `quack.tool`'s reply that agents receive as structured content, in this order.
pub(crate) const FIELDS: &[&str] = &[
    "text",
    "exitCode",
    "signal",
    "timedOut",
    "aborted",
    "workerDied",
    "busy",
    "truncated",
    "fullOutputPath",
];

/// Agents that show the model only the structured content where a result has both. JSON escapes make code and output
/// hard to read, so these agents get the text alone. Seen with Claude Code 2.1 and Codex 0.169.
const TEXT_ONLY: &[&str] = &["claude-code", "codex-mcp-client"];

/// Whether an agent gets structured content in addition to the text.
pub(crate) fn has_structured_content(agent: Option<&Implementation>) -> bool {
    agent.is_none_or(|agent| !TEXT_ONLY.contains(&agent.name.as_str()))
}

/// A word that is neither a profile nor a tool.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is neither a profile (core, search, all) nor a tool; `quack schema tools` lists the tools"
)]
pub struct UnknownTool(String);

/// The names of tools that are offered, in the order of the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<&'static str>);

impl Selection {
    /// Reads a list of profiles and tools. `safe` leaves out the tools that always write.
    ///
    /// # Errors
    /// [`UnknownTool`].
    pub fn parse<S: AsRef<str>>(words: &[S], safe: bool) -> Result<Self, UnknownTool> {
        let mut chosen = Vec::new();
        for word in words {
            let is_chosen: fn(&KnownTool) -> bool = match word.as_ref().trim() {
                "core" => |tool| tool.offer != Offer::Ask,
                "search" => |tool| tool.offer == Offer::Look,
                "all" => |_| true,
                name => match tools::find(name) {
                    Some(tool) => {
                        chosen.push(tool.name);
                        continue;
                    }
                    None => return Err(UnknownTool(name.chars().take(64).collect())),
                },
            };
            chosen.extend(tools::all().filter(|tool| is_chosen(tool)).map(|tool| tool.name));
        }

        // In safe mode `bash` runs commands that the kernel keeps from writing.
        let is_offered =
            |tool: &&KnownTool| chosen.contains(&tool.name) && (!safe || tool.has_safe_calls());
        Ok(Self(tools::all().filter(is_offered).map(|tool| tool.name).collect()))
    }

    /// Returns true if the tool is offered.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// Facts that change schemas and annotations.
#[derive(Debug, Clone, Copy)]
pub struct ListFacts {
    /// Whether nothing can be written.
    pub safe: bool,
    /// Whether commands have a network.
    pub network: bool,
    /// Whether a call may choose its directory.
    pub any_workspace: bool,
    /// Whether results have structured content.
    pub structured: bool,
}

/// Returns the offered tools.
#[must_use]
pub fn tools(selection: &Selection, facts: ListFacts) -> Vec<Tool> {
    tools::all()
        .filter(|tool| selection.has(tool.name))
        .map(|tool| described(tool, selection, facts))
        .collect()
}

fn described(tool: &KnownTool, selection: &Selection, facts: ListFacts) -> Tool {
    let mut schema = object(quackd_schema::tool_input(tool, true));
    // The revision fixes the dialect.
    schema.remove("$schema");

    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        if !selection.has(TERM_READ.name) {
            properties.remove(TTY);
        }
        if facts.any_workspace {
            let about = "Directory to work in, as an absolute path. Default: the one in which this server was started.";
            let about = json!({"type": "string", "description": about});
            properties.insert(WORKSPACE.to_owned(), about);
        }
    }

    let described = Tool::new(tool.name, tool.about, schema)
        .with_annotations(annotations(tool, facts))
        .with_meta(loaded());
    if facts.structured { described.with_raw_output_schema(Arc::clone(&OUTPUT)) } else { described }
}

/// Claude Code offers the model a search for tools instead of the tools, unless their list asks for this.
fn loaded() -> MetaObject {
    MetaObject(Map::from_iter([("anthropic/alwaysLoad".to_owned(), true.into())]))
}

fn annotations(tool: &KnownTool, facts: ListFacts) -> ToolAnnotations {
    // A killed job does not come back, although no file changes.
    let is_kill = tool.reads_only && tool.is_destructive;
    let reads_only = (tool.reads_only || facts.safe) && !is_kill;

    let is_open = match tool.action {
        Action::Fetch => true,
        Action::Execute => facts.network,
        _ => false,
    };

    let annotations = ToolAnnotations::new().read_only(reads_only).open_world(is_open);
    if reads_only {
        return annotations;
    }
    annotations.destructive(tool.is_destructive).idempotent(tool.is_idempotent)
}

/// Schema of the structured content: that of `quack.tool`'s reply without the fields that are not passed on.
static OUTPUT: LazyLock<Arc<JsonObject>> = LazyLock::new(|| {
    let whole = schema_for!(ToolResult).to_value();
    let known = whole.get("properties").cloned().map(object).unwrap_or_default();

    // A reader of results needs no defaults.
    let is_useful = |key: &str| !matches!(key, "default" | "format");
    let pick = |name: &&str| {
        let mut property = object(known.get(*name)?.clone());
        property.retain(|key, _| is_useful(key));
        Some(((*name).to_owned(), Value::Object(property)))
    };

    let properties: Map<String, Value> = FIELDS.iter().filter_map(pick).collect();
    Arc::new(object(json!({"type": "object", "properties": properties, "required": ["text"]})))
});

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
