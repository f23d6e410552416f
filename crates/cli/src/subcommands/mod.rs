//! One module per subcommand. [`run()`] calls its `run`, which returns an exit code. [`result_stream`] is shared by the
//! subcommands that search.

pub(crate) mod abort;
pub(crate) mod acp;
pub(crate) mod activate;
pub(crate) mod agents;
mod approval_prompt;
pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod attach_terminal;
pub(crate) mod changes;
mod checkpoints;
mod completions;
pub(crate) mod config;
mod confirmation;
pub(crate) mod daemon;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod engines;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod follow;
pub(crate) mod fork;
pub(crate) mod forward;
pub(crate) mod gc;
pub(crate) mod grep;
pub(crate) mod history;
mod isolated;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod metrics;
pub(crate) mod models;
pub(crate) mod new;
pub(crate) mod open;
mod page_tokens;
pub(crate) mod pin;
pub(crate) mod play;
pub(crate) mod ps;
pub(crate) mod remote;
pub(crate) mod replace;
pub(crate) mod restart;
pub(crate) mod result_stream;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod say;
pub(crate) mod schema;
pub(crate) mod service;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod stop;
pub(crate) mod tool;
pub(crate) mod tools;
pub(crate) mod top;
pub(crate) mod undo;
pub(crate) mod uninstall;
pub(crate) mod version;
pub(crate) mod workspaces;

use crate::args::{AttachArgs, Cli, Verb};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use std::pin::Pin;

/// Runs a subcommand. Without one, attaches a directory.
#[expect(clippy::too_many_lines, reason = "a table with one line for each subcommand")]
pub(crate) async fn run(
    verb: Option<Verb>,
    attach: AttachArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    match verb {
        None => Box::pin(attach::run(&attach, run_typed, output)).await,
        Some(Verb::Run(args)) => Box::pin(run::run(args, output)).await,
        Some(Verb::Attach(args)) => Box::pin(attach_terminal::run(args, output)).await,
        Some(Verb::Detach(args)) => detach::run(args, output).await,
        Some(Verb::Play(args)) => Box::pin(play::run(args, output)).await,
        Some(Verb::Demo(args)) => Box::pin(demo::run(&args, output)).await,
        Some(Verb::Tool(args)) => Box::pin(tool::run(&args, output)).await,
        Some(Verb::Tools(args)) => tools::run(args, output),
        Some(Verb::Jobs(args)) => Box::pin(jobs::run(args, output)).await,
        Some(Verb::Grep(args)) => Box::pin(grep::run(&args, output)).await,
        Some(Verb::Find(args)) => Box::pin(find::run(&args, output)).await,
        Some(Verb::Replace(args)) => Box::pin(replace::run(&args, output)).await,
        Some(Verb::Undo(args)) => Box::pin(undo::run(&args, output)).await,
        Some(Verb::Changes(args)) => Box::pin(changes::run(args, output)).await,
        Some(Verb::Diff(args)) => Box::pin(isolated::diff(args, output)).await,
        Some(Verb::Apply(args)) => Box::pin(isolated::apply(args, output)).await,
        Some(Verb::Refresh(args)) => Box::pin(isolated::refresh(args, output)).await,
        Some(Verb::Discard(args)) => Box::pin(isolated::discard(args, output)).await,
        Some(Verb::Checkpoints(args)) => Box::pin(checkpoints::list(args, output)).await,
        Some(Verb::Restore(args)) => Box::pin(checkpoints::restore(args, output)).await,
        Some(Verb::Say(args)) => Box::pin(say::run(args, output)).await,
        Some(Verb::Rpc(args)) => Box::pin(rpc::run(*args, output)).await,
        Some(Verb::Follow(args)) => Box::pin(follow::run(args, output)).await,
        Some(Verb::History(args)) => history::run(args, output).await,
        Some(Verb::Export(args)) => export::run(args, output).await,
        Some(Verb::Fork(args)) => fork::run(args, output).await,
        Some(Verb::Sessions(args)) => sessions::run(&args, output).await,
        Some(Verb::Workspaces(args)) => workspaces::run(args, output).await,
        Some(Verb::New(args)) => new::run(args, output).await,
        Some(Verb::Activate(args)) => activate::run(args, output).await,
        Some(Verb::Delete(args)) => delete::run(args, output).await,
        Some(Verb::State(args)) => state::run(args, output).await,
        Some(Verb::Ps(args)) => Box::pin(ps::run(args, output)).await,
        Some(Verb::Top(_)) => Box::pin(top::run(output)).await,
        Some(Verb::Sandbox(args)) => sandbox::run(args, output).await,
        Some(Verb::Agents(args)) => agents::run(args, output).await,
        Some(Verb::Engines(args)) => engines::run(args, output).await,
        Some(Verb::Mcp(args)) => Box::pin(mcp::run(*args, output)).await,
        Some(Verb::Acp(args)) => Box::pin(acp::run(&args, output)).await,
        Some(Verb::Open(args)) => open::run(args, output).await,
        Some(Verb::Remote(args)) => remote::run(args, output).await,
        Some(Verb::Abort(args)) => abort::run(args, output).await,
        Some(Verb::Forward(args)) => forward::run(args, output).await,
        Some(Verb::Approvals(args)) => Box::pin(approvals::run(args, output)).await,
        Some(Verb::Allow(args)) => approvals::allow(args, output).await,
        Some(Verb::Deny(args)) => approvals::deny(args, output).await,
        Some(Verb::Pin(args)) => pin::run(args.which, true, output).await,
        Some(Verb::Unpin(args)) => pin::run(args.which, false, output).await,
        Some(Verb::Doctor(args)) => doctor::run(args, output).await,
        Some(Verb::Metrics(_)) => metrics::run(output).await,
        Some(Verb::Models(args)) => models::run(args, output).await,
        Some(Verb::Login(args)) => login::run(args, output).await,
        Some(Verb::Logout(args)) => login::logout(&args, output).await,
        Some(Verb::Log(args)) => Box::pin(log::run(args, output)).await,
        Some(Verb::Logs(args)) => logs::run(args, output).await,
        Some(Verb::Gc(args)) => gc::run(args, output).await,
        Some(Verb::Stop(args)) => stop::run(&args, output).await,
        Some(Verb::Restart(args)) => restart::run(&args, output).await,
        Some(Verb::Service(args)) => Box::pin(service::run(args, output)).await,
        Some(Verb::Uninstall(args)) => Box::pin(uninstall::run(&args, output)).await,
        Some(Verb::Version(_)) => version::run(output).await,
        Some(Verb::Config(args)) => config::run(&args, output),
        Some(Verb::Schema(args)) => schema::run(&args, output),
        Some(Verb::Completions(args)) => completions::run(&args, output),
        Some(Verb::Man(args)) => man::run(&args, output),
        // `main` dispatches these. They arrive here only if options precede the subcommand.
        Some(Verb::Daemon(_) | Verb::Worker | Verb::LoginEnvironment | Verb::PiWorker) => {
            Err(CliError::usage("the daemon's own processes take no options").into())
        }
    }
}

/// Runs a subcommand that the user types at the prompt of `quack [DIR]`.
fn run_typed(
    cli: Cli,
    output: CliOutput,
) -> Pin<Box<dyn Future<Output = anyhow::Result<ExitCode>>>> {
    Box::pin(run(cli.verb, cli.attach, output))
}
