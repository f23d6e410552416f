//! The client wire as JSON Schema (draft 2020-12) and as TypeScript declarations.
//!
//! Made from the types of [`crate::client`], so that the two cannot differ; what the daemon forwards from Pi
//! unread stands in `pi.rs`. Read by `quack schema`, and by the tests that hold what the daemon says and what
//! docs/protocol.md shows against it.
//!
//! What the schemas say of requests is what a client should send. The daemon takes more where
//! docs/protocol.md says so. Of replies and events they say what comes today: objects may have more keys, and
//! a client ignores those.

mod document;
mod events;
mod methods;
mod pi;
mod typescript;

use serde_json::{Map, Value};

/// The whole wire: a schema of any of its lines, with everything that has a name in `$defs`. There `Methods`
/// has `params` and `data` of each method, and `Events` the line of each event.
#[must_use]
pub fn document() -> Value {
    document::whole()
}

/// The schema of every method: an object with `params` and `data` for each.
#[must_use]
pub fn methods() -> Value {
    document::part("Methods").unwrap_or_default()
}

/// The schema of every event: an object with its line for each.
#[must_use]
pub fn events() -> Value {
    document::part("Events").unwrap_or_default()
}

/// The schema of one method, event or type by its name, complete in itself. Of a method it is an object with
/// `params` and `data`, of an event one with `event`; a name may be both. `None` if there is none.
#[must_use]
pub fn named(name: &str) -> Option<Value> {
    document::named(name)
}

/// The same wire as declarations for TypeScript.
#[must_use]
pub fn typescript() -> String {
    typescript::declarations(&document())
}

/// The names of all methods, then of all events, each in the order of the documentation.
#[must_use]
pub fn names() -> (Vec<&'static str>, Vec<&'static str>) {
    let mut generator = document::generator_of_data();
    let events = events::events(&mut generator);
    let methods = methods::METHODS.iter().map(|method| method.name).collect();
    (methods, events.into_iter().map(|event| event.name).collect())
}

/// The names of a method's parameters, in alphabetic order; `None` if there is no such method.
#[must_use]
pub fn parameters(method: &str) -> Option<Vec<String>> {
    document::parameters(method)
}

/// The object in a value, empty if it is none.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
