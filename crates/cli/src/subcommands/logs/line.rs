//! Formats one line of the log as text or JSON. Used by `quack logs`.
//!
//! Other programs may write to the file: a line that is not in log format is shown as it is, sanitized.

use super::tail::LogLine;
use crate::display;
use crate::output::{BOLD, DIM, RED, YELLOW};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Maximum length of a message and of a value, in characters.
const MAX_MESSAGE: usize = 4000;
const MAX_VALUE: usize = 400;

/// Keys that are shown elsewhere in the line or omitted.
const HIDDEN: [&str; 4] = ["timestamp", "level", "message", "target"];

/// Formats lines in local time, with a line for each new day.
#[derive(Debug)]
pub(super) struct Format {
    zone: TimeZone,
    /// Local date of the last line.
    day: Date,
    /// Labels by session id. Sessions without a label are shown by id.
    labels: HashMap<String, String>,
}

impl Format {
    /// Creates a format that prints no date for the day of `now`, and `labels` in place of the ids of sessions.
    pub(super) fn new(zone: TimeZone, now: Timestamp, labels: HashMap<String, String>) -> Self {
        let day = now.to_zoned(zone.clone()).date();
        Self { zone, day, labels }
    }

    /// Returns `12:34:56 INFO  message key=value` without a line end. The first line of another day is preceded by its
    /// date.
    pub(super) fn readable(&mut self, line: &LogLine) -> String {
        let text = String::from_utf8_lossy(&line.bytes);
        let object = if line.omitted == 0 { serde_json::from_str(&text).ok() } else { None };
        let parsed = object.as_ref().and_then(|object: &Map<String, Value>| {
            let time = object.get("timestamp")?.as_str()?.parse::<Timestamp>().ok()?;
            Some((object, time))
        });

        let Some((object, time)) = parsed else {
            let omitted = match line.omitted {
                0 => String::new(),
                n => format!(" {DIM}[... {n} bytes omitted]{DIM:#}"),
            };
            return format!("{}{omitted}", display::plain(&text));
        };

        let time = time.to_zoned(self.zone.clone());
        let mut row = String::new();
        if time.date() != self.day {
            self.day = time.date();
            row.push_str(&format!("{BOLD}{}{BOLD:#}\n", self.day));
        }

        let word = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
        row.push_str(&format!("{DIM}{}{DIM:#} ", time.strftime("%H:%M:%S")));
        row.push_str(&level(word("level")));
        row.push_str(&display::cut(word("message"), MAX_MESSAGE));

        for (key, value) in object.iter().filter(|(key, _)| !HIDDEN.contains(&key.as_str())) {
            let label = value.as_str().filter(|_| key == "session");
            let label = label.and_then(|id| self.labels.get(id)).map(|it| Value::from(it.as_str()));
            let key = display::cut(key, MAX_VALUE);
            let value = self::value(label.as_ref().unwrap_or(value));
            row.push_str(&format!(" {DIM}{key}={DIM:#}{value}"));
        }
        row
    }
}

/// Returns a line as JSON: unchanged if it is a JSON object, else as the value of a single key.
pub(super) fn json(line: &LogLine) -> String {
    let text = String::from_utf8_lossy(&line.bytes);
    let is_object = text.trim_start().starts_with('{');
    if line.omitted == 0 && is_object && serde_json::from_str::<&RawValue>(&text).is_ok() {
        return text.into_owned();
    }

    match line.omitted {
        0 => json!({"raw": text}),
        n => json!({"raw": text, "omittedBytes": n}),
    }
    .to_string()
}

fn level(level: &str) -> String {
    let padded = format!("{:<5}", display::cut(level, 5));
    match level {
        "ERROR" => format!("{RED}{padded}{RED:#} "),
        "WARN" => format!("{YELLOW}{padded}{YELLOW:#} "),
        _ => format!("{padded} "),
    }
}

/// Returns a value on one line, in quotes if its end would be ambiguous.
fn value(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains([' ', '=', '"']) => {
            display::cut(text, MAX_VALUE)
        }
        other => display::cut(&other.to_string(), MAX_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::offset;

    fn line(text: impl AsRef<[u8]>) -> LogLine {
        LogLine { bytes: text.as_ref().to_vec(), omitted: 0 }
    }

    fn format() -> Format {
        let now = "2026-03-10T12:00:00Z".parse().unwrap();
        Format::new(TimeZone::fixed(offset(2)), now, HashMap::new())
    }

    fn shown(format: &mut Format, line: &LogLine) -> String {
        anstream::adapter::strip_str(&format.readable(line)).to_string()
    }

    #[test]
    fn a_log_line_is_time_level_message_and_values() {
        for (text, readable) in [
            (
                r#"{"timestamp":"2026-03-10T10:34:56.7Z","level":"INFO","message":"client came","clients":2,"target":"x"}"#,
                "12:34:56 INFO  client came clients=2",
            ),
            (
                r#"{"level":"ERROR","timestamp":"2026-03-10T00:00:00Z","a":"x y","b":"","c":null,"d":"z","e":[1]}"#,
                r#"02:00:00 ERROR  a="x y" b="" c=null d=z e=[1]"#,
            ),
            (
                "{\"timestamp\":\"2026-03-10T00:00:00Z\",\"level\":\"A\\u001b[2J\",\"message\":\"a\\nb\\u0007\"}",
                "02:00:00 A\u{fffd}[2J a\u{fffd}b\u{fffd}",
            ),
        ] {
            assert_eq!(shown(&mut format(), &line(text)), readable);
        }
    }

    #[test]
    fn a_line_of_another_day_says_which() {
        let mut format = format();
        let at =
            |time: &str| line(format!(r#"{{"timestamp":"{time}","level":"INFO","message":"m"}}"#));
        let days = ["2026-03-09T21:59:59Z", "2026-03-09T22:00:00Z", "2026-03-09T22:00:01Z"]
            .map(|time| shown(&mut format, &at(time)));
        assert_eq!(
            days,
            ["2026-03-09\n23:59:59 INFO  m", "2026-03-10\n00:00:00 INFO  m", "00:00:01 INFO  m"]
        );
    }

    #[test]
    fn what_is_no_log_line_is_shown_as_it_is_and_steers_nothing() {
        for (bytes, readable) in [
            (&b"quackd: panic"[..], "quackd: panic"),
            (b"{\"timestamp\":7}", "{\"timestamp\":7}"),
            (b"\x1b[2J\xff\r", "\u{fffd}[2J\u{fffd}\u{fffd}"),
            (b"", ""),
        ] {
            let text = format().readable(&line(bytes));
            assert_eq!(text, readable);
        }
        let long = LogLine { bytes: b"abc".to_vec(), omitted: 9 };
        assert_eq!(shown(&mut format(), &long), "abc [... 9 bytes omitted]");
    }

    #[test]
    fn a_script_gets_json_whatever_stands_in_the_file() {
        let log_line = r#" {"timestamp":"x", "b": 1.0}"#;
        assert_eq!(json(&line(log_line)), log_line);
        assert_eq!(json(&line("panic: \"x\"\u{1b}")), "{\"raw\":\"panic: \\\"x\\\"\\u001b\"}");
        assert_eq!(json(&line("7")), r#"{"raw":"7"}"#);
        assert_eq!(json(&line(b"{\"a\":\"\xff\"}")), "{\"a\":\"\u{fffd}\"}");
        let long = LogLine { bytes: b"{}".to_vec(), omitted: 9 };
        assert_eq!(json(&long), r#"{"omittedBytes":9,"raw":"{}"}"#);
    }
}
