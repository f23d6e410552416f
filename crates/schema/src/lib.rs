//! The client wire and the tools as JSON Schema (draft 2020-12), and the wire as TypeScript declarations.
//!
//! Generated from the types and the table of methods of `crates/protocol`, so that they cannot differ. The shapes
//! of forwarded Pi events are in `pi.rs`. `quack schema` prints the result. Tests compare it with the daemon's replies
//! and with docs/protocol.md.
//!
//! The schema of a request describes what a client should send. The daemon accepts more where docs/protocol.md
//! describes it. The schemas of replies and events describe the current version: objects may have more keys, and a
//! client ignores unknown keys.

mod document;
mod events;
mod methods;
mod pi;
mod shape;
mod tools;
mod typescript;

pub use document::{document, named, parameters};
pub use tools::{brief_tool_input, tool, tool_input, tools};

use serde_json::Value;

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

/// Returns the client wire as TypeScript declarations.
#[must_use]
pub fn typescript() -> String {
    typescript::declarations(&document())
}

/// Returns the names of all methods, then of all events, each in the order of the documentation.
#[must_use]
pub fn names() -> (Vec<&'static str>, Vec<&'static str>) {
    let events = events::events(&mut document::generator_of_data());
    let methods = methods::methods().map(|method| method.row.name).collect();
    (methods, events.into_iter().map(|event| event.name).collect())
}
