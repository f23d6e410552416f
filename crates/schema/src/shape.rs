//! Small changes of schemas.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Returns the object in a value, or an empty one if it is not an object.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// Replaces null by absence: an optional field that the daemon writes is absent instead of null.
pub(super) fn never_null(schema: &mut Value) {
    let required: BTreeSet<String> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();

    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };

    for (_, property) in properties.iter_mut().filter(|(name, _)| !required.contains(*name)) {
        let Some(property) = property.as_object_mut() else { continue };
        if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|kind| kind != "null");
            // A single type is no list.
            if let [only] = types.as_slice() {
                let only = only.clone();
                property.insert("type".to_owned(), only);
            }
        } else if let Some(all) = property.get_mut("anyOf").and_then(Value::as_array_mut) {
            all.retain(|it| it.get("type").is_none_or(|it| it != "null"));
            if let [Value::Object(only)] = all.as_mut_slice() {
                let only = std::mem::take(only);
                property.remove("anyOf");
                property.extend(only);
            }
        }
    }
}
