//! Arguments of a tool call. A shorthand equals the object that it abbreviates, parsing is idempotent, and
//! each parameter keeps its given value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_fuzz::flags_and_text;
use quackd_protocol::tools::{self, main_parameter};
use quackd_tools::fuzzing::{arguments, parameter};
use serde_json::{Value, json};

const NAMES: &[&str] = &["path", "file", "command", "pattern", "query"];

fuzz_target!(|data: &[u8]| {
    let Some((flags, text)) = flags_and_text(data) else { return };
    let tool = tools::all().nth(usize::from(flags) % (tools::all().count() + 1)).map_or("unknown", |it| it.name);

    // As a JSON string, every text is the main parameter.
    let shorthand = json!(text).to_string();
    match main_parameter(tool) {
        Some(name) => {
            let object = json!({ name: text }).to_string();
            assert_eq!(arguments(tool, &shorthand), arguments(tool, &object));
            let is_blank = text.chars().all(|c| c.is_whitespace() || c == '\u{feff}');
            let found = parameter(tool, &shorthand, &[name]);
            assert!(found.as_deref() == Some(text) || (found.is_none() && is_blank), "{text:?}");
        }
        None => assert!(arguments(tool, &shorthand).is_err()),
    }

    // Also as JSON text, if it is valid.
    match (arguments(tool, text), serde_json::from_str::<Value>(text)) {
        (Ok(read), json) => {
            assert_eq!(arguments(tool, &read), Ok(read.clone()));
            let object: Value = serde_json::from_str(&read).expect("an object");
            if let Ok(Value::Object(given)) = &json {
                assert_eq!(object.as_object(), Some(given));
            }
            if let Some(found) = parameter(tool, text, NAMES) {
                assert!(NAMES.iter().any(|name| object[*name] == json!(found)), "{found:?}");
            }
        }
        (Err(told), Ok(json)) => {
            assert!(!json.is_object() && told == "Tool arguments must be a JSON object", "{told}");
        }
        (Err(_), Err(_)) => {}
    }
});
