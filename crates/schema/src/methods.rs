//! The methods as their schemas show them: one for each name in the table of `quackd_protocol`.

use quackd_protocol::client::{METHODS, MethodRow};
use schemars::SchemaGenerator;
use serde_json::{Value, json};

/// One method. Its rows have the same parameters, and differ in the data of their replies.
pub(super) struct MethodSchema {
    /// The first row, with the description.
    pub(super) row: &'static MethodRow,
    rows: &'static [MethodRow],
}

/// Returns every method, in the order of the documentation.
pub(super) fn methods() -> impl Iterator<Item = MethodSchema> {
    let names = METHODS.chunk_by(|a, b| a.name == b.name);
    names.filter_map(|rows| Some(MethodSchema { row: rows.first()?, rows }))
}

impl MethodSchema {
    /// Returns the schema of a successful reply's data. `false`: the data is always absent.
    pub(super) fn data(&self, generator: &mut SchemaGenerator) -> Value {
        let mut all: Vec<Value> = Vec::new();
        for row in self.rows {
            let one = (row.reply)(generator).to_value();
            if !all.contains(&one) {
                all.push(one);
            }
        }

        match all.as_slice() {
            [one] => one.clone(),
            several => json!({ "anyOf": several }),
        }
    }
}
