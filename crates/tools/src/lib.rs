//! The tools: parses a call's arguments, checks its permissions, runs it, and writes the exact answer text.
//!
//! Owns the order of the checks before a tool runs, and every answer text. Called by `crates/facades`, once per call,
//! which adds the tools with the names of other products.
//!
//! The texts are a promise to clients and to models. The tables in `tests/` check them.

mod toolbox;

mod agent_files;
mod arguments;
mod attempts;
mod bash;
mod bash_text;
mod call;
mod call_limits;
mod caller_dir;
mod command_line;
mod confinement;
mod conversions;
mod denials;
mod edit_diff;
mod edit_file;
mod edit_hint;
mod edit_once;
mod git_state;
mod jobs;
mod line_range;
mod live;
mod lost_files;
mod mcp;
mod os_denial;
mod output;
mod platform;
mod read_file;
mod read_tracker;
mod recorded_write;
mod replace;
mod replaced_files;
mod safe_mode;
mod sandbox_tools;
pub mod search_common;
mod similar_text;
mod strip_ansi;
mod system_errors;
mod temporary_files;
mod terminal_tools;
mod terminals;
mod tool_state;
mod truncate;
mod unsigned_commits;
mod upstreams;
mod watched_names;
mod web;
mod web_results;
mod web_search;
mod workspace_call;
mod write_error;
mod write_file;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use attempts::{Attempts, RefusedRequest};
pub use call::Call;
pub use call_limits::StopCause;
pub use caller_dir::CallerDir;
pub use confinement::Confinement;
pub use jobs::{JobReport, JobReports, Jobs, NewTerminal};
pub use live::{Update, Watch};
pub use output::{Data, Output};
pub use replace::ReplaceOutput;
pub use strip_ansi::PlainText;
pub use terminals::Terminal;
pub use tool_state::{ToolState, WorkerFiles};
pub use toolbox::{Toolbox, UserGit};
pub use truncate::TRUNCATED;
pub use web::Web;
pub use workspace_call::{ReplaceFailure, WorkspaceCall};

use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use quackd_protocol::tools;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Runs one tool and returns its answer.
///
/// Every failure is a text that begins with `Error: `. Answers shortly after the deadline at the latest (bash:
/// after its grace period), even if a file system hangs.
///
/// # Panics
/// Outside a tokio runtime with a timer.
pub async fn execute(toolbox: Rc<Toolbox>, call: Call) -> Output {
    execute_with(toolbox, call, async |_: WorkspaceCall<'_>| None).await
}

/// Like [`execute`], with further tools: `other_tools` runs a call of a tool that this crate does not have, and returns
/// `None` for an unknown tool.
///
/// # Panics
/// Outside a tokio runtime with a timer.
pub async fn execute_with(
    toolbox: Rc<Toolbox>,
    call: Call,
    other_tools: impl AsyncFnOnce(WorkspaceCall<'_>) -> Option<Output>,
) -> Output {
    let arrived = Instant::now();
    let mut output = dispatch(&toolbox, &call, arrived, other_tools).await;
    let duration_ms = u64::try_from(arrived.elapsed().as_millis());
    output.report.duration_ms = duration_ms.unwrap_or(u64::MAX);
    output
}

/// Runs the checks in their observable order, then the tool. Together with [`in_workspace`] it has all tool names of
/// this crate.
async fn dispatch(
    toolbox: &Toolbox,
    call: &Call,
    arrived: Instant,
    other_tools: impl AsyncFnOnce(WorkspaceCall<'_>) -> Option<Output>,
) -> Output {
    let arguments = match Arguments::parse(&call.spec.tool, &call.spec.arguments) {
        Ok(arguments) => arguments.from(CallerDir::new(Path::new(&call.spec.cwd))),
        Err(error) => return Output::error(error),
    };
    let bounds = CallLimits::new(arrived, call.spec.deadline(), call.cancel.clone());

    if tools::find(&call.spec.tool).is_none_or(|tool| !tool.reads_only) {
        toolbox.state.watched.writing();
    }

    // The job tools also work if the workspace was deleted.
    match call.spec.tool.as_str() {
        "jobs" => return jobs::jobs(toolbox),
        "job_output" => return jobs::job_output(toolbox, &arguments, &bounds).await,
        "job_kill" => return jobs::job_kill(toolbox, &arguments, &bounds).await,
        "term_read" => return terminal_tools::term_read(toolbox, &arguments, &bounds).await,
        "term_write" => {
            return terminal_tools::term_write(toolbox, call, &arguments, &bounds).await;
        }
        // These look at the workspace themselves, in the same step as their first work in it.
        "read_file" => return read_file::read_file(toolbox, &arguments, &bounds).await,
        "bash" => return Box::pin(bash::bash(toolbox, call, &arguments, &bounds)).await,
        tools::OPEN_TERMINAL => {
            return Box::pin(terminal_tools::quack_open_terminal(toolbox, call, &bounds)).await;
        }
        "write_file" => {
            return Box::pin(write_file::write_file(toolbox, call, &arguments, &bounds)).await;
        }
        "edit_file" => {
            return Box::pin(edit_file::edit_file(toolbox, call, &arguments, &bounds)).await;
        }
        _ => (),
    }

    // The future is large and would be copied at each call of any tool.
    Box::pin(in_workspace(toolbox, call, &arguments, &bounds, other_tools)).await
}

/// Runs a tool that needs the workspace to be opened first.
async fn in_workspace(
    toolbox: &Toolbox,
    call: &Call,
    arguments: &Arguments,
    bounds: &CallLimits,
    other_tools: impl AsyncFnOnce(WorkspaceCall<'_>) -> Option<Output>,
) -> Output {
    let root = match toolbox.in_root(&call.spec.tool, bounds, |root| root).await {
        Ok(root) => root,
        Err(answer) => return answer,
    };

    match call.spec.tool.as_str() {
        "search" => search_common::search::search(call, root, arguments, bounds).await,
        "find" => search_common::find::find(call, root, arguments, bounds).await,
        "replace" => replace::replace(toolbox, call, root, arguments, bounds).await,
        "undo" => replace::undo::undo(toolbox, call, root, arguments, bounds).await,
        "web_search" => web_search::web_search(toolbox, call, arguments, bounds).await,
        tools::AUDIT => sandbox_tools::quack_audit(toolbox, root, arguments, bounds).await,
        "request_permission" => Output::error("request_permission is answered by the daemon"),
        tools::INSTRUCTIONS => {
            agent_files::quack_instructions(toolbox, root, arguments, bounds).await
        }
        tools::IMAGE => agent_files::quack_image(root, arguments, bounds).await,
        tools::MCP_LIST => mcp::quack_mcp_list(toolbox, call, root, bounds).await,
        tools::MCP_CALL => mcp::quack_mcp_call(toolbox, call, root, bounds).await,
        tools::EXPLAIN => sandbox_tools::quack_explain(toolbox, root, arguments, bounds).await,
        name => {
            let other = WorkspaceCall { toolbox, call, root, arguments, bounds };
            let output = other_tools(other).await;
            output.unwrap_or_else(|| Output::error(format_args!("Unknown tool '{name}'")))
        }
    }
}
