//! Arguments of `quack acp`.

use clap::Args;

/// Serve sessions to an editor over the Agent Client Protocol
///
/// An editor such as Zed starts this command and sends prompts over its stdin and stdout. Each conversation of the
/// editor is a session in the workspace of its directory. Running prompts are aborted when the editor closes stdin.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack acp")]
pub(crate) struct AcpArgs {}
