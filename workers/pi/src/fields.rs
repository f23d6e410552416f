//! One JSON object as an ordered list of members with unparsed values. Used by [`crate::dialect`], which reads two
//! members of an object that may have several megabytes.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Maximum number of members. Pi's objects have fewer than 30.
const MAX_MEMBERS: usize = 256;

/// Members of an object, in order.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &RawValue>()? {
                    if MAX_MEMBERS <= fields.len() {
                        return Err(serde::de::Error::custom("too many members"));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

impl<'a> Fields<'a> {
    /// Parses an object.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the JSON text of a member.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.get())
    }

    /// Returns a member parsed as a `T`.
    pub(crate) fn get_as<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Writes an object on one line. `change` returns the new value of each member, or `None` to omit it.
    pub(crate) fn write_with(
        &self,
        change: impl FnMut(&str, &'a str) -> Option<Cow<'a, str>>,
    ) -> Writer {
        self.write_after(Writer::new(), change)
    }

    /// Like [`Fields::write_with`], but appends to `writer`.
    pub(crate) fn write_after(
        &self,
        mut writer: Writer,
        mut change: impl FnMut(&str, &'a str) -> Option<Cow<'a, str>>,
    ) -> Writer {
        for (name, value) in &self.0 {
            if let Some(value) = change(name, value.get()) {
                writer.add(name, &value);
            }
        }
        writer
    }
}

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Writer(String);

impl Writer {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member whose value is JSON.
    pub(crate) fn add(&mut self, name: &str, json: &str) {
        if self.0.len() != 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
    }

    /// Returns the text of the object.
    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Returns the text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    // A string always has a JSON form.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_their_bytes() {
        let text = r#"{ "b" : [1, 2.50] ,"a\n":{"x": "y"},"c":null}"#;
        let fields = Fields::read(text).unwrap();
        assert_eq!(fields.get("b"), Some("[1, 2.50]"));
        assert_eq!(fields.get("d"), None);
        let same = fields.write_with(|name, value| (name != "c").then_some(Cow::Borrowed(value)));
        assert_eq!(same.end(), r#"{"b":[1, 2.50],"a\n":{"x": "y"}}"#);
    }

    #[test]
    fn what_is_no_object_is_nothing() {
        for text in ["", "[]", "7", "{", "{\"a\":}", "{\"a\":1} x"] {
            assert!(Fields::read(text).is_none(), "{text}");
        }
        let many: Vec<String> = (0..1000).map(|n| format!("\"{n}\":0")).collect();
        assert!(Fields::read(&format!("{{{}}}", many.join(","))).is_none());
    }
}
