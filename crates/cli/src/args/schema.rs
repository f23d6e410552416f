//! Arguments of `quack schema`.

use clap::{Args, Subcommand};

/// Print the protocol of the daemon as JSON Schema or for TypeScript
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
    /// `methods`, `events`, or the name of a method, event or type [default: everything]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print TypeScript declarations of everything
    #[arg(long, conflicts_with = "name")]
    pub(crate) typescript: bool,
}

/// Subcommands of `quack schema`.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaVerb {
    Tools(SchemaToolsArgs),
}

/// Print the JSON Schema of the arguments of every tool, or of one tool
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack schema tools\n  quack schema tools bash | jq .properties"
)]
pub(crate) struct SchemaToolsArgs {
    /// Tool [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}
