//! Makes the schema of a tool's arguments one that every provider of models takes: an object with properties at the root,
//! and no choice there. One tool with another schema would make each request of the session invalid.

use serde_json::{Map, Value, json};

/// Longest choice that is repeated in a description, in bytes.
const MAX_CHOICE_BYTES: usize = 2000;

/// Most references that are followed to find the root.
const MAX_REFERENCES: usize = 8;

/// Keywords that providers refuse at the root.
const REFUSED: [&str; 9] =
    ["anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"];

/// Returns a schema with an object at the root, and text for the description of the tool if it says less than the given
/// one. The server checks the arguments by its own schema.
pub(super) fn with_object_root(given: Value) -> (Value, Option<String>) {
    let Value::Object(mut root) = resolved(given) else {
        return (json!({"type": "object", "properties": {}}), None);
    };
    let mut properties = match root.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };

    let mut required = names(root.get("required"));
    let mut choice = Map::new();

    for keyword in REFUSED {
        let Some(choice_value) = root.remove(keyword) else { continue };
        let parts = choice_value.as_array().cloned().unwrap_or_default();
        let parts: Vec<Value> = parts.into_iter().map(|part| part_of(&root, part)).collect();
        for part in &parts {
            for (name, schema) in
                part.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                properties.entry(name.clone()).or_insert_with(|| schema.clone());
            }
        }

        // Each part holds, or at least one.
        let all = parts.iter().map(|part| names(part.get("required")));
        let common = match keyword {
            "allOf" => all.flatten().collect(),
            "anyOf" | "oneOf" => all
                .reduce(|mut common, next| {
                    common.retain(|name| next.contains(name));
                    common
                })
                .unwrap_or_default(),
            _ => Vec::new(),
        };

        required.extend(common);
        choice.insert(keyword.to_owned(), choice_value);
    }

    required.retain(|name| properties.contains_key(name));
    required.sort_unstable();
    required.dedup();
    root.insert("type".to_owned(), json!("object"));
    root.insert("properties".to_owned(), Value::Object(properties));

    if required.is_empty() {
        root.remove("required");
    } else {
        root.insert("required".to_owned(), json!(required));
    }

    let choice = (!choice.is_empty()).then(|| Value::Object(choice).to_string());
    let choice = choice.filter(|choice| choice.len() <= MAX_CHOICE_BYTES);
    (Value::Object(root), choice.map(|choice| format!("The arguments must also match {choice}")))
}

/// Follows references at the root to definitions in the same schema.
fn resolved(mut schema: Value) -> Value {
    for _ in 0..MAX_REFERENCES {
        let Some(root) = schema.as_object() else { break };
        if !root.contains_key("$ref") {
            break;
        }
        schema = part_of(root, Value::Object(root.clone()));
    }
    if let Some(root) = schema.as_object_mut() {
        root.remove("$ref");
    }
    schema
}

/// Replaces a part that is a reference by its definition. Definitions of the root stay with it.
fn part_of(root: &Map<String, Value>, part: Value) -> Value {
    let Some(reference) = part.get("$ref").and_then(Value::as_str) else { return part };
    let all = Value::Object(root.clone());
    let Some(mut definition) = reference.strip_prefix('#').and_then(|at| all.pointer(at)).cloned()
    else {
        return part;
    };

    for definitions in ["$defs", "definitions"] {
        if let (Some(kept), Some(definition)) = (part.get(definitions), definition.as_object_mut())
        {
            definition.entry(definitions).or_insert_with(|| kept.clone());
        }
    }
    definition
}

fn names(required: Option<&Value>) -> Vec<String> {
    let names = required.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_root_becomes_an_object() {
        let empty = json!({"type": "object", "properties": {}});
        for (given, expected) in [
            (json!({}), empty.clone()),
            (json!(true), empty.clone()),
            (json!({"type": ["object", "null"]}), empty.clone()),
            (json!({"type": "string"}), empty.clone()),
            (json!({"type": "object", "properties": 7, "required": ["x", 1]}), empty),
            (
                json!({"properties": {"a": {}}, "required": ["a"], "additionalProperties": false}),
                json!({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}),
            ),
            (
                json!({"$ref": "#/$defs/in", "$defs": {"in": {"type": "object", "properties": {"a": {"$ref": "#/$defs/s"}}}, "s": {}}}),
                json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/s"}},
                    "$defs": {"in": {"type": "object", "properties": {"a": {"$ref": "#/$defs/s"}}}, "s": {}}}),
            ),
            (json!({"$ref": "#"}), json!({"type": "object", "properties": {}})),
            // Nothing is fetched.
            (
                json!({"$ref": "http://127.0.0.1/schema.json"}),
                json!({"type": "object", "properties": {}}),
            ),
        ] {
            let (schema, more) = with_object_root(given.clone());
            assert_eq!((schema, more), (expected, None), "{given}");
        }
    }

    #[test]
    fn a_choice_at_the_root_becomes_its_properties_and_a_sentence() {
        let (a, b) = (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "c": {}}, "required": ["a", "c"]}),
            json!({"$ref": "#/$defs/b"}),
        );
        let definition = json!({"b": {"properties": {"b": {}, "c": {}}, "required": ["c"]}});
        let given = json!({"anyOf": [a, b], "$defs": definition});
        let (schema, more) = with_object_root(given);
        assert_eq!(
            schema,
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}, "c": {}},
                "required": ["c"], "$defs": definition})
        );
        assert!(more.unwrap().starts_with("The arguments must also match {\"anyOf\":["));
        let all = json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]});
        assert_eq!(
            with_object_root(all).0,
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]})
        );
    }
}
