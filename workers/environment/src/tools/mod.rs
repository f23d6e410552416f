//! Asks the user's tools for the hosts of their registries: runs them, and reads their user-level files. Reads keys from
//! the system's keychain in the same way.
//!
//! The tools run unconfined, so nothing that a session may write chooses what runs: the working directory is `/`, the
//! supervisor removes variables and entries of PATH that lead into such a directory, and programs and files that do are
//! not used.
//!
//! In reading order:
//! - [`asking`]: runs one program with the deadline, and reads one file;
//! - [`url_host`]: the host of a URL as a rule;
//! - [`cargo`], [`npm`], [`pip`], [`go`], [`apt`], [`toolchains`]: one question each;
//! - [`keychain`]: reads a key.

mod apt;
mod asking;
mod cargo;
mod findings;
mod go;
mod keychain;
mod npm;
mod pip;
mod toolchains;
mod url_host;

use asking::Asking;
use findings::Findings;
use futures_util::future::join_all;
pub(crate) use keychain::read_key;
use quackd_protocol::environment::{ToolAnswer, ToolKind, ToolsRequest};
use tokio_util::sync::CancellationToken;

/// Asks all kinds of tools at the same time. Returns one answer for each. No process of a tool is left afterwards.
///
/// This process must be a sub-reaper, see [`quackd_process::run`].
pub(crate) async fn ask(request: ToolsRequest, abandon: &CancellationToken) -> Vec<ToolAnswer> {
    let tools = request.tools.clone();
    let asking = Asking::new(request, abandon.clone());

    let ask_tool = |tool: ToolKind| {
        let asking = &asking;
        async move {
            let Findings { hosts, problems } = match tool {
                ToolKind::Crates => cargo::ask(asking).await,
                ToolKind::Npm => npm::ask(asking).await,
                ToolKind::Pypi => pip::ask(asking).await,
                ToolKind::Go => go::ask(asking).await,
                ToolKind::System => apt::ask(asking),
                ToolKind::Rust => toolchains::ask_rustup(asking),
                ToolKind::Node => toolchains::ask_node(asking).await,
            };
            ToolAnswer { tool, hosts, problems }
        }
    };

    join_all(tools.into_iter().map(ask_tool)).await
}
