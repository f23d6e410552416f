//! The `quack` executable: supervisor, worker and command line in one file on disk.
//!
//! Linking is not running: `quack daemon` is the supervisor and knows no tool, `quack worker` is one
//! session's worker and knows no client, every other verb is a short-lived client of the daemon.

mod age;
mod args;
mod connect;
mod directory;
mod display;
mod exit;
mod output;
mod verbs;

use crate::args::{Cli, Verb};
use crate::exit::Exit;
use crate::output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A worker confines itself before anything else happens in its process, and hundreds of them are
    // started: nothing that the other verbs need is set up for it.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "worker") {
        return quackd_session_worker::main();
    }
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let output = Output::new(cli.output);
    // The supervisor brings its own runtime and starts its workers from this thread.
    let ended = match cli.verb {
        Some(Verb::Daemon(args)) => verbs::daemon::run(&args, output),
        verb => run_client(verb, &cli.attach, output),
    };
    let exit = ended.unwrap_or_else(|error| {
        output.failure(&exit::explain(&error));
        exit::of_error(&error)
    });
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
        tokio::select! {
            ended = dispatch(verb, attach, output) => ended,
            interrupted = tokio::signal::ctrl_c() => {
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
        None => verbs::attach::run(attach, output).await,
        Some(Verb::Demo(args)) => Box::pin(verbs::demo::run(&args, output)).await,
        Some(Verb::Tool(args)) => verbs::tool::run(&args, output).await,
        Some(Verb::Sessions(args)) => verbs::sessions::run(&args, output).await,
        Some(Verb::Ps(_)) => verbs::ps::run(output).await,
        Some(Verb::Abort(args)) => verbs::abort::run(args, output).await,
        Some(Verb::Stop(_)) => verbs::stop::run(output).await,
        Some(Verb::Version(_)) => verbs::version::run(output).await,
        // Dispatched in `main`; here only if options stand before the verb.
        Some(Verb::Daemon(_) | Verb::Worker) => {
            Err(exit::Fault::usage("`quack worker` takes no options").into())
        }
    }
}

/// What a person who pressed Ctrl-C has to know. A call belongs to its session, which others use too:
/// only they can say that it should end.
fn interrupt_hint(verb: Option<&Verb>) -> &'static str {
    match verb {
        Some(Verb::Tool(_)) => {
            "interrupted; the call runs on until its deadline, unless `quack abort --session REF` ends it"
        }
        _ => "interrupted",
    }
}
