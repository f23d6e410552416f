//! The `quack` executable: supervisor, worker and command line in one file on disk.
//!
//! Linking is not running: `quack daemon` is the supervisor and knows no tool, `quack worker` is one
//! session's worker and knows no client, every other verb is a short-lived client of the daemon.

mod age;
mod args;
mod complete;
mod connect;
mod directory;
mod display;
mod exit;
mod interrupts;
mod json;
mod near;
mod output;
mod place;
mod programs;
mod reference;
mod render;
mod unseen;
mod verbs;
mod which;

use crate::args::{Cli, OutputArgs, Verb};
use crate::exit::Exit;
use crate::output::Output;
use crate::verbs::daemon::Upstream;
#[cfg(target_os = "linux")]
use quackd_session_worker::read_only::{self, GivesUp};
use std::process::ExitCode;

fn main() -> ExitCode {
    // A worker confines itself before anything else happens in its process, and hundreds of them are
    // started: nothing that the other verbs need is set up for it.
    match std::env::args_os().nth(1).as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("worker") => return quackd_session_worker::main(),
        #[cfg(target_os = "linux")]
        Some("clean-repositories") => return quackd_session_worker::clean_repositories(),
        #[cfg(target_os = "linux")]
        Some("probe") => return quackd_session_worker::probe(),
        #[cfg(target_os = "linux")]
        Some("read-only") => {
            return read_only::main(GivesUp::Writing, std::env::args_os().skip(2));
        }
        #[cfg(target_os = "linux")]
        Some("limited") => {
            return read_only::main(GivesUp::Processes, std::env::args_os().skip(2));
        }
        Some("pi-worker") => return quackd_pi_worker::main(),
        Some("login-environment") => return quackd_environment_worker::main(),
        _ => {}
    }
    if complete::is_wanted() {
        complete::run();
        return ExitCode::SUCCESS;
    }
    let mode = std::env::var_os("RUBBER_DUCK_DAEMON_MODE");
    if let Some(upstream) = Upstream::of(std::env::args_os(), mode.as_deref()) {
        return upstream.run(Output::new(OutputArgs::default())).into();
    }
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| {
        if error.use_stderr() && args::wants_json(std::env::args_os()) {
            Output::refusal(&exit::usage_document(&error));
        }
        if error.use_stderr() && args::wants_raw(std::env::args_os()) {
            // Nothing can be done about a closed stderr.
            let _lost = error.print();
            std::process::exit(exit::raw::FAILED.into());
        }
        error.exit()
    });
    let output = Output::new(cli.output);
    // The supervisor brings its own runtime and starts its workers from this thread.
    // The usual way to end these verbs.
    let is_stream = matches!(cli.verb, None | Some(Verb::Follow(_) | Verb::Top(_)));
    let ended = match cli.verb {
        Some(Verb::Daemon(args)) => verbs::daemon::run(&args, output),
        verb => run_client(verb, &cli.attach, output),
    };
    let exit = ended.unwrap_or_else(|error| {
        if output.is_json() {
            Output::refusal(&exit::document(&error));
        }
        output.failure(&exit::explain(&error));
        exit::of_error(&error)
    });
    if exit == Exit::Interrupted && output.is_json() && !is_stream {
        Output::refusal(&exit::interrupted_document());
    }
    exit.into()
}

fn run_client(
    verb: Option<Verb>,
    attach: &args::AttachArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let hint = interrupt_hint(verb.as_ref());
        // For these an interrupt is a way to end, or they have a turn to end first.
        let is_mine = !matches!(
            verb,
            None | Some(Verb::Tool(_) | Verb::Say(_) | Verb::Follow(_) | Verb::Top(_))
        );
        tokio::select! {
            // A verb for which an interrupt is the way to end sees it first.
            biased;
            ended = dispatch(verb, attach, output) => match ended {
                Ok(exit) => Ok(exit),
                Err(error) => Err(connect::explained(near::explained(error).await).await),
            },
            interrupted = tokio::signal::ctrl_c(), if is_mine => {
                interrupted?;
                output.note(hint);
                Ok(Exit::Interrupted)
            }
        }
    });
    // A read from stdin that was interrupted is still waiting on a thread of its own.
    runtime.shutdown_background();
    ended
}

async fn dispatch(
    verb: Option<Verb>,
    attach: &args::AttachArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    match verb {
        None => Box::pin(verbs::attach::run(attach, output)).await,
        Some(Verb::Demo(args)) => Box::pin(verbs::demo::run(&args, output)).await,
        Some(Verb::Tool(args)) => Box::pin(verbs::tool::run(&args, output)).await,
        Some(Verb::Grep(args)) => Box::pin(verbs::grep::run(&args, output)).await,
        Some(Verb::Find(args)) => Box::pin(verbs::find::run(&args, output)).await,
        Some(Verb::Replace(args)) => Box::pin(verbs::replace::run(&args, output)).await,
        Some(Verb::Undo(args)) => Box::pin(verbs::undo::run(&args, output)).await,
        Some(Verb::Say(args)) => Box::pin(verbs::say::run(args, output)).await,
        Some(Verb::Follow(args)) => Box::pin(verbs::follow::run(args, output)).await,
        Some(Verb::Sessions(args)) => verbs::sessions::run(&args, output).await,
        Some(Verb::Workspaces(args)) => verbs::workspaces::run(args, output).await,
        Some(Verb::New(args)) => verbs::new::run(args, output).await,
        Some(Verb::Activate(args)) => verbs::activate::run(args, output).await,
        Some(Verb::Delete(args)) => verbs::delete::run(args, output).await,
        Some(Verb::State(args)) => verbs::state::run(args, output).await,
        Some(Verb::Ps(args)) => Box::pin(verbs::ps::run(args, output)).await,
        Some(Verb::Top(_)) => Box::pin(verbs::top::run(output)).await,
        Some(Verb::Sandbox(args)) => verbs::sandbox::run(args, output).await,
        Some(Verb::Remote(args)) => verbs::remote::run(args, output).await,
        Some(Verb::Abort(args)) => verbs::abort::run(args, output).await,
        Some(Verb::Pin(args)) => verbs::pin::run(args.session, true, output).await,
        Some(Verb::Unpin(args)) => verbs::pin::run(args.session, false, output).await,
        Some(Verb::Doctor(args)) => verbs::doctor::run(args, output).await,
        Some(Verb::Metrics(_)) => verbs::metrics::run(output).await,
        Some(Verb::Logs(args)) => verbs::logs::run(args, output).await,
        Some(Verb::Gc(args)) => verbs::gc::run(args, output).await,
        Some(Verb::Stop(args)) => verbs::stop::run(&args, output).await,
        Some(Verb::Restart(args)) => verbs::restart::run(&args, output).await,
        Some(Verb::Service(args)) => Box::pin(verbs::service::run(args, output)).await,
        Some(Verb::Uninstall(args)) => Box::pin(verbs::uninstall::run(&args, output)).await,
        Some(Verb::Version(_)) => verbs::version::run(output).await,
        Some(Verb::Config(args)) => verbs::config::run(&args, output),
        Some(Verb::Schema(args)) => verbs::schema::run(&args, output),
        Some(Verb::Completions(args)) => verbs::completions::run(&args, output),
        Some(Verb::Man(args)) => verbs::man::run(&args, output),
        // Dispatched in `main`; here only if options stand before the verb.
        Some(Verb::Daemon(_) | Verb::Worker | Verb::LoginEnvironment | Verb::PiWorker) => {
            Err(exit::Fault::usage("the daemon's own processes take no options").into())
        }
    }
}

/// What a person who pressed Ctrl-C has to know. A call belongs to its session, which others use too:
/// only they can say that it should end.
fn interrupt_hint(verb: Option<&Verb>) -> &'static str {
    match verb {
        Some(Verb::Replace(_) | Verb::Undo(_)) => {
            "interrupted; the call runs on until its deadline, unless `quack abort --session REF` ends it"
        }
        _ => "interrupted",
    }
}
