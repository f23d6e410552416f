//! Tools with the names, parameters and texts of other products: grep_search and find_files of the Rubber Duck daemon,
//! ripgrep_search of Radbot and RA.Aid, and those of Nixcode.
//!
//! Each tool maps its parameters to a request of `crates/search`, and the result to its texts. Called by the tool
//! executor of `workers/session`, once per call. All other tools are in `crates/tools`.

mod find_files;
mod grep_search;
mod nixcode;
mod ripgrep_search;

use quackd_tools::{Call, Output, Toolbox, WorkspaceCall, execute_with};
use std::rc::Rc;

/// Runs one tool of this crate or of `crates/tools`, and returns its answer, as [`quackd_tools::execute`] does.
///
/// # Panics
/// Outside a tokio runtime with a timer.
pub async fn execute(toolbox: Rc<Toolbox>, call: Call) -> Output {
    execute_with(toolbox, call, run).await
}

/// Runs a tool of this crate. Returns `None` for another name.
async fn run(call: WorkspaceCall<'_>) -> Option<Output> {
    Some(match call.tool() {
        "grep_search" => grep_search::grep_search(call).await,
        "find_files" => find_files::find_files(call).await,
        "search_content" => nixcode::search_content::search_content(call).await,
        "replace_content" => nixcode::replace_content::replace_content(call).await,
        "search_glob_files" => nixcode::search_glob_files::search_glob_files(call).await,
        "ripgrep_search" => ripgrep_search::ripgrep_search(call).await,
        _ => return None,
    })
}
