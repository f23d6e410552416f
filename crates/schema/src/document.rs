//! Builds one document from the tables, with all definitions in its `$defs`, and parts of it.

use super::events::{EventAudience, EventSchema, events};
use super::methods::{MethodSchema, methods};
use super::pi;
use super::shape::{never_null, object};
use quackd_protocol::client::{CLIENT_PROTOCOL, ErrorCode, MethodRow};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
const DEFS: &str = "#/$defs/";

/// Returns a generator for types that the daemon writes.
pub(super) fn generator_of_data() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

/// Returns a generator for types that the daemon reads.
fn generator_of_params() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_deserialize().into_generator()
}

/// Returns the whole client wire: a schema of any line, with all named definitions in `$defs`. There `Methods` has
/// `params` and `data` of each method, and `Events` has the line of each event.
#[must_use]
pub fn document() -> Value {
    json!({
        "$schema": DRAFT,
        "title": format!("quackd, client wire, protocol {CLIENT_PROTOCOL}"),
        "description": "One line, either way, between a client and the daemon.",
        "anyOf": [
            {"$ref": format!("{DEFS}Request")},
            {"$ref": format!("{DEFS}Reply")},
            {"$ref": format!("{DEFS}Event")},
        ],
        "$defs": defs(),
    })
}

/// Returns one definition as a separate document.
pub(super) fn part(name: &str) -> Option<Value> {
    let defs = defs();
    let schema = defs.get(name)?.clone();
    Some(complete(name, schema, &defs))
}

/// Returns the complete schema of one method, event or type. A method's schema is an object with `params` and `data`,
/// an event's has `event`. A name may be both. `None` if there is no such name.
#[must_use]
pub fn named(name: &str) -> Option<Value> {
    let defs = defs();
    let under = |list: &str| defs.get(list)?.get("properties")?.get(name).cloned();
    let (method, event) = (under("Methods"), under("Events"));
    if method.is_none() && event.is_none() {
        let schema = defs.get(name)?.clone();
        return Some(complete(name, schema, &defs));
    }

    let mut schema = object(method.unwrap_or_else(|| json!({"type": "object", "properties": {}})));
    if let Some(event) = event
        && let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
    {
        properties.insert("event".to_owned(), event);
    }
    Some(complete(name, schema.into(), &defs))
}

/// Returns the names of a method's parameters in alphabetical order.
#[must_use]
pub fn parameters(method: &MethodRow) -> Vec<String> {
    let mut generator = generator_of_params();
    let schema = (method.params)(&mut generator).to_value();
    let definition = schema.get("$ref").and_then(Value::as_str);
    let definition = definition.and_then(|name| name.strip_prefix(DEFS));
    let schema = definition.and_then(|name| generator.definitions().get(name)).unwrap_or(&schema);
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).cloned().collect()
}

/// Returns a schema with the definitions that it needs, and no others.
fn complete(title: &str, schema: Value, defs: &Map<String, Value>) -> Value {
    let mut names = BTreeSet::new();
    reach(&schema, defs, &mut names);
    let needed: Map<String, Value> = defs
        .iter()
        .filter(|(name, _)| names.contains(*name))
        .map(|(n, s)| (n.clone(), s.clone()))
        .collect();

    let mut whole = object(schema);
    whole.insert("$schema".to_owned(), DRAFT.into());
    whole.insert("title".to_owned(), title.into());
    if !needed.is_empty() {
        whole.insert("$defs".to_owned(), needed.into());
    }
    whole.into()
}

fn reach(schema: &Value, defs: &Map<String, Value>, names: &mut BTreeSet<String>) {
    match schema {
        Value::Array(all) => all.iter().for_each(|item| reach(item, defs, names)),
        Value::Object(all) => {
            let name = all
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|reference| reference.strip_prefix(DEFS));
            if let Some(name) = name
                && names.insert(name.to_owned())
                && let Some(next) = defs.get(name)
            {
                reach(next, defs, names);
            }
            all.values().for_each(|value| reach(value, defs, names));
        }
        _ => {}
    }
}

/// Returns all named definitions.
fn defs() -> Map<String, Value> {
    let (mut reading, mut writing) = (generator_of_params(), generator_of_data());
    let mut requests = Vec::new();
    let mut entries = Map::new();
    for method in methods() {
        let params = params(method.row, &mut reading);
        requests.push(request(method.row, &params));
        entries.insert(method.row.name.to_owned(), entry(&method, params, &mut writing));
    }

    let events = events(&mut writing);

    let mut defs: Map<String, Value> = writing.take_definitions(true);
    defs.values_mut().for_each(never_null);
    // A type that is both read and written has the same schema in both directions. A test checks that.
    for (name, schema) in reading.take_definitions(true) {
        defs.entry(name).or_insert(schema);
    }

    defs.extend(pi::shared().map(|(name, schema)| (name.to_owned(), schema)));
    defs.insert(
        "Request".to_owned(),
        json!({"description": "A line from a client.", "anyOf": requests}),
    );
    defs.insert(
        "Methods".to_owned(),
        listed("Every method with its parameters and data.", entries),
    );

    defs.extend(replies());
    add_events(&mut defs, events);
    defs.values_mut().for_each(tidy);
    defs
}

fn params(method: &MethodRow, generator: &mut SchemaGenerator) -> Value {
    let schema = (method.params)(generator).to_value();
    if method.required.is_empty() {
        return schema;
    }
    json!({"allOf": [schema, {"type": "object", "required": method.required}]})
}

fn entry(method: &MethodSchema, params: Value, generator: &mut SchemaGenerator) -> Value {
    let data = method.data(generator);
    let required = if data.is_boolean() { json!(["params"]) } else { json!(["params", "data"]) };
    json!({
        "description": method.row.about,
        "type": "object",
        "properties": {"params": params, "data": data},
        "required": required,
    })
}

fn request(method: &MethodRow, params: &Value) -> Value {
    let required =
        if method.required.is_empty() { json!(["method"]) } else { json!(["method", "params"]) };
    json!({
        "type": "object",
        "properties": {
            "id": {"description": "Echoed in the reply; a text is best."},
            "method": {"const": method.name},
            "params": params,
        },
        "required": required,
    })
}

fn replies() -> [(String, Value); 3] {
    let id = || json!({"description": "The request's; absent if that had none."});
    let data = || json!({"description": "As `Methods` has it for the request's method."});
    [
        (
            "Reply".to_owned(),
            json!({
                "description": "The answer to a request: exactly one, with its `id`.",
                "anyOf": [{"$ref": format!("{DEFS}Success")}, {"$ref": format!("{DEFS}Failure")}],
            }),
        ),
        (
            "Success".to_owned(),
            json!({
                "description": "It was done. A tool that fails is a request that succeeded.",
                "type": "object",
                "properties": {"id": id(), "ok": {"const": true}, "data": data(), "error": false, "code": false},
                "required": ["ok"],
            }),
        ),
        (
            "Failure".to_owned(),
            json!({
                "description": "It was not done.",
                "type": "object",
                "properties": {
                    "id": id(),
                    "ok": {"const": false},
                    "error": {"type": "string", "description": "Why, a sentence for people."},
                    "data": data(),
                    "code": {"type": "string", "description": ErrorCode::ABOUT},
                },
                "required": ["ok", "error"],
            }),
        ),
    ]
}

fn add_events(defs: &mut Map<String, Value>, events: Vec<EventSchema>) {
    let names: Vec<&str> = events.iter().map(|event| event.name).collect();
    let other = json!({
        "description": "What else Pi prints: the event has the name of its `type`, and newer versions add some.",
        "type": "object",
        "properties": {
            "event": {"type": "string", "not": {"enum": names}},
            "sessionId": {"type": "string"},
            "data": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"],
                "additionalProperties": true},
            "seq": {"type": "integer", "minimum": 1},
            "turn": turn(),
        },
        "required": ["event", "sessionId", "data", "seq"],
    });

    let mut known = Vec::new();
    let mut lines = Map::new();
    for event in events {
        let line = format!("{}Event", camel(event.name));
        known.push(json!({"$ref": format!("{DEFS}{line}")}));
        lines.insert(event.name.to_owned(), json!({"$ref": format!("{DEFS}{line}")}));
        defs.insert(line, event_line(event));
    }

    defs.insert("Events".to_owned(), listed("Every event: its line.", lines));
    defs.insert(
        "KnownEvent".to_owned(),
        json!({
            "description": "An event that has a shape of its own.", "anyOf": known,
        }),
    );
    defs.insert("OtherEvent".to_owned(), other);
    defs.insert(
        "Event".to_owned(),
        json!({
            "description": "What happened, without being asked.",
            "anyOf": [{"$ref": format!("{DEFS}KnownEvent")}, {"$ref": format!("{DEFS}OtherEvent")}],
        }),
    );
}

/// The property of an event that names its turn.
fn turn() -> Value {
    json!({"type": "integer", "minimum": 1,
        "description": "The turn of the session's agent that it belongs to, as in the reply of say."})
}

fn event_line(event: EventSchema) -> Value {
    let mut schema = json!({
        "description": event.about,
        "type": "object",
        "properties": {
            "event": {"const": event.name},
            "sessionId": {"type": "string", "description": "The session that it is about."},
            "data": event.data,
        },
        "required": ["event", "sessionId", "data"],
    });
    // An event for a single client has no number.
    let seq = match event.audience {
        EventAudience::Followers => {
            json!({"type": "integer", "minimum": 1, "description": "Counts the session's events."})
        }
        EventAudience::One => Value::Bool(false),
    };

    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("seq".to_owned(), seq);
        if event.audience == EventAudience::Followers {
            properties.insert("turn".to_owned(), turn());
        }
    }

    if event.audience == EventAudience::Followers
        && let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut)
    {
        required.push("seq".into());
    }
    schema
}

fn listed(about: &str, properties: Map<String, Value>) -> Value {
    let names: Vec<&String> = properties.keys().collect();
    json!({"description": about, "type": "object", "required": names, "properties": properties})
}

/// Converts `agent_end` to `AgentEnd`.
fn camel(name: &str) -> String {
    let words = name.split(['_', '.']);
    words
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_ascii_uppercase().to_string() + letters.as_str()
            })
        })
        .collect()
}

/// Removes keywords without use for a client: Rust's names of numbers, defaults that equal absence, and documentation
/// links.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(tidy),
        Value::Object(all) => {
            for keyword in ["format", "default", "title"] {
                all.remove(keyword);
            }
            if let Some(Value::String(text)) = all.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
            }
            for (keyword, value) in all {
                match value {
                    // These keys are property names and not keywords.
                    Value::Object(named) if keyword == "properties" => {
                        named.values_mut().for_each(tidy);
                    }
                    value => tidy(value),
                }
            }
        }
        _ => {}
    }
}
