//! The `quack` executable: supervisor, workers and command line in one file.
//!
//! The first argument selects the role: `quack daemon` is the supervisor, `quack worker` is the worker of one session.
//! Every other subcommand is a short-lived client of the daemon.

mod args;
mod complete;
mod connect;
mod directory;
mod display;
mod exit;
mod interrupts;
mod invisible_chars;
mod json;
mod output;
mod reference;
mod render;
mod run_program;
mod sanitize;
mod session_hint;
mod session_ref;
mod subcommands;
mod suggest;
mod time_format;
mod workspace_scope;

use crate::args::{Cli, OutputArgs, Verb};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::subcommands::daemon::UpstreamInvocation;
#[cfg(target_os = "linux")]
use quackd_session_worker::read_only::{self, GivesUp};

fn main() -> std::process::ExitCode {
    // A worker confines itself before anything else happens in its process. The supervisor starts hundreds of workers,
    // so they skip the setup of the other subcommands.
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
        return std::process::ExitCode::SUCCESS;
    }
    let mode = std::env::var_os("RUBBER_DUCK_DAEMON_MODE");
    if let Some(upstream) = UpstreamInvocation::of(std::env::args_os(), mode.as_deref()) {
        return upstream.run(CliOutput::new(OutputArgs::default())).into();
    }
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| {
        if error.use_stderr() && args::wants_json(std::env::args_os()) {
            CliOutput::refusal(&exit::usage_document(&error));
        }
        if error.use_stderr() && args::wants_raw(std::env::args_os()) {
            // A failed write to stderr cannot be reported.
            let _lost = error.print();
            std::process::exit(exit::raw::FAILED.into());
        }
        error.exit()
    });
    let output = CliOutput::new(cli.output);
    // The supervisor creates its own runtime and starts its workers from this thread. The streaming subcommands usually
    // end with an interrupt, so they print no JSON document about it.
    let is_stream = matches!(cli.verb, None | Some(Verb::Follow(_) | Verb::Top(_)));
    let ended = match cli.verb {
        Some(Verb::Daemon(args)) => subcommands::daemon::run(&args, output),
        verb => run_client(verb, &cli.attach, output),
    };
    let exit = ended.unwrap_or_else(|error| {
        if output.is_json() {
            CliOutput::refusal(&exit::document(&error));
        }
        output.failure(&exit::explain(&error));
        exit::of_error(&error)
    });
    if exit == ExitCode::Interrupted && output.is_json() && !is_stream {
        CliOutput::refusal(&exit::interrupted_document());
    }
    exit.into()
}

fn run_client(
    verb: Option<Verb>,
    attach: &args::AttachArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let hint = interrupt_hint(verb.as_ref());
        // These subcommands handle Ctrl-C themselves: they end with it or first abort a turn or call.
        let is_mine = !matches!(
            verb,
            None | Some(Verb::Tool(_) | Verb::Say(_) | Verb::Follow(_) | Verb::Top(_))
        );
        tokio::select! {
            // The subcommand is polled first, so it handles an interrupt before this function does.
            biased;
            ended = dispatch(verb, attach, output) => match ended {
                Ok(exit) => Ok(exit),
                Err(error) => Err(connect::explained(session_hint::explained(error).await).await),
            },
            interrupted = tokio::signal::ctrl_c(), if is_mine => {
                interrupted?;
                output.note(hint);
                Ok(ExitCode::Interrupted)
            }
        }
    });
    // An interrupted read from stdin still blocks on its own thread.
    runtime.shutdown_background();
    ended
}

async fn dispatch(
    verb: Option<Verb>,
    attach: &args::AttachArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    match verb {
        None => Box::pin(subcommands::attach::run(attach, output)).await,
        Some(Verb::Demo(args)) => Box::pin(subcommands::demo::run(&args, output)).await,
        Some(Verb::Tool(args)) => Box::pin(subcommands::tool::run(&args, output)).await,
        Some(Verb::Grep(args)) => Box::pin(subcommands::grep::run(&args, output)).await,
        Some(Verb::Find(args)) => Box::pin(subcommands::find::run(&args, output)).await,
        Some(Verb::Replace(args)) => Box::pin(subcommands::replace::run(&args, output)).await,
        Some(Verb::Undo(args)) => Box::pin(subcommands::undo::run(&args, output)).await,
        Some(Verb::Say(args)) => Box::pin(subcommands::say::run(args, output)).await,
        Some(Verb::Follow(args)) => Box::pin(subcommands::follow::run(args, output)).await,
        Some(Verb::Sessions(args)) => subcommands::sessions::run(&args, output).await,
        Some(Verb::Workspaces(args)) => subcommands::workspaces::run(args, output).await,
        Some(Verb::New(args)) => subcommands::new::run(args, output).await,
        Some(Verb::Activate(args)) => subcommands::activate::run(args, output).await,
        Some(Verb::Delete(args)) => subcommands::delete::run(args, output).await,
        Some(Verb::State(args)) => subcommands::state::run(args, output).await,
        Some(Verb::Ps(args)) => Box::pin(subcommands::ps::run(args, output)).await,
        Some(Verb::Top(_)) => Box::pin(subcommands::top::run(output)).await,
        Some(Verb::Sandbox(args)) => subcommands::sandbox::run(args, output).await,
        Some(Verb::Remote(args)) => subcommands::remote::run(args, output).await,
        Some(Verb::Abort(args)) => subcommands::abort::run(args, output).await,
        Some(Verb::Pin(args)) => subcommands::pin::run(args.session, true, output).await,
        Some(Verb::Unpin(args)) => subcommands::pin::run(args.session, false, output).await,
        Some(Verb::Doctor(args)) => subcommands::doctor::run(args, output).await,
        Some(Verb::Metrics(_)) => subcommands::metrics::run(output).await,
        Some(Verb::Logs(args)) => subcommands::logs::run(args, output).await,
        Some(Verb::Gc(args)) => subcommands::gc::run(args, output).await,
        Some(Verb::Stop(args)) => subcommands::stop::run(&args, output).await,
        Some(Verb::Restart(args)) => subcommands::restart::run(&args, output).await,
        Some(Verb::Service(args)) => Box::pin(subcommands::service::run(args, output)).await,
        Some(Verb::Uninstall(args)) => Box::pin(subcommands::uninstall::run(&args, output)).await,
        Some(Verb::Version(_)) => subcommands::version::run(output).await,
        Some(Verb::Config(args)) => subcommands::config::run(&args, output),
        Some(Verb::Schema(args)) => subcommands::schema::run(&args, output),
        Some(Verb::Completions(args)) => subcommands::completions::run(&args, output),
        Some(Verb::Man(args)) => subcommands::man::run(&args, output),
        // `main` dispatches these. They arrive here only if options precede the subcommand.
        Some(Verb::Daemon(_) | Verb::Worker | Verb::LoginEnvironment | Verb::PiWorker) => {
            Err(exit::CliError::usage("the daemon's own processes take no options").into())
        }
    }
}

/// Returns the note that is printed after Ctrl-C. A call belongs to its session, which other clients share, so an
/// interrupt does not end it.
fn interrupt_hint(verb: Option<&Verb>) -> &'static str {
    match verb {
        Some(Verb::Replace(_) | Verb::Undo(_)) => {
            "interrupted; the call runs on until its deadline, unless `quack abort --session REF` ends it"
        }
        _ => "interrupted",
    }
}
