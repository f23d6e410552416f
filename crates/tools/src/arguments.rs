//! Parses the JSON arguments of a call, and looks up parameters in them.
//!
//! Voice models send shorthands and near misses. This leniency is part of the wire.

use crate::caller_dir::CallerDir;
use crate::js_compat::trim;
use quackd_protocol::surrogates::without_lone_surrogates;
use quackd_protocol::tools::{Kind, Tool, find, main_parameter};
use serde_json::{Map, Value};

/// The arguments of one call, and the directory from which their relative paths are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arguments {
    fields: Map<String, Value>,
    directory: CallerDir,
}

/// Reason for rejecting arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentsError {
    #[error("Invalid JSON arguments")]
    NotJson,
    #[error("Tool arguments must be a JSON object")]
    NotAnObject,
}

impl Arguments {
    /// Parses an object, or a bare string as the tool's main parameter. Half a surrogate pair, which JavaScript
    /// writes where it cuts a text, becomes U+FFFD.
    pub(crate) fn parse(tool: &str, json: &str) -> Result<Self, ArgumentsError> {
        match serde_json::from_str(&without_lone_surrogates(json))
            .map_err(|_| ArgumentsError::NotJson)?
        {
            Value::Object(mut object) => {
                if let Some(tool) = find(tool) {
                    object.iter_mut().for_each(|(name, value)| unquote(tool, name, value));
                }
                Ok(Self::of(object))
            }
            text @ Value::String(_) => {
                let name = main_parameter(tool).ok_or(ArgumentsError::NotAnObject)?;
                Ok(Self::of(Map::from_iter([(name.to_owned(), text)])))
            }
            _ => Err(ArgumentsError::NotAnObject),
        }
    }

    fn of(fields: Map<String, Value>) -> Self {
        Self { fields, directory: CallerDir::default() }
    }

    /// Returns the arguments of a caller in a directory of the workspace.
    pub(crate) fn from(self, directory: CallerDir) -> Self {
        Self { directory, ..self }
    }

    /// Returns the directory of the caller.
    pub(crate) fn directory(&self) -> &CallerDir {
        &self.directory
    }

    /// Returns the members of an object inside the arguments.
    pub(crate) fn of_object(object: &Map<String, Value>) -> Self {
        Self::of(object.clone())
    }

    /// Returns all arguments as JSON text.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn to_json(&self) -> String {
        serde_json::Value::from(self.fields.clone()).to_string()
    }

    /// Returns the first of `names` whose value is a string that is not blank, unchanged.
    pub(crate) fn text(&self, names: &[&str]) -> Option<&str> {
        names.iter().filter_map(|name| self.any_text(name)).find(|text| !trim(text).is_empty())
    }

    /// Returns the first of `names` that is a path, relative to the workspace or absolute.
    pub(crate) fn path(&self, names: &[&str]) -> Option<String> {
        Some(self.directory.path(self.text(names)?).into_owned())
    }

    /// Returns the string `name`, even if it is blank.
    pub(crate) fn any_text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }

    /// Finds the first of `names` that is an array with a string that is not blank. Returns all such strings of
    /// that array, trimmed, or an empty list.
    pub(crate) fn texts(&self, names: &[&str]) -> Vec<&str> {
        let arrays = names.iter().filter_map(|name| self.fields.get(*name)?.as_array());
        let texts = arrays.map(|values| {
            values
                .iter()
                .filter_map(Value::as_str)
                .map(trim)
                .filter(|text| !text.is_empty())
                .collect()
        });
        texts.into_iter().find(|texts: &Vec<&str>| !texts.is_empty()).unwrap_or_default()
    }

    /// Returns the value of the first of `names` that is not null.
    pub(crate) fn value(&self, names: &[&str]) -> Option<&Value> {
        names.iter().filter_map(|name| self.fields.get(*name)).find(|value| !value.is_null())
    }

    /// Returns every argument name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// Whether `name` is literally `true`. `"true"` and 1 do not count.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.fields.get(name) == Some(&Value::Bool(true))
    }

    /// Returns the whole number `name`.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name)?.as_u64()
    }
}

/// Reads a list or an object that a client sent as JSON text, as Claude Code does, and one edit in place of a list. A
/// parameter that is a text stays one, such as the pattern `["']`.
fn unquote(tool: &Tool, name: &str, value: &mut Value) {
    let Some(parameter) = tool.meant_by(name) else { return };
    if let (Kind::Edits(_), Value::Object(_)) = (parameter.kind, &*value) {
        *value = Value::Array(vec![value.take()]);
    }
    let text = value.as_str().map(str::trim_start).unwrap_or_default();
    if !text.starts_with(['[', '{']) || tool.main == Some(parameter.name) {
        return;
    }
    let Ok(read) = serde_json::from_str::<Value>(text) else { return };
    let is_list_of = |is_meant: fn(&Value) -> bool| {
        read.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_meant))
    };
    let is_meant = match parameter.kind {
        Kind::Texts | Kind::List | Kind::Choices(_) => is_list_of(Value::is_string),
        Kind::Lines => read.is_array(),
        Kind::Counts(_) => read.is_object(),
        Kind::Edits(_) => is_list_of(Value::is_object),
        _ => false,
    };
    if is_meant {
        *value = read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(tool: &str, json: &str) -> Result<String, ArgumentsError> {
        Arguments::parse(tool, json).map(|arguments| Value::Object(arguments.fields).to_string())
    }

    #[test]
    fn lists_and_objects_as_text_are_read_and_texts_stay() {
        for (tool, json, expected) in [
            ("search", r#"{"include":"[\"*.rs\"]"}"#, r#"{"include":["*.rs"]}"#),
            ("search", r#"{"path":" [\"a\",\"b\"]"}"#, r#"{"path":["a","b"]}"#),
            ("replace", r#"{"expect":"{\"files\":2}"}"#, r#"{"expect":{"files":2}}"#),
            ("replace", r#"{"line_range":"[1,2]"}"#, r#"{"line_range":[1,2]}"#),
            ("edit_file", r#"{"edits":"[{\"a\":1}]"}"#, r#"{"edits":[{"a":1}]}"#),
            ("edit_file", r#"{"edits":{"a":1}}"#, r#"{"edits":[{"a":1}]}"#),
        ] {
            assert_eq!(parse(tool, json).as_deref(), Ok(expected), "{tool}");
        }
        for (tool, json) in [
            ("search", r#"{"pattern":"[\"a\"]"}"#),
            ("search", r#"{"include":"[1]"}"#),
            ("search", r#"{"include":"[ab].rs"}"#),
            ("write_file", r#"{"content":"[\"a\"]"}"#),
            ("edit_file", r#"{"new_text":"{\"a\":1}"}"#),
            ("bash", r#"{"command":"[\"a\"]"}"#),
            ("unknown", r#"{"x":"[\"a\"]"}"#),
        ] {
            assert_eq!(parse(tool, json).as_deref(), Ok(json), "{tool}");
        }
    }

    #[test]
    fn objects_and_shorthands_are_accepted_and_nothing_else() {
        use ArgumentsError::{NotAnObject, NotJson};
        let cases = [
            ("read_file", r#"{"path":"a"}"#, Ok(r#"{"path":"a"}"#)),
            ("anything", r#" {"x":[1]} "#, Ok(r#"{"x":[1]}"#)),
            ("read_file", r#""a""#, Ok(r#"{"path":"a"}"#)),
            ("bash", r#""ls""#, Ok(r#"{"command":"ls"}"#)),
            ("grep_search", r#""x""#, Ok(r#"{"pattern":"x"}"#)),
            ("find_files", r#""x""#, Ok(r#"{"pattern":"x"}"#)),
            ("web_search", r#""x""#, Ok(r#"{"query":"x"}"#)),
            ("write_file", r#""x""#, Err(NotAnObject)),
            ("edit_file", r#""x""#, Err(NotAnObject)),
            ("anything", r#""x""#, Err(NotAnObject)),
            ("bash", "[]", Err(NotAnObject)),
            ("bash", "1", Err(NotAnObject)),
            ("bash", "null", Err(NotAnObject)),
            ("bash", "true", Err(NotAnObject)),
            ("bash", "", Err(NotJson)),
            ("bash", "ls", Err(NotJson)),
            ("bash", r#"{"command":"ls"} x"#, Err(NotJson)),
            ("bash", r#"{"command":}"#, Err(NotJson)),
            (
                "bash",
                r#"{"x":191110000000000000000000000012530737599811673130e38}"#,
                Ok(r#"{"x":1.9111e+85}"#),
            ),
            ("bash", r#""a\ud83e""#, Ok("{\"command\":\"a\u{fffd}\"}")),
            ("bash", r#""\ud83e\udd86""#, Ok(r#"{"command":"🦆"}"#)),
        ];
        for (tool, json, expected) in cases {
            assert_eq!(parse(tool, json), expected.map(str::to_owned), "{tool} {json}");
        }
        assert_eq!(parse("bash", &"[".repeat(1_000_000)), Err(NotJson));
    }

    #[test]
    fn the_first_name_with_something_in_it_wins_and_is_not_trimmed() {
        let cases = [
            (r#"{"b":"2","a":"1"}"#, Some("1")),
            (r#"{"a":5,"b":"2"}"#, Some("2")),
            (r#"{"a":" \t\n\u00a0\ufeff","b":" 2 "}"#, Some(" 2 ")),
            (r#"{"a":null,"b":["2"]}"#, None),
            (r#"{"a":""}"#, None),
            (r#"{"c":"3"}"#, None),
            (r#"{"A":"1"}"#, None),
        ];
        for (json, expected) in cases {
            let arguments = Arguments::parse("t", json).unwrap();
            assert_eq!(arguments.text(&["a", "b"]), expected, "{json}");
        }
    }
}
