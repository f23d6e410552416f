//! The tools as JSON Schema (draft 2020-12), for models and for programs that call tools.

use super::{ALL, Kind, Parameter, Tool, find};
use serde_json::{Map, Value, json};

/// Returns every tool as `{"name", "description", "inputSchema", "annotations"}`, in the order of the documentation.
///
/// The schemas contain only the documented names. Calls may also use aliases, and write numbers or booleans as text,
/// where docs/tools.md describes it.
#[must_use]
pub fn tools() -> Value {
    ALL.iter().map(described).collect()
}

/// Returns the schema of one tool, or `None` if no tool has this name.
#[must_use]
pub fn tool(name: &str) -> Option<Value> {
    find(name).map(described)
}

fn described(tool: &Tool) -> Value {
    json!({
        "name": tool.name,
        "description": tool.about,
        "inputSchema": input(tool),
        "annotations": {"readOnlyHint": tool.reads_only},
    })
}

fn input(tool: &Tool) -> Value {
    let properties: Map<String, Value> =
        shown(tool).map(|parameter| (parameter.name.to_owned(), property(parameter))).collect();
    let required: Vec<&str> =
        shown(tool).filter(|parameter| parameter.is_required).map(|it| it.name).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": !tool.is_strict,
    })
}

fn shown(tool: &Tool) -> impl Iterator<Item = &'static Parameter> {
    tool.parameters.iter().filter(|parameter| !parameter.is_spelling)
}

fn property(parameter: &Parameter) -> Value {
    let mut schema = values(parameter.kind);
    schema.insert("description".to_owned(), parameter.about.into());
    // A test checks that the default is JSON.
    if let Some(default) =
        parameter.default.and_then(|text| serde_json::from_str::<Value>(text).ok())
    {
        schema.insert("default".to_owned(), default);
    }
    schema.into()
}

/// Returns the schema of a value.
fn values(kind: Kind) -> Map<String, Value> {
    let schema = match kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Texts => json!({"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
        ]}),
        Kind::List => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::FlagOrAuto => json!({"enum": [true, false, "auto"]}),
        Kind::Whole(least, u64::MAX) => json!({"type": "integer", "minimum": least}),
        Kind::Whole(least, most) => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        Kind::TextOrWhole => json!({"type": ["string", "integer"]}),
        Kind::Choice(words) | Kind::ChoiceOrFlag(words, ..) => {
            json!({"type": "string", "enum": words})
        }
        Kind::Choices(words) => json!({"anyOf": [
            {"type": "string", "enum": words},
            {"type": "array", "items": {"type": "string", "enum": words}},
        ]}),
        Kind::Lines => json!({
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "minItems": 2,
            "maxItems": 2,
        }),
        Kind::Counts(names) => {
            let number = || json!({"type": "integer", "minimum": 0});
            let properties: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), number())).collect();
            json!({"type": "object", "properties": properties, "additionalProperties": false})
        }
    };
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}
