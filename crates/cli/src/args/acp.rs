//! Arguments of `quack acp`.

use clap::Args;

/// Serve sessions to an editor over the Agent Client Protocol
///
/// An editor such as Zed starts this command and sends prompts over its stdin and stdout. Each conversation of the
/// editor is a session in the workspace of its directory. Running prompts are aborted when the editor closes stdin.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack acp\n  quack acp --isolated   then: quack diff --session zed-1"
)]
pub(crate) struct AcpArgs {
    /// Let each new conversation work in a private copy of the workspace; see quack diff and quack apply
    #[arg(long)]
    pub(crate) isolated: bool,
}
