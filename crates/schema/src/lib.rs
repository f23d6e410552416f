//! The client wire and the tools as JSON Schema (draft 2020-12), and the wire as TypeScript declarations.
//!
//! Generated from the types of `crates/protocol` and from the table of methods, so that they cannot differ. The shapes
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

pub use methods::{MethodSchema, Shape, shape_of};
pub use tools::{brief_tool_input, tool, tool_input, tools};

use serde_json::Value;

/// The client wire: these methods in the order of the documentation, and every event.
#[derive(Debug, Clone)]
pub struct Wire {
    methods: Vec<MethodSchema>,
}

impl Wire {
    /// Returns the wire with these methods.
    #[must_use]
    pub fn new(methods: Vec<MethodSchema>) -> Self {
        Self { methods }
    }

    /// Returns the whole wire: a schema of any line, with all named definitions in `$defs`. There `Methods` has
    /// `params` and `data` of each method, and `Events` has the line of each event.
    #[must_use]
    pub fn document(&self) -> Value {
        document::whole(&self.methods)
    }

    /// Returns the schema of every method: an object with `params` and `data` for each.
    #[must_use]
    pub fn methods(&self) -> Value {
        document::part("Methods", &self.methods).unwrap_or_default()
    }

    /// Returns the schema of every event: an object with its line for each.
    #[must_use]
    pub fn events(&self) -> Value {
        document::part("Events", &self.methods).unwrap_or_default()
    }

    /// Returns the complete schema of one method, event or type. A method's schema is an object with `params` and
    /// `data`, an event's has `event`. A name may be both. `None` if there is no such name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Value> {
        document::named(name, &self.methods)
    }

    /// Returns the wire as TypeScript declarations.
    #[must_use]
    pub fn typescript(&self) -> String {
        typescript::declarations(&self.document())
    }

    /// Returns the names of all methods, then of all events, each in the order of the documentation.
    #[must_use]
    pub fn names(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let events = events::events(&mut document::generator_of_data());
        let methods = self.methods.iter().map(|method| method.name).collect();
        (methods, events.into_iter().map(|event| event.name).collect())
    }
}
