//! Checks before a restart whether the next daemon can read its configuration. Called by `quack.restart`.
//!
//! The program at the daemon's path does the check. After an upgrade this is another program, which may know other
//! keys. It reads the configuration file of this daemon, in the environment of this daemon.

use crate::daemon_info::ConfigFile;
use crate::errors::chain;
use crate::errors::start::StartError;
use crate::health::executable::Executable;
use crate::obeyed::{held_config_blocking, record_blocking};
use crate::workspaces::user_home;
use quackd_config::Config;
use quackd_home::Home;
use quackd_process::{Exit, spawn_other_blocking};
use quackd_protocol::client::ExecutableState;
use quackd_protocol::foreign_text::message_line;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Subcommand with which every version of the program reads its configuration and starts nothing.
const CHECK: [&str; 2] = ["config", "show"];

/// Timeout of the check. It usually takes a few milliseconds.
const CHECK_LIMIT: Duration = Duration::from_secs(3);

/// Poll interval for the exit of the process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum length of another program's text, in characters.
const MAX_SHOWN: usize = 1024;

/// Checks the configuration for the next daemon.
///
/// # Errors
/// The reason why the next daemon would not start, as one line.
pub(crate) fn check_blocking(home: &Home, executable: &Executable) -> Result<(), String> {
    if executable.check_blocking().state != ExecutableState::Replaced {
        // The same program, so the check can run in this process.
        return check_config_blocking(home).map_err(|error| chain(&error));
    }

    // Once more, because a sweep of strays may have killed the first process.
    ask_blocking(executable).or_else(|_no_answer| ask_blocking(executable))?
}

/// Asks the other program to check the configuration. The outer error means that it did not answer.
fn ask_blocking(executable: &Executable) -> Result<Result<(), String>, String> {
    let path = executable.path();
    let failed = |why: &dyn ToString| format!("cannot run {}: {}", path.display(), why.to_string());
    let mut child = spawn_other_blocking(path, &CHECK).map_err(|error| failed(&chain(&error)))?;

    let until = Instant::now() + CHECK_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(Exit::Code(0))) => return Ok(Ok(())),
            Ok(Some(Exit::Code(_))) => return Ok(Err(one_line(&child.stderr_so_far()))),
            // A signal: the program did not answer.
            Ok(Some(exit)) => return Err(failed(&exit)),
            Err(error) => return Err(failed(&error)),
            Ok(None) if until <= Instant::now() => {
                // The next sweep reaps the process.
                child.kill().ok();
                return Err(failed(&format!("no answer after {} s", CHECK_LIMIT.as_secs())));
            }
            Ok(None) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a blocking function, which runs on a separate thread"
                )]
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

/// Checks whether a daemon with this home and the environment of this process accepts its configuration.
///
/// # Errors
/// The error that the start of that daemon would return.
pub fn check_config_blocking(home: &Home) -> Result<(), StartError> {
    read_config(home).map(drop)
}

/// Reads the configuration with the variables of this process. If commands of sessions could change the file, its keys
/// that allow more are not in force.
///
/// # Errors
/// The configuration is not valid, which prevents the start of the daemon.
pub fn read_config(home: &Home) -> Result<(Config, ConfigFile), StartError> {
    // A value that is not UTF-8 matches no valid value, so it is reported as wrong.
    let variable =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let (path, is_named) = quackd_config::locate(home.config_blocking(), &variable)?;

    // Before reading the file, so that a change in between is detected later.
    let modified = path.metadata().and_then(|file| file.modified()).ok();
    let mut config = quackd_config::load_blocking(&path, is_named, &variable)?;

    let named = config.sandbox.writable.value.iter().map(PathBuf::from).collect();
    let held = held_config_blocking(home, &path, named);
    let record = held.as_ref().map(|held| record_blocking(&path, held));
    if held.is_some() {
        // Read again, without the keys that allow more.
        config = quackd_config::load_untrusted_blocking(&path, is_named, &variable)?;
    }

    check_policy(home, &config)?;

    let in_state = home.config_in_state();
    let unread = (!is_named && path != in_state && in_state.exists()).then_some(in_state);
    Ok((config, ConfigFile { path, modified, held, record, is_default: !is_named, unread }))
}

/// Checks a file before it becomes the configuration, as the next daemon would. Ignores the variables of this process.
///
/// # Errors
/// The reason why a daemon would not start with it.
pub fn check_new_config_blocking(home: &Home, path: &Path) -> Result<(), StartError> {
    let variable = |_: &str| None;
    check_policy(home, &quackd_config::load_blocking(path, true, &variable)?)
}

fn check_policy(home: &Home, config: &Config) -> Result<(), StartError> {
    let policy = quackd_policy::resolve([config.sandbox.patch()]);
    quackd_policy::validate(&policy, &user_home(), home.dir()).map_err(|reason| {
        // Reading the file has already checked the other values.
        let origin = config.sandbox.writable.origin.clone();
        StartError::Policy { origin, reason }
    })
}

/// Returns the error message of another `quack`, without its prefix.
fn one_line(stderr: &str) -> String {
    // The prefix that `quack` writes before an error.
    let text = stderr.trim().trim_start_matches("error: ");
    let text = if text.is_empty() { "the configuration is not accepted" } else { text };
    message_line(text, MAX_SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_another_program_is_one_line_without_its_prefix() {
        assert_eq!(one_line("error: /a/quackd.toml:3: x\n  y\u{1b}\n"), "/a/quackd.toml:3: x   y ");
        assert_eq!(one_line("\n"), "the configuration is not accepted");
        assert_eq!(one_line(&"x".repeat(5000)).len(), MAX_SHOWN);
    }
}
