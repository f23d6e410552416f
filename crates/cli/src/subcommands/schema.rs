//! `quack schema`: prints the protocol as JSON Schema or TypeScript. Needs no daemon.

use crate::args::schema::{SchemaArgs, SchemaVerb};
use crate::display::plain;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use quackd_protocol::tools;
use serde_json::Value;

/// Runs the subcommand.
pub(crate) fn run(args: &SchemaArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if args.typescript {
        output.text(&quackd_schema::typescript())?;
        return Ok(ExitCode::Ok);
    }

    let document = match (&args.verb, args.name.as_deref()) {
        (Some(SchemaVerb::Tools(args)), _) => match args.name.as_deref() {
            None => quackd_schema::tools(),
            Some(name) => tool(name)?,
        },
        (None, None) => quackd_schema::document(),
        (None, Some("methods")) => quackd_schema::methods(),
        (None, Some("events")) => quackd_schema::events(),
        (None, Some(name)) => message(name)?,
    };
    output.document(&document)?;
    Ok(ExitCode::Ok)
}

fn tool(name: &str) -> Result<Value, CliError> {
    quackd_schema::tool(name).ok_or_else(|| {
        let known: Vec<&str> = tools::all().map(|tool| tool.name).collect();
        CliError::usage(format!("unknown tool '{}': expected {}", plain(name), known.join(", ")))
    })
}

/// Returns the schema of a method, an event or a type.
fn message(name: &str) -> Result<Value, CliError> {
    quackd_schema::named(name).ok_or_else(|| {
        let (methods, events) = quackd_schema::names();
        CliError::usage(format!(
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
