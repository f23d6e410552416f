//! `quack schema`: what programs exchange with the daemon, as JSON Schema or TypeScript. Asks no daemon.

use crate::args::schema::{SchemaArgs, SchemaVerb};
use crate::display::plain;
use crate::exit::{Exit, Fault};
use crate::output::Output;
use quackd_protocol::schema::{self, wire};
use serde_json::Value;

/// Runs the verb.
pub(crate) fn run(args: &SchemaArgs, output: Output) -> anyhow::Result<Exit> {
    if args.typescript {
        output.text(&wire::typescript())?;
        return Ok(Exit::Ok);
    }
    let document = match (&args.verb, args.name.as_deref()) {
        (Some(SchemaVerb::Tools(args)), _) => match args.name.as_deref() {
            None => schema::tools(),
            Some(name) => tool(name)?,
        },
        (None, None) => wire::document(),
        (None, Some("methods")) => wire::methods(),
        (None, Some("events")) => wire::events(),
        (None, Some(name)) => message(name)?,
    };
    output.document(&document)?;
    Ok(Exit::Ok)
}

fn tool(name: &str) -> Result<Value, Fault> {
    schema::tool_schema(name).ok_or_else(|| {
        let known: Vec<&str> = schema::ALL.iter().map(|tool| tool.name).collect();
        Fault::usage(format!("there is no tool '{}'; there are {}", plain(name), known.join(", ")))
    })
}

/// A method, an event or a type.
fn message(name: &str) -> Result<Value, Fault> {
    wire::named(name).ok_or_else(|| {
        let (methods, events) = wire::names();
        Fault::usage(format!(
            "there is no method, event or type '{}'; there are tools, methods, events, the methods {}, and the \
             events {}",
            plain(name),
            methods.join(", "),
            events.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_has_its_schema_and_an_unknown_one_is_told_what_there_is() {
        assert_eq!(tool("search").unwrap()["name"], "search");
        let text = tool("serach\u{1b}").unwrap_err().to_string();
        assert!(
            text.contains("'serach\u{fffd}'") && text.contains("search, find, replace"),
            "{text}"
        );
    }

    #[test]
    fn a_message_has_its_schema_and_an_unknown_one_is_told_what_there_is() {
        assert_eq!(message("attach").unwrap()["title"], "attach");
        let text = message("atach").unwrap_err().to_string();
        assert!(text.contains("'atach'") && text.contains("ping, attach, sessions"), "{text}");
        assert!(text.contains("agent_end"), "{text}");
    }
}
