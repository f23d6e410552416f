//! The `quack` executable: supervisor, workers and command line in one file.
//!
//! The first argument selects the role: `quack daemon` is the supervisor, `quack worker` is the worker of one session.
//! Every other subcommand is a short-lived client of the daemon.

mod agents;
mod args;
mod complete;
mod connect;
mod connector;
mod directory;
mod display;
mod exit;
mod interrupts;
mod json;
mod keyboard;
mod output;
mod piped_stdin;
mod platform;
mod reference;
mod render;
mod run_program;
mod sanitize;
mod screen_signals;
mod session_file;
mod session_hint;
mod session_ref;
mod shell_keys;
mod subcommands;
mod suggest;
mod terminal;
mod terminal_guard;
mod time_format;
mod tool_output;
mod user_file;
mod workspace_scope;

use crate::args::{Cli, OutputArgs, Verb};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::subcommands::daemon::UpstreamInvocation;

fn main() -> std::process::ExitCode {
    // A worker confines itself before anything else happens in its process. The supervisor starts hundreds of workers,
    // so they skip the setup of the other subcommands.
    match std::env::args_os().nth(1).as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("worker") if std::env::args_os().nth(2).is_some_and(|word| word == "--stdio") => {
            return quackd_link_worker::far_main();
        }
        Some("worker") => return quackd_session_worker::main(),
        Some("link") => return quackd_link_worker::main(),
        Some("far-errand") => return quackd_link_worker::errand_main(),
        Some("proxy") => return quackd_network_worker::main(),
        Some("pi-worker") => return quackd_pi_worker::main(),
        Some("agent-worker") => return quackd_agent_worker::main(),
        Some("login-environment") => return quackd_environment_worker::main("quack-login-env"),
        Some("isolate" | "record-states") => return quackd_isolate_worker::main(),
        Some("credentials") => return quackd_credentials_worker::main(),
        Some("credential-git") => return quackd_credentials_worker::become_git(),
        Some("tool-registries") => return quackd_environment_worker::main("quack-tools"),
        Some(terminal_guard::ROLE) => return terminal_guard::main(),
        Some(other) => {
            let of_environment = || quackd_environment_worker::run_role(other);
            if let Some(exit) = quackd_session_worker::run_role(other).or_else(of_environment) {
                return exit;
            }
        }
        None => {}
    }

    // The scripts of the shells set a variable.
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
            error.print().ok();
            std::process::exit(exit::raw::FAILED.into());
        }
        if !error.use_stderr() {
            std::process::exit(help(&error).code().into());
        }
        error.exit()
    });

    let output = CliOutput::new(cli.output);
    // The streaming subcommands usually end with an interrupt, so they print no JSON document about it.
    let is_stream = matches!(cli.verb, None | Some(Verb::Follow(_) | Verb::Top(_)));
    // Their code 1 means that nothing was found.
    let is_search = matches!(cli.verb, Some(Verb::Grep(_) | Verb::Find(_)));

    // The supervisor creates its own runtime and starts its workers from this thread.
    let ended = match cli.verb {
        Some(Verb::Daemon(args)) => subcommands::daemon::run(&args, output),
        verb => run_client(verb, cli.attach, output),
    };

    let exit = match ended {
        Ok(ExitCode::Interrupted) if output.is_json() && !is_stream => {
            CliOutput::refusal(&exit::interrupted_document());
            ExitCode::Interrupted
        }
        Ok(exit) => exit,
        Err(error) => failed(&error, is_search, output),
    };
    exit.into()
}

/// Reports an error. Returns the exit code.
fn failed(error: &anyhow::Error, is_search: bool, output: CliOutput) -> ExitCode {
    let exit = match exit::of_error(error) {
        ExitCode::Failed if is_search => ExitCode::Usage,
        exit => exit,
    };
    if output.is_json() {
        CliOutput::refusal(&exit::document(error, exit));
    }
    output.failure(&exit::explain(error));
    exit
}

/// Prints help or the version. Returns the exit code.
fn help(text: &clap::Error) -> ExitCode {
    match output::unless_closed(text.print()) {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            CliOutput::new(OutputArgs::default()).failure(&error.to_string());
            ExitCode::Failed
        }
    }
}

fn run_client(
    verb: Option<Verb>,
    attach: args::AttachArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;

    let ended = runtime.block_on(async {
        let hint = interrupt_hint(verb.as_ref());
        // These subcommands handle Ctrl-C themselves: they end with it or first abort a turn or call.
        let ends_on_interrupt = !matches!(
            verb,
            None | Some(Verb::Tool(_) | Verb::Say(_) | Verb::Follow(_) | Verb::Top(_))
        );

        tokio::select! {
            // The subcommand is polled first, so it handles an interrupt before this function does.
            biased;
            ended = subcommands::run(verb, attach, output) => match ended {
                Ok(exit) => Ok(exit),
                Err(error) => Err(session_hint::explained(error).await),
            },
            interrupted = tokio::signal::ctrl_c(), if ends_on_interrupt => {
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
