//! Patterns of recorded lines. They are compared with real lines as text, so that the order of keys
//! counts.

use serde_json::Value;
use std::collections::HashMap;

/// Values of the names in a block.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, String>);

impl Names {
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Replaces the known names in a line that is to be sent.
    pub(super) fn fill(&self, line: &str) -> String {
        self.0
            .iter()
            .fold(line.to_owned(), |line, (name, value)| line.replace(&format!("<{name}>"), value))
    }

    /// Compares a whole line.
    pub(super) fn matches(&mut self, recorded: &str, found: &str) -> Result<(), String> {
        let (mut recorded, mut rest) = (recorded, found);
        while let Some((before, name, after)) = next_name(recorded) {
            rest = without(rest, before)?;
            rest = match name.strip_prefix('+') {
                Some(keys) => {
                    keys.split(',').try_fold(rest, |rest, key| without_member(rest, key))?
                }
                None => self.value(name, rest)?,
            };
            recorded = after;
        }
        rest = without(rest, recorded)?;
        if rest.is_empty() { Ok(()) } else { Err(format!("not recorded: {rest}")) }
    }

    /// Removes the value of a name from the front.
    fn value<'a>(&mut self, name: &str, rest: &'a str) -> Result<&'a str, String> {
        if let Some(known) = self.0.get(name) {
            return without(rest, known).map_err(|why| format!("<{name}> is {known}: {why}"));
        }
        let end = rest.find(['"', ',', '}', ']']).unwrap_or(rest.len());
        // A text may contain any character except its end quote. A comma does not end it.
        let end = if name == "text" { rest.find('"').unwrap_or(end) } else { end };
        let (value, after) = rest.split_at(end);
        let fits = match name {
            "number" => value.parse::<f64>().is_ok(),
            "time" => value.len() == 20 && value.ends_with('Z'),
            _ => !value.is_empty(),
        };
        if !fits {
            return Err(format!("{value:?} is no <{name}>"));
        }
        if !matches!(name, "number" | "text" | "time") {
            self.set(name, value);
        }
        Ok(after)
    }
}

/// The text before the first name, the name, and the text after it.
fn next_name(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('<')?;
    let (name, after) = rest.split_once('>')?;
    Some((before, name, after))
}

fn without<'a>(text: &'a str, prefix: &str) -> Result<&'a str, String> {
    text.strip_prefix(prefix).ok_or_else(|| {
        let shown: String = text.chars().take(prefix.chars().count() + 20).collect();
        format!("{prefix:?} expected, {shown:?} found")
    })
}

/// Removes `,"key":<any JSON>` from the front.
fn without_member<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let value = without(text, &format!(",\"{key}\":"))?;
    let mut read = serde_json::Deserializer::from_str(value).into_iter::<Value>();
    match read.next() {
        Some(Ok(_)) => Ok(&value[read.byte_offset()..]),
        _ => Err(format!("no value of {key}: {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(recorded: &str, found: &str, fits: bool) {
        let mut names = Names::default();
        names.set("repo", "/r");
        assert_eq!(names.matches(recorded, found).is_ok(), fits, "{recorded} | {found}");
    }

    #[test]
    fn lines_are_compared_as_text() {
        check(r#"{"a":1,"b":"<repo>/x"}"#, r#"{"a":1,"b":"/r/x"}"#, true);
        check(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, false);
        check(r#"{"a":<number>}"#, r#"{"a":12}"#, true);
        check(r#"{"a":<number>}"#, r#"{"a":"12"}"#, false);
        check(r#"{"a":"<x>","b":"<x>"}"#, r#"{"a":"1","b":"1"}"#, true);
        check(r#"{"a":"<x>","b":"<x>"}"#, r#"{"a":"1","b":"2"}"#, false);
        check(r#"{"a":"<text>"}"#, r#"{"a":"one, two"}"#, true);
        check(r#"{"at":"<time>"}"#, r#"{"at":"2026-01-02T03:04:05Z"}"#, true);
        check(r#"{"at":"<time>"}"#, r#"{"at":"yesterday"}"#, false);
        check(r#"{"a":1}"#, r#"{"a":1} "#, false);
    }

    #[test]
    fn what_is_added_is_named() {
        check(r#"{"a":1<+b,c>}"#, r#"{"a":1,"b":{"x":[1,"}"]},"c":null}"#, true);
        check(r#"{"a":1<+b>}"#, r#"{"a":1}"#, false);
        check(r#"{"a":1<+b>}"#, r#"{"a":1,"b":2,"c":3}"#, false);
        check(r#"{"a":1<+b,c>}"#, r#"{"a":1,"c":2,"b":3}"#, false);
    }
}
