//! Patterns of documented lines: JSON with names in place of some values. They are compared with
//! real lines.
//!
//! | in the document | means |
//! |---|---|
//! | `"<name>"`, also within a text | some text; every use of the name has the same value |
//! | `<name>` in place of a value | some number; every use of the name has the same value |
//! | `<text>`, `<number>`, `<time>` | like `<name>`, but each use may have another value; a time has the wire's form |
//! | `...` at the end of an array or object | more items may follow |

use serde_json::{Map, Value};
use std::collections::HashMap;

/// Replacements for an unquoted name and for three dots, once a line is JSON.
const NUMBER: char = '\u{1}';
const MORE: &str = "\u{2}";

/// Values of the names in a transcript.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, Value>);

impl Names {
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Replaces all names in a line that is to be sent.
    pub(super) fn fill(&self, line: &str) -> String {
        parts(line).into_iter().fold(String::new(), |mut filled, part| {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Name(name) => match self.0.get(name) {
                    Some(Value::String(text)) => filled.push_str(text),
                    Some(other) => filled.push_str(&other.to_string()),
                    None => panic!("nothing has told yet what <{name}> is: {line}"),
                },
            }
            filled
        })
    }

    /// Compares a real line with a documented one. The error names the place of the difference.
    pub(super) fn compare(&mut self, documented: &str, found: &Value) -> Result<(), String> {
        let expected = parse(documented)?;
        self.values(&expected, found, "the line")
    }

    fn values(&mut self, expected: &Value, found: &Value, place: &str) -> Result<(), String> {
        match (expected, found) {
            (Value::String(name), Value::Number(_)) if name.starts_with(NUMBER) => {
                self.bind(name.trim_start_matches(NUMBER), found.clone(), place)
            }
            (Value::String(expected), Value::String(text)) if !expected.starts_with(NUMBER) => {
                self.text(expected, text, place)
            }
            (Value::Array(expected), Value::Array(found)) => self.arrays(expected, found, place),
            (Value::Object(expected), Value::Object(found)) => self.objects(expected, found, place),
            (expected, found) if expected == found => Ok(()),
            (expected, found) => Err(format!("{place}: not {expected}, but {found}")),
        }
    }

    fn arrays(&mut self, expected: &[Value], found: &[Value], place: &str) -> Result<(), String> {
        let (expected, is_open) = match expected.split_last() {
            Some((last, rest)) if last == MORE => (rest, true),
            _ => (expected, false),
        };
        let fits = expected.len() == found.len() || (is_open && expected.len() < found.len());
        if !fits {
            return Err(format!("{place}: not {} items, but {}", expected.len(), found.len()));
        }
        let mut pairs = (0..).zip(expected.iter().zip(found));
        pairs.try_for_each(|(i, (e, f))| self.values(e, f, &format!("{place}[{i}]")))
    }

    fn objects(
        &mut self,
        expected: &Map<String, Value>,
        found: &Map<String, Value>,
        place: &str,
    ) -> Result<(), String> {
        let is_open = expected.contains_key(MORE);
        for (key, value) in expected.iter().filter(|(key, _)| *key != MORE) {
            let there = found.get(key).ok_or_else(|| format!("{place}: there is no `{key}`"))?;
            self.values(value, there, &format!("{place}.{key}"))?;
        }
        match found.keys().find(|key| !is_open && !expected.contains_key(*key)) {
            Some(key) => Err(format!("{place}: `{key}` is not documented")),
            None => Ok(()),
        }
    }

    /// Compares a text that contains names. An unknown name extends to the text that follows it.
    fn text(&mut self, expected: &str, found: &str, place: &str) -> Result<(), String> {
        let differ = || format!("{place}: not {expected:?}, but {found:?}");
        let mut rest = found;
        let parts = parts(expected);
        for (i, part) in parts.iter().enumerate() {
            let name = match part {
                Part::Text(text) => {
                    rest = rest.strip_prefix(text).ok_or_else(differ)?;
                    continue;
                }
                Part::Name(name) => *name,
            };
            if let Some(Value::String(known)) = self.0.get(name) {
                rest = rest.strip_prefix(known.as_str()).ok_or_else(differ)?;
                continue;
            }
            let end = match parts.get(i + 1) {
                Some(Part::Text(next)) => rest.find(next).ok_or_else(differ)?,
                _ => rest.len(),
            };
            let (value, after) = rest.split_at(end);
            self.bind(name, value.into(), place)?;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(differ()) }
    }

    fn bind(&mut self, name: &str, value: Value, place: &str) -> Result<(), String> {
        match (name, &value) {
            ("number", Value::Number(_)) | ("text", Value::String(_)) => return Ok(()),
            ("number", Value::String(text)) if text.parse::<f64>().is_ok() => return Ok(()),
            ("time", Value::String(text)) if is_time(text) => return Ok(()),
            ("number" | "text" | "time", _) => {
                return Err(format!("{place}: not a {name}, but {value}"));
            }
            _ => {}
        }
        match self.0.get(name) {
            Some(known) if *known != value => {
                Err(format!("{place}: <{name}> was {known}, now it is {value}"))
            }
            Some(_) => Ok(()),
            None => {
                self.0.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }
}

/// Whole seconds, UTC.
fn is_time(text: &str) -> bool {
    let form = "0000-00-00T00:00:00Z";
    let fits = |(c, f): (char, char)| if f == '0' { c.is_ascii_digit() } else { c == f };
    text.len() == form.len() && text.chars().zip(form.chars()).all(fits)
}

#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Splits a text at its names.
fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, _) in text.match_indices('<') {
        let Some(name) = name_at(&text[at..]) else { continue };
        if begin < at {
            parts.push(Part::Text(&text[begin..at]));
        }
        parts.push(Part::Name(name));
        begin = at + name.len() + 2;
    }
    if begin < text.len() {
        parts.push(Part::Text(&text[begin..]));
    }
    parts
}

/// The name at the start of a text, if any.
fn name_at(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('<')?.split_once('>')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    is_name.then_some(name)
}

/// Converts a documented line to JSON and parses it.
fn parse(line: &str) -> Result<Value, String> {
    let (mut json, mut rest) = (String::new(), line);
    let (mut in_string, mut open) = (false, Vec::new());
    while let Some(c) = rest.chars().next() {
        let mut used = c.len_utf8();
        match c {
            '\\' if in_string => used += rest[used..].chars().next().map_or(0, char::len_utf8),
            '"' => in_string = !in_string,
            '{' | '[' if !in_string => open.push(c),
            '}' | ']' if !in_string => drop(open.pop()),
            '<' if !in_string => {
                let name = name_at(rest).ok_or_else(|| format!("no name at {rest:?}"))?;
                json.push_str(&format!("\"\\u0001{name}\""));
                rest = &rest[name.len() + 2..];
                continue;
            }
            '.' if !in_string && rest.starts_with("...") => {
                json.push_str(if open.last() == Some(&'{') {
                    "\"\\u0002\":0"
                } else {
                    "\"\\u0002\""
                });
                rest = &rest[3..];
                continue;
            }
            _ => {}
        }
        json.push_str(&rest[..used]);
        rest = &rest[used..];
    }
    serde_json::from_str(&json).map_err(|error| format!("the documented line is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(documented: &str, found: &Value, expected: Result<(), &str>) {
        let mut names = Names::default();
        names.set("repo", "/r");
        let compared = names.compare(documented, found);
        assert_eq!(compared, expected.map_err(str::to_owned), "{documented}");
    }

    #[test]
    fn a_line_is_as_documented_or_the_place_is_told() {
        let found = json!({"id": "1", "ok": true, "data": {"pid": 7, "list": [1, "a /r/b c"]}});
        check(
            r#"{"id":"1","ok":true,"data":{"pid":<pid>,"list":[1,"a <repo>/b c"]}}"#,
            &found,
            Ok(()),
        );
        check(
            r#"{"id":"1","ok":true,"data":{"pid":<pid>,"list":[<number>,"a <x>/b <text>"]}}"#,
            &found,
            Ok(()),
        );
        check(r#"{"ok":true,"data":{"list":[...], ...}, ...}"#, &found, Ok(()));
        check(r#"{"ok":true, ...}"#, &found, Ok(()));
        let not = "the line.ok: not false, but true";
        check(r#"{"ok":false, ...}"#, &found, Err(not));
        check(r#"{"ok":true,"id":"1"}"#, &found, Err("the line: `data` is not documented"));
        check(r#"{"gone":1, ...}"#, &found, Err("the line: there is no `gone`"));
        let not = r#"the line.data.list[1]: not "a <repo>/c", but "a /r/b c""#;
        check(r#"{"data":{"list":[1,"a <repo>/c"],"pid":7}, ...}"#, &found, Err(not));
        check(
            r#"{"data":{"list":[1],"pid":7}, ...}"#,
            &found,
            Err("the line.data.list: not 1 items, but 2"),
        );
        check(r#"{"id":<id>, ...}"#, &found, Err(r#"the line.id: not "\u0001id", but "1""#));
    }

    #[test]
    fn a_name_is_the_same_value_wherever_it_comes_again() {
        let mut names = Names::default();
        assert_eq!(names.compare(r#"["<a>",<n>]"#, &json!(["x", 1])), Ok(()));
        assert_eq!(names.fill(r#"{"a":"<a>","n":<n>}"#), r#"{"a":"x","n":1}"#);
        assert_eq!(names.compare(r#"["in <a> text"]"#, &json!(["in x text"])), Ok(()));
        let other = names.compare(r#"["<a>",<n>]"#, &json!(["x", 2]));
        assert_eq!(other, Err("the line[1]: <n> was 1, now it is 2".to_owned()));
        assert!(names.compare(r#"["<a>"]"#, &json!(["y"])).is_err());
        let times = r#"["<time>","<time>","<text>","took <number> s"]"#;
        let found = json!(["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z", "", "took 1.5 s"]);
        assert_eq!(names.compare(times, &found), Ok(()));
        assert!(names.compare(r#"["<time>"]"#, &json!(["yesterday"])).is_err());
    }
}
