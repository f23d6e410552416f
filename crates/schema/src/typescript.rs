//! Generates TypeScript declarations from a schema document: an interface or a type for each definition, with its
//! description as a comment. Supports the keywords that the document uses. Anything else becomes `unknown`.

use serde_json::{Map, Value};
use std::fmt::Write as _;

const HEAD: &str = "\
// The client wire of quackd, made by `quack schema --typescript`. Do not edit.\n\
// Objects may have more keys than are declared here: ignore those that you do not know.\n";

/// Returns the declarations of all `$defs` of the document, as the text of a file.
pub(super) fn declarations(document: &Value) -> String {
    let mut text = HEAD.to_owned();
    let defs = document.get("$defs").and_then(Value::as_object);
    for (name, schema) in defs.into_iter().flatten() {
        text.push('\n');
        comment(&mut text, schema, 0);
        let has_alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf")).is_some();
        let is_object = schema.get("properties").is_some() && !has_alternatives;
        let written = if is_object {
            writeln!(text, "export interface {name} {}", ts(schema, 0))
        } else {
            writeln!(text, "export type {name} = {};", ts(schema, 0))
        };
        // Writing to a String cannot fail.
        written.ok();
    }
    text
}

/// Returns the type for a schema, indented for `depth` braces.
fn ts(schema: &Value, depth: usize) -> String {
    let Some(schema) = schema.as_object() else {
        return if schema == &Value::Bool(false) { "undefined" } else { "unknown" }.to_owned();
    };
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return name.rsplit('/').next().unwrap_or("unknown").to_owned();
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }

    for (keyword, between) in [("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")] {
        if let Some(all) = schema.get(keyword).and_then(Value::as_array) {
            let all = joined(all, between, depth);
            // An enum that is flattened into an object.
            return if schema.contains_key("properties") {
                format!("{} & ({all})", braces(schema, depth))
            } else {
                all
            };
        }
    }

    match schema.get("type") {
        Some(Value::Array(types)) => {
            let all: Vec<String> = types
                .iter()
                .map(|kind| of_type(kind.as_str().unwrap_or_default(), schema, depth))
                .collect();
            all.join(" | ")
        }
        Some(Value::String(kind)) => of_type(kind, schema, depth),
        _ => "unknown".to_owned(),
    }
}

fn joined(all: &[Value], between: &str, depth: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in all.iter().map(|schema| ts(schema, depth)) {
        let part =
            if between == " & " && part.contains(" | ") { format!("({part})") } else { part };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(between)
}

fn of_type(name: &str, schema: &Map<String, Value>, depth: usize) -> String {
    match name {
        "string" | "boolean" | "null" => name.to_owned(),
        "integer" | "number" => "number".to_owned(),
        "array" => {
            let items =
                schema.get("items").map_or_else(|| "unknown".to_owned(), |item| ts(item, depth));
            if items.contains(' ') { format!("Array<{items}>") } else { format!("{items}[]") }
        }
        "object" => braces(schema, depth),
        _ => "unknown".to_owned(),
    }
}

fn braces(schema: &Map<String, Value>, depth: usize) -> String {
    let rest = schema.get("additionalProperties");
    let properties = schema.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();

    let Some(properties) = properties.filter(|all| !all.is_empty()) else {
        return bare(rest, &required, depth);
    };

    let mut text = "{\n".to_owned();
    let indent = "  ".repeat(depth + 1);
    for (name, property) in properties {
        comment(&mut text, property, depth + 1);
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        // Writing to a String cannot fail.
        writeln!(text, "{indent}{}{mark}: {};", key(name), ts(property, depth + 1)).ok();
    }

    if rest == Some(&Value::Bool(true)) {
        writeln!(text, "{indent}[key: string]: unknown;").ok();
    }

    text.push_str(&"  ".repeat(depth));
    text.push('}');
    text
}

/// Returns the type of an object without described properties: any keys, plus the required ones.
fn bare(rest: Option<&Value>, required: &[&str], depth: usize) -> String {
    if !required.is_empty() {
        let fields: Vec<String> =
            required.iter().map(|name| format!("{}: {{}}", key(name))).collect();
        return format!("{{ {} }}", fields.join("; "));
    }
    let values = rest.map_or_else(|| "unknown".to_owned(), |value| ts(value, depth));
    format!("Record<string, {values}>")
}

/// Returns a name as a key: quoted unless it is an identifier.
fn key(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_identifier = !name.is_empty()
        && name.chars().all(is_word)
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_identifier { name.to_owned() } else { Value::from(name).to_string() }
}

fn comment(text: &mut String, schema: &Value, depth: usize) {
    if let Some(about) = schema.get("description").and_then(Value::as_str) {
        let about = about.replace("*/", "* /");
        // Writing to a String cannot fail.
        writeln!(text, "{}/** {about} */", "  ".repeat(depth)).ok();
    }
}
