//! `quack schema`: what programs exchange with the daemon, as JSON Schema. Asks no daemon.

use crate::args::search::{SchemaArgs, SchemaVerb};
use crate::exit::{Exit, Fault};
use crate::output::Output;
use quackd_protocol::schema;
use serde_json::Value;

/// Runs the verb.
pub(crate) fn run(args: &SchemaArgs, output: Output) -> anyhow::Result<Exit> {
    let SchemaVerb::Tools(args) = &args.verb;
    let document = match args.name.as_deref() {
        None => schema::tools(),
        Some(name) => tool(name)?,
    };
    output.document(&document)?;
    Ok(Exit::Ok)
}

fn tool(name: &str) -> Result<Value, Fault> {
    schema::tool_schema(name).ok_or_else(|| {
        let known: Vec<&str> = schema::ALL.iter().map(|tool| tool.name).collect();
        let name = crate::display::plain(name);
        Fault::usage(format!("there is no tool '{name}'; there are {}", known.join(", ")))
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
}
