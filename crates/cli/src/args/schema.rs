//! The command line of `quack schema`.

use clap::{Args, Subcommand};

/// Prints what programs exchange with the daemon, as JSON Schema or for TypeScript. Works without a daemon.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack schema > quackd.schema.json\n  quack schema methods\n  \
                  quack schema attach | jq .properties.params\n  quack schema agent_end\n  \
                  quack schema --typescript > quackd.d.ts\n  quack schema tools grep_search"
)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<SchemaVerb>,
    /// `methods`, `events`, or the name of a method, an event or a type; everything if absent
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Declarations for TypeScript, of everything
    #[arg(long, conflicts_with = "name")]
    pub(crate) typescript: bool,
}

/// What else `quack schema` prints.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaVerb {
    Tools(SchemaToolsArgs),
}

/// Prints the JSON Schema of every tool's arguments, or of one tool's. Works without a daemon.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack schema tools\n  quack schema tools bash | jq .properties"
)]
pub(crate) struct SchemaToolsArgs {
    /// Tool; all if absent
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}
