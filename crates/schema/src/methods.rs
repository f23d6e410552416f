//! The part of a method that its schema shows. The supervisor has the table of methods, because a row also names the
//! handler.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// Makes the schema of a type.
pub type Shape = fn(&mut SchemaGenerator) -> Value;

/// Returns the schema of a type, as a reference to its definition if it has a name.
pub fn shape_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// One method.
#[derive(Debug, Clone, Copy)]
pub struct MethodSchema {
    /// Name on the wire.
    pub name: &'static str,
    /// Description, one or two sentences.
    pub about: &'static str,
    /// Schema of the parameters, or `None` without parameters.
    pub params: Option<Shape>,
    /// Required parameters.
    pub required: &'static [&'static str],
    /// Schema of a successful reply's data, or `None` without data.
    pub data: Option<Shape>,
}
