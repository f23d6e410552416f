//! The tools as JSON Schema (draft 2020-12), for models and for programs that call tools.

use quackd_protocol::tools::{Kind, Parameter, Tool, all, find};
use serde_json::{Map, Value, json};

/// Returns every tool as `{"name", "description", "inputSchema", "annotations"}`, in the order of the documentation.
///
/// The schemas contain only the documented names. Calls may also use aliases, and write numbers or booleans as text,
/// where docs/tools.md describes it.
#[must_use]
pub fn tools() -> Value {
    all().map(described).collect()
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
        "inputSchema": tool_input(tool, false),
        "annotations": {"readOnlyHint": tool.reads_only},
    })
}

/// Returns the schema of a tool's arguments. `is_short` leaves out what an agent hardly needs: calls may still have it,
/// so the schema permits additional names.
#[must_use]
pub fn tool_input(tool: &Tool, is_short: bool) -> Value {
    let parameters = tool.parameters.iter().filter(|parameter| !parameter.is_spelling);
    let parameters = parameters.filter(|parameter| !(is_short && parameter.is_rare));
    let properties: Map<String, Value> = parameters
        .clone()
        .map(|parameter| (parameter.name.to_owned(), property(parameter)))
        .collect();
    let required: Vec<&str> =
        parameters.filter(|parameter| parameter.is_required).map(|it| it.name).collect();

    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
    });

    if !is_short {
        let permits = (!tool.is_strict).into();
        schema
            .as_object_mut()
            .map(|schema| schema.insert("additionalProperties".to_owned(), permits));
    }
    schema
}

/// Returns the schema of some of a tool's arguments, without descriptions and limits, for models with a small window.
#[must_use]
pub fn brief_tool_input(tool: &Tool, names: &[&str]) -> Value {
    let parameters = tool.parameters.iter().filter(|parameter| names.contains(&parameter.name));
    let kind = |parameter: &Parameter| {
        let mut schema = values(parameter.kind);
        schema.retain(|key, _| matches!(key.as_str(), "type" | "enum" | "anyOf" | "items"));
        (parameter.name.to_owned(), schema.into())
    };

    let properties: Map<String, Value> = parameters.clone().map(kind).collect();
    let required: Vec<&str> =
        parameters.filter(|parameter| parameter.is_required).map(|it| it.name).collect();
    json!({"type": "object", "properties": properties, "required": required})
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

/// Returns the schema of the values that a parameter accepts.
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
        Kind::Edits(names) => {
            let properties: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
            json!({
                "type": "array",
                "items": {"type": "object", "properties": properties, "required": names},
                "minItems": 1,
            })
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::tools;
    use std::collections::BTreeSet;

    /// Checks the keywords of draft 2020-12 that the schemas use, and their values. Fails on any other keyword.
    fn check_schema(schema: &Value, at: &str) {
        let object = schema.as_object().unwrap_or_else(|| panic!("{at} is no schema: {schema}"));
        for (keyword, value) in object {
            let is_right = match keyword.as_str() {
                "$schema" => value == "https://json-schema.org/draft/2020-12/schema",
                "type" => {
                    let types = ["object", "array", "string", "integer", "boolean"];
                    let is_type =
                        |value: &Value| value.as_str().is_some_and(|name| types.contains(&name));
                    is_type(value)
                        || value
                            .as_array()
                            .is_some_and(|all| !all.is_empty() && all.iter().all(is_type))
                }
                "description" => value.as_str().is_some_and(|text| !text.is_empty()),
                "default" => !value.is_null(),
                "enum" => value.as_array().is_some_and(|all| {
                    let distinct: BTreeSet<String> = all.iter().map(Value::to_string).collect();
                    !all.is_empty() && distinct.len() == all.len()
                }),
                "minimum" | "maximum" | "minItems" | "maxItems" => value.is_u64(),
                "required" => value.as_array().is_some_and(|all| {
                    all.iter().all(|name| {
                        name.as_str().is_some_and(|name| !object["properties"][name].is_null())
                    })
                }),
                "additionalProperties" => value.is_boolean(),
                "properties" => {
                    let properties = value.as_object().unwrap();
                    properties
                        .iter()
                        .for_each(|(name, inner)| check_schema(inner, &format!("{at}.{name}")));
                    true
                }
                "items" => {
                    check_schema(value, &format!("{at}[]"));
                    true
                }
                "anyOf" => {
                    value.as_array().unwrap().iter().for_each(|inner| check_schema(inner, at));
                    true
                }
                _ => false,
            };
            assert!(is_right, "{at}: {keyword} is {value}");
        }
    }

    #[test]
    fn every_tool_has_a_schema_of_draft_2020_12() {
        let all = super::tools();
        let all = all.as_array().unwrap();
        assert_eq!(all.len(), tools::all().count());
        for (described, known) in all.iter().zip(tools::all()) {
            assert_eq!(described["name"], known.name);
            assert_eq!(described["annotations"]["readOnlyHint"], known.reads_only);
            let schema = &described["inputSchema"];
            assert_eq!(schema["type"], "object");
            assert_eq!(schema["additionalProperties"], !known.is_strict);
            check_schema(schema, known.name);
            assert_eq!(tool(known.name).as_ref(), Some(described));
            for parameter in known.parameters {
                let is_shown = !schema["properties"][parameter.name].is_null();
                assert_eq!(is_shown, !parameter.is_spelling, "{}: {}", known.name, parameter.name);
                // A test of the table checks that the text of a default is JSON.
                let default = parameter.default.filter(|_| is_shown);
                let default = default.map(|text| serde_json::from_str::<Value>(text).unwrap());
                assert_eq!(schema["properties"][parameter.name].get("default"), default.as_ref());
                for alias in parameter.aliases {
                    assert!(schema["properties"][alias].is_null(), "{alias}");
                }
            }
        }
        assert_eq!(tool("nothing"), None);
    }

    #[test]
    fn a_schema_reads_as_expected() {
        let schema = tool("job_output").unwrap();
        assert_eq!(
            schema,
            json!({
                "name": "job_output",
                "description": "Read the output of a background job. To follow it, call again with the cursor of the last \
                    answer and with wait_ms. Example: {\"job\":\"job-1\",\"cursor\":512,\"wait_ms\":10000}.",
                "inputSchema": {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "properties": {
                        "job": {"type": ["string", "integer"], "description": "The job: job-1, or 1."},
                        "cursor": {"type": "integer", "minimum": 0,
                            "description": "Start position in bytes of output: the cursor of the last answer."},
                        "wait_ms": {"type": "integer", "minimum": 0, "maximum": 600_000, "default": 0,
                            "description": "Longest wait for more output or for the exit of the job, in milliseconds."},
                    },
                    "required": ["job"],
                    "additionalProperties": true,
                },
                "annotations": {"readOnlyHint": true},
            })
        );
    }
}
