//! Parses the JSON arguments of a call, and finds unknown names. The structs of `quackd_protocol::tools` read the values.
//!
//! Voice models send shorthands and near misses. This leniency is part of the wire.

use crate::caller_dir::CallerDir;
use quackd_protocol::surrogates::without_lone_surrogates;
use quackd_protocol::tools::{BadParameter, Kind, Parameter, Tool, find, main_parameter};
use serde_json::{Map, Value};

/// Maximum edit distance at which an unknown name counts as a typing error.
const MAX_DISTANCE: usize = 3;

/// Number of characters of an unknown name that are repeated in the error.
const SHOWN_CHARS: usize = 60;

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

    /// Returns the object, for the struct that reads it.
    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Returns the object of a strict tool, which refuses unknown names.
    pub(crate) fn known(&self, tool: &Tool) -> Result<&Map<String, Value>, BadParameter> {
        match self.fields.keys().find(|name| tool.meant_by(name).is_none()) {
            Some(name) => Err(BadParameter::Unknown {
                name: name.chars().take(SHOWN_CHARS).collect(),
                nearest: nearest(tool, name),
            }),
            None => Ok(&self.fields),
        }
    }

    /// Returns all arguments as JSON text.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn to_json(&self) -> String {
        serde_json::Value::from(self.fields.clone()).to_string()
    }
}

/// Returns the most similar known name.
fn nearest(tool: &Tool, name: &str) -> Option<&'static str> {
    let name: String = name.chars().take(SHOWN_CHARS).collect();
    let known = tool.parameters.iter().flat_map(Parameter::names);
    let by_distance = known.map(|known| (strsim::osa_distance(known, &name), known));
    let (distance, known) = by_distance.min_by_key(|(distance, _)| *distance)?;
    (distance <= MAX_DISTANCE && distance < known.chars().count()).then_some(known)
}

/// Reads a list or an object that a client sent as JSON text, as Claude Code does, and one edit in place of a list. A
/// parameter that is a text stays one, such as the pattern `["']`.
fn unquote(tool: &Tool, name: &str, value: &mut Value) {
    let Some(parameter) = tool.meant_by(name) else { return };
    if let (Kind::Edits(_), Value::Object(_)) = (parameter.kind, &*value) {
        *value = Value::Array(vec![value.take()]);
    }

    let text = value.as_str().map(str::trim_start).unwrap_or_default();
    // The main parameter, such as a command, is a text that may begin with a bracket.
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
    use quackd_protocol::tools::SEARCH;

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
    fn unknown_names_are_refused_with_the_nearest() {
        let unknown = |json: &str| {
            let arguments = Arguments::parse("search", json).unwrap();
            arguments.known(&SEARCH).unwrap_err().to_string()
        };
        assert_eq!(
            unknown(r#"{"patern":"x"}"#),
            "Unknown parameter 'patern', did you mean 'pattern'?"
        );
        assert_eq!(unknown(r#"{"Limit":1}"#), "Unknown parameter 'Limit', did you mean 'limit'?");
        assert_eq!(unknown(r#"{"something_else":1}"#), "Unknown parameter 'something_else'");
        assert_eq!(unknown(&format!(r#"{{"{}":1}}"#, "x".repeat(500))).len(), 60 + 20);
        let known = Arguments::parse("search", r#"{"query":"x","-i":true}"#).unwrap();
        assert!(known.known(&SEARCH).is_ok());
    }
}
