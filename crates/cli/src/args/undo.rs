//! Arguments of `quack undo` and `quack changes`.

use super::AnySessionArgs;
use super::search::ToolCallArgs;
use clap::Args;

/// Take back changes of files; skip files that changed since
///
/// Takes back what write_file, edit_file and replace changed: without an option the session's last change, or the last
/// replacement as a whole. For changes of commands see quack restore. A file that a change created is deleted.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack undo\n  quack undo --turn            everything that the last turn of the agent changed\n  \
    quack undo --call mi2k4x9q   everything that one call changed; see quack log\n  quack undo ID --json\n  quack undo --list\n\n\
    Exit codes: 0 all files are restored, 1 there is nothing to undo, or a file was skipped because it changed since."
)]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    pub(crate) selection: ChangeSelection,
    /// List what can be undone; see also quack changes
    #[arg(long, conflicts_with_all = ["id", "in_call", "turn"])]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) call: ToolCallArgs,
}

/// Show what tools changed in files, newest first
///
/// Lists the changes of write_file, edit_file, replace and undo in the session, with the call and the turn that made them.
/// Changes of commands are listed too if they are recorded: see quack checkpoints. The changes of the last days are kept
/// (keep.undo_days), at most 128 MiB of each session.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack changes\n  quack changes api/review --diff\n  quack changes --turn --diff\n  \
    quack changes --call mi2k4x9q\n  quack changes --json | jq -r '.entries[].changes[].path'\n\n\
    Take them back with: quack undo ID, quack undo --turn, quack undo --call ID"
)]
pub(crate) struct ChangesArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
    /// Show each change as a diff
    #[arg(long)]
    pub(crate) diff: bool,
    /// Show only the change with this ID
    #[arg(long, value_name = "ID", value_parser = id, conflicts_with_all = ["in_call", "turn"])]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) group: GroupSelection,
}

/// Changes that are meant.
#[derive(Debug, Args)]
pub(crate) struct ChangeSelection {
    /// Id printed by `quack replace` or `quack changes` [default: the session's last change]
    #[arg(value_name = "ID", allow_hyphen_values = true, value_parser = id, conflicts_with_all = ["in_call", "turn"])]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) group: GroupSelection,
}

/// The changes of a call or of a turn.
#[derive(Debug, Args)]
pub(crate) struct GroupSelection {
    /// The changes of the call with this id in `quack log`
    #[arg(id = "in_call", long = "call", value_name = "ID", value_parser = id, conflicts_with = "turn")]
    pub(crate) call: Option<String>,
    /// The changes of the agent's turn N [default: the last turn with changes]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) turn: Option<u64>,
}

/// Rejects an empty id: `quack undo "$id"` with an empty variable must not undo the last change.
fn id(text: &str) -> Result<String, String> {
    let is_empty = text.trim().is_empty();
    if is_empty { Err("the id is empty".to_owned()) } else { Ok(text.to_owned()) }
}
