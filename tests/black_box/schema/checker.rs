//! Checks lines of the wire against the schemas that `quack schema` prints: requests, replies and
//! events of one client.

use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Validators of all kinds of lines. Shared, because compiling them is slow.
static VALIDATORS: LazyLock<Validators> = LazyLock::new(Validators::new);

struct Validators {
    reply: Validator,
    other_event: Validator,
    events: BTreeMap<String, Validator>,
    /// Parameters and reply data of each method.
    methods: BTreeMap<String, Validator>,
}

impl Validators {
    fn new() -> Self {
        let document = quackd_schema::document();
        let of = |path: &str| {
            let schema = json!({"$ref": format!("#/$defs/{path}"), "$defs": document["$defs"]});
            jsonschema::draft202012::new(&schema).expect("a schema")
        };
        let listed = |list: &str| {
            let all = document["$defs"][list]["properties"].as_object().expect("a list");
            let one = |name: &String| (name.clone(), of(&format!("{list}/properties/{name}")));
            all.keys().map(one).collect::<BTreeMap<_, _>>()
        };
        Self {
            reply: of("Reply"),
            other_event: of("OtherEvent"),
            events: listed("Events"),
            methods: listed("Methods"),
        }
    }
}

/// The unanswered requests of one client, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    asked: Vec<Value>,
}

impl Checker {
    /// Records a sent line. A line that is not a request with a method must get an error.
    pub(crate) fn sent(&mut self, line: &str) {
        if let Ok(request @ Value::Object(_)) = serde_json::from_str(line) {
            self.asked.push(request);
        }
    }

    /// Checks a received line. The error describes the violation of the schema.
    pub(crate) fn got(&mut self, line: &Value) -> Result<(), String> {
        match line["event"].as_str() {
            Some(name) => {
                let validator = VALIDATORS.events.get(name).unwrap_or(&VALIDATORS.other_event);
                check(name, validator, line)
            }
            None => self.reply(line),
        }
    }

    fn reply(&mut self, line: &Value) -> Result<(), String> {
        check("the reply", &VALIDATORS.reply, line)?;
        let at = self.asked.iter().position(|request| request.get("id") == line.get("id"));
        let Some(request) = at.map(|at| self.asked.remove(at)) else { return Ok(()) };
        let method = request["method"].as_str().unwrap_or_default();
        let Some(validator) = VALIDATORS.methods.get(method) else {
            return if line["ok"] == false {
                Ok(())
            } else {
                Err(format!("{method:?} has no schema, and is answered"))
            };
        };
        if line["ok"] == false {
            return Ok(());
        }
        let params = request.get("params").cloned().unwrap_or_else(|| json!({}));
        let mut both = json!({"params": params});
        if let Some(data) = line.get("data") {
            both["data"] = data.clone();
        }
        check(method, validator, &both)
    }
}

fn check(what: &str, validator: &Validator, value: &Value) -> Result<(), String> {
    let mut wrong = validator.iter_errors(value);
    let Some(first) = wrong.next() else { return Ok(()) };
    Err(format!("{what} is not as its schema says: {}: {first}\n  {value}", first.instance_path()))
}
