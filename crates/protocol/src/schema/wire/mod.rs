//! The client wire as JSON Schema (draft 2020-12) and as TypeScript declarations.
//!
//! Generated from the types of [`crate::client`], so that they cannot differ. The shapes of forwarded Pi events are in
//! `pi.rs`. `quack schema` prints the result. Tests compare it with the daemon's replies and with docs/protocol.md.
//!
//! The schema of a request describes what a client should send. The daemon accepts more where docs/protocol.md
//! describes it. The schemas of replies and events describe the current version: objects may have more keys, and a
//! client ignores unknown keys.

mod document;
mod events;
mod methods;
mod pi;
mod typescript;

use serde_json::{Map, Value};

/// Returns the whole wire: a schema of any line, with all named definitions in `$defs`. There `Methods` has `params`
/// and `data` of each method, and `Events` has the line of each event.
#[must_use]
pub fn document() -> Value {
    document::whole()
}

/// Returns the schema of every method: an object with `params` and `data` for each.
#[must_use]
pub fn methods() -> Value {
    document::part("Methods").unwrap_or_default()
}

/// Returns the schema of every event: an object with its line for each.
#[must_use]
pub fn events() -> Value {
    document::part("Events").unwrap_or_default()
}

/// Returns the complete schema of one method, event or type. A method's schema is an object with `params` and `data`,
/// an event's has `event`. A name may be both. `None` if there is no such name.
#[must_use]
pub fn named(name: &str) -> Option<Value> {
    document::named(name)
}

/// Returns the wire as TypeScript declarations.
#[must_use]
pub fn typescript() -> String {
    typescript::declarations(&document())
}

/// Returns the names of all methods, then of all events, each in the order of the documentation.
#[must_use]
pub fn names() -> (Vec<&'static str>, Vec<&'static str>) {
    let mut generator = document::generator_of_data();
    let events = events::events(&mut generator);
    let methods = methods::METHODS.iter().map(|method| method.name).collect();
    (methods, events.into_iter().map(|event| event.name).collect())
}

/// Returns the names of a method's parameters in alphabetical order, or `None` if there is no such method.
#[must_use]
pub fn parameters(method: &str) -> Option<Vec<String>> {
    document::parameters(method)
}

/// Returns the object in a value, or an empty one if it is not an object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
