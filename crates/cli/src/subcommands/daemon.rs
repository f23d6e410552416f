//! `quack daemon`: runs the supervisor. Started by the user, a service manager or another subcommand. Programs for the
//! Rubber Duck daemon may also start it in that daemon's ways ([`UpstreamInvocation`]).

use crate::args::daemon::DaemonArgs;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::subcommands::stop::lock_holder::pid_blocking;
use quackd_home::Home;
use quackd_service::exit;
use quackd_supervisor::{DaemonOptions, Ended};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Name of the program or link that acts as the Rubber Duck daemon.
const UPSTREAM_NAME: &str = "duck-daemon";

/// Runs the daemon until it exits. Blocks the main thread.
pub(crate) fn run(args: &DaemonArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let &DaemonArgs { background, verbose, service } = args;
    let options = DaemonOptions { background, verbose, service, as_rubber_duck: false };

    match quackd_supervisor::run(options) {
        Ok(Ended::Stopped) => {}
        // Without a service manager, the requester of the restart starts the next daemon.
        Ok(Ended::Restarting) if service.is_some() => return Ok(ExitCode::OfDaemon(exit::RESTART)),
        Ok(Ended::Restarting) => {}
        Ok(Ended::AlreadyRunning) if output.is_json() => {
            output.document(&json!({"alreadyRunning": true}))?;
        }
        Ok(Ended::AlreadyRunning) => output.text("already running\n")?,
        Err(error) => {
            let is_terminal = error.is_terminal();
            let error = anyhow::Error::new(error);
            output.failure(&format!("{error:#}"));
            return Ok(match service {
                Some(manager) if is_terminal => ExitCode::OfDaemon(exit::terminal(manager)),
                Some(_) => ExitCode::OfDaemon(exit::FAILED),
                None => ExitCode::Unreachable,
            });
        }
    }
    Ok(ExitCode::Ok)
}

/// Command line that starts the Rubber Duck daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpstreamInvocation {
    verbose: bool,
}

impl UpstreamInvocation {
    /// Recognizes command lines of the Rubber Duck programs: the program name ends in `duck-daemon`, the first argument
    /// is `--daemon`, or `RUBBER_DUCK_DAEMON_MODE` is 1. `quack daemon` itself is not one of them.
    pub(crate) fn of(
        mut line: impl Iterator<Item = OsString>,
        mode: Option<&OsStr>,
    ) -> Option<Self> {
        let program = line.next().unwrap_or_default();
        let rest: Vec<OsString> = line.collect();
        let first = rest.first();

        let is_named = |path: &OsString| {
            let name = Path::new(path).file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.ends_with(UPSTREAM_NAME))
        };
        let is_own_command = first.is_some_and(|word| word == "daemon");
        let is_upstream = is_named(&program)
            || first.is_some_and(|word| word == "--daemon")
            || mode.is_some_and(|mode| mode == "1") && !is_own_command;

        let verbose = rest.iter().any(|word| word == "--verbose");
        is_upstream.then_some(Self { verbose })
    }

    /// Runs the daemon until it exits, with the texts and exit codes of the Rubber Duck daemon. An already running
    /// daemon is reported only with --verbose and is not a failure. A failed start exits with 1. Uses the state
    /// directory of those programs, which on Linux may differ from the default.
    pub(crate) fn run(self, output: CliOutput) -> ExitCode {
        let options = DaemonOptions {
            background: false,
            verbose: self.verbose,
            service: None,
            as_rubber_duck: true,
        };

        match quackd_supervisor::run(options) {
            Ok(Ended::Stopped | Ended::Restarting) => {}
            Ok(Ended::AlreadyRunning) => {
                if self.verbose {
                    output.to_stderr(&format!("Daemon already running{}\n", of_pid()));
                }
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                output.to_stderr(&format!("Daemon failed to start: {error:#}\n"));
                return ExitCode::Failed;
            }
        }
        ExitCode::Ok
    }
}

/// Returns ` (pid N)` from the pid file that every daemon writes, or nothing.
fn of_pid() -> String {
    let home = Home::of_rubber_duck_blocking().ok();
    let pid = home.and_then(|home| pid_blocking(&home));
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_of_the_rubber_duck_project_is_started_in_its_own_ways() {
        let silent = Some(UpstreamInvocation { verbose: false });
        let verbose = Some(UpstreamInvocation { verbose: true });
        for (line, mode, expected) in [
            ("duck-daemon", None, silent),
            ("/opt/x/duck-daemon --verbose", None, verbose),
            ("rubber-duck-daemon --anything else --verbose", None, verbose),
            ("quack --daemon", None, silent),
            ("quack --daemon --verbose", None, verbose),
            ("quack", Some("1"), silent),
            ("quack ps --verbose", Some("1"), verbose),
            ("quack daemon --background", Some("1"), None),
            ("quack", Some("0"), None),
            ("quack", None, None),
            ("quack ps --daemon", None, None),
            ("/duck-daemon/quack ps", None, None),
        ] {
            let words = line.split(' ').map(OsString::from);
            assert_eq!(
                UpstreamInvocation::of(words, mode.map(OsStr::new)),
                expected,
                "{line} {mode:?}"
            );
        }
    }
}
