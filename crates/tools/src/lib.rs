//! The tools: what a call's arguments mean, what it may do, and the exact text that answers it.
//!
//! Owns: the order of the checks before a tool runs, and every answer text.
//! Called by: the tool executor of `workers/session`, once per call.
//!
//! The texts are a promise to clients and to models; the tables in `tests/` hold them.

mod toolbox;

mod arguments;
mod attempts;
mod bash;
mod bash_text;
mod bounds;
mod confinement;
mod denied;
mod edit_file;
mod find_files;
mod grep_search;
mod javascript;
mod jobs;
mod line_range;
mod live;
mod nixcode;
mod output;
mod parameters;
mod plain;
mod read_file;
mod refused_by_system;
mod replace;
mod replacing;
mod ripgrep_search;
mod safe_mode;
mod sandbox_tools;
mod searching;
mod seen;
mod system_words;
mod truncate;
mod upstreams;
mod watched;
mod web;
mod web_results;
mod web_search;
mod write_failure;
mod write_file;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use attempts::Attempts;
pub use confinement::Confinement;
pub use jobs::{JobReports, Jobs};
pub use live::{Update, Watch};
pub use output::Output;
pub use plain::PlainText;
pub use toolbox::Toolbox;
pub use web::Web;

use crate::arguments::Arguments;
use crate::bounds::Bounds;
use crate::toolbox::Workspace;
use quackd_process::Flow;
use quackd_protocol::tools;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// One request to run one tool.
#[derive(Debug, Clone)]
pub struct Call {
    /// Unique among the calls of this process; names the spill file of a long output.
    pub call_id: String,
    /// Tool name as the client sent it.
    pub tool: String,
    /// Arguments as JSON text, as the client sent them.
    pub arguments: String,
    /// Time that the call may take from now on.
    pub deadline: Duration,
    /// Only what does not change anything is allowed, whatever the session says.
    pub safe_mode: bool,
    /// Ends the call when cancelled.
    pub cancel: CancellationToken,
    /// Whoever wants to see what the call prints while it runs.
    pub watch: Option<Rc<dyn Watch>>,
    /// Reader of a command's whole output.
    pub flow: Option<Flow>,
}

/// Runs one tool and answers.
///
/// Always answers: every failure is a text that begins with `Error: `. Answers a little after the
/// deadline at the latest (bash: after its grace), also when a file system does not.
///
/// # Panics
/// Outside a tokio runtime with a timer.
pub async fn execute(toolbox: Rc<Toolbox>, call: Call) -> Output {
    let arrived = Instant::now();
    let mut output = dispatch(&toolbox, &call, arrived).await;
    let duration_ms = u64::try_from(arrived.elapsed().as_millis());
    output.report.duration_ms = duration_ms.unwrap_or(u64::MAX);
    output
}

/// The checks in their observable order, then the one place that knows the names of the tools.
async fn dispatch(toolbox: &Toolbox, call: &Call, arrived: Instant) -> Output {
    let arguments = match Arguments::parse(&call.tool, &call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Output::error(error),
    };
    let bounds = Bounds::new(arrived, call.deadline, call.cancel.clone());
    // Jobs can be looked at and ended also when their workspace is gone.
    match call.tool.as_str() {
        "jobs" => return jobs::jobs(toolbox),
        "job_output" => return jobs::job_output(toolbox, &arguments, &bounds).await,
        "job_kill" => return jobs::job_kill(toolbox, &arguments, &bounds).await,
        _ => (),
    }
    let root = match toolbox.root(&bounds).await {
        Ok(Workspace::There(root)) => root,
        Ok(Workspace::Gone) => return toolbox.not_accessible(),
        Ok(Workspace::Bare(name)) => return Toolbox::bare_name(&name),
        Err(cutoff) => return Output::cut_off(&call.tool, &bounds, cutoff),
    };
    match call.tool.as_str() {
        "read_file" => read_file::read_file(toolbox, root, &arguments, &bounds).await,
        "bash" => bash::bash(toolbox, call, root, &arguments, &bounds).await,
        "search" => searching::search::search(root, &arguments, &bounds).await,
        "find" => searching::find::find(root, &arguments, &bounds).await,
        "replace" => replace::replace(toolbox, call, root, &arguments, &bounds).await,
        "undo" => replace::undo::undo(toolbox, call, root, &arguments, &bounds).await,
        "grep_search" => {
            let respect = toolbox.respect_ignore_files;
            grep_search::grep_search(respect, root, &arguments, &bounds).await
        }
        "find_files" => find_files::find_files(root, &arguments, &bounds).await,
        "search_content" => {
            nixcode::search_content::search_content(root, &arguments, &bounds).await
        }
        "replace_content" => {
            let replaced =
                nixcode::replace_content::replace_content(toolbox, call, root, &arguments, &bounds);
            replaced.await
        }
        "search_glob_files" => {
            nixcode::search_glob_files::search_glob_files(root, &arguments, &bounds).await
        }
        "ripgrep_search" => ripgrep_search::ripgrep_search(root, &arguments, &bounds).await,
        "write_file" => write_file::write_file(toolbox, call, root, &arguments, &bounds).await,
        "edit_file" => edit_file::edit_file(toolbox, call, root, &arguments, &bounds).await,
        "web_search" => web_search::web_search(toolbox, call, &arguments, &bounds).await,
        tools::AUDIT => sandbox_tools::quack_audit(toolbox, root, &bounds).await,
        tools::EXPLAIN => sandbox_tools::quack_explain(toolbox, root, &arguments, &bounds).await,
        unknown => Output::error(format!("Unknown tool '{unknown}'")),
    }
}
