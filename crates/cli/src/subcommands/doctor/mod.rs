//! `quack doctor`: checks the installation and suggests fixes. [`local`] checks the files without a daemon. The daemon
//! adds its own checks. [`tree`] prints the supervision tree.

mod local;
mod tree;

use crate::args::daemon::DoctorArgs;
use crate::connect::connect_only;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{CliOutput, DIM, GREEN, RED, YELLOW};
use crate::subcommands::stop::lock_holder::{self, LockHolder};
use quackd_client::ClientError;
use quackd_home::Home;
use quackd_protocol::client::{Check, CheckStatus, DoctorData, DoctorParams};
use quackd_protocol::plain::without_numbers;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

/// Display order of the checks. Unlisted checks come last.
const ORDER: [&str; 16] = [
    "daemon",
    "socket",
    "config",
    "log",
    "metadata",
    "state",
    "service",
    "sandbox",
    "processes",
    "environment",
    "providers",
    "model",
    "web_search",
    "sessions",
    "supervision",
    "remote",
];

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 400;

/// Separator before the entries of the `PATH` at the end of the daemon's message.
const PATH_SIGN: &str = "; they are ";

/// Runs the subcommand. Starts no daemon, because a missing daemon is a finding.
pub(crate) async fn run(args: DoctorArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if args.tree {
        return tree::run(output).await;
    }
    let mut checks = match Home::from_process_env_blocking() {
        Ok(home) => {
            let mut ours = local::look_blocking(&home, &|name| std::env::var(name).ok());
            ours.extend(crate::subcommands::service::check().await);
            merge(ours, ask(&home, args, output).await)
        }
        // Without a state directory no other check is possible.
        Err(error) => {
            let problem = format!("{:#}", anyhow::Error::new(error));
            vec![local::fail("state", problem, "without it no daemon can be found or started")]
        }
    };

    for check in &mut checks {
        check.message = without_numbers(&check.message);
    }

    let data = DoctorData { checks };
    output.show(&data, || render(&data.checks))?;
    let has_failed = data.checks.iter().any(|check| check.status == CheckStatus::Fail);
    Ok(if has_failed { ExitCode::Failed } else { ExitCode::Ok })
}

/// Returns the daemon's checks, or one check with the reason for their absence.
async fn ask(home: &Home, args: DoctorArgs, output: CliOutput) -> Vec<Check> {
    let daemon = match connect_only(output).await {
        Ok(daemon) => daemon,
        Err(error) => return vec![without_daemon(home, &error)],
    };
    let uptime = Duration::from_millis(daemon.daemon.uptime).as_secs();
    let running =
        local::ok("daemon", format!("Running (pid {}, uptime {uptime}s)", daemon.daemon.pid));

    let params = DoctorParams { refresh_environment: args.refresh_environment };
    match daemon.client.call(params).await {
        Ok(data) => merge(vec![running], data.checks),
        Err(error) => {
            let message = format!("{}, but gives no checks: {error}", running.message);
            vec![local::warn("daemon", message, "`quack logs` may say why")]
        }
    }
}

fn without_daemon(home: &Home, error: &anyhow::Error) -> Check {
    let remedy = || lock_holder::remedy_blocking(home);

    match error.downcast_ref() {
        Some(ClientError::NotRunning { .. }) if lock_holder::is_held_blocking(home) => {
            unheard(lock_holder::find_blocking(home), &home.socket().path)
        }
        Some(ClientError::NotRunning { .. }) => {
            let hint = "`quack logs` shows how the last one ended; `quack daemon` runs one here";
            local::warn("daemon", "Not running. Run `quack` to start.", hint)
        }
        Some(ClientError::Timeout { .. }) => {
            local::fail("daemon", format!("Does not answer: {error:#}"), remedy())
        }
        _ => {
            let hint =
                format!("`quack stop` stops a daemon of another version; if not, {}", remedy());
            local::fail("daemon", format!("Cannot be asked: {error:#}"), hint)
        }
    }
}

/// Returns the check for a daemon that holds its lock but does not listen on its socket.
fn unheard(holder: Option<LockHolder>, socket: &Path) -> Check {
    let process = match holder {
        Some(LockHolder { pid, .. }) => format!(" (pid {pid})"),
        None => String::new(),
    };
    let place = display::full_path(socket);
    let way_out = lock_holder::way_out(holder, socket);

    let (problem, first) = match socket.symlink_metadata() {
        Err(_) => ("does not exist", "it creates its socket again within 5 s"),
        Ok(status) if status.file_type().is_socket() => {
            ("has no listener", "it may be starting or stopping: try again in a few seconds")
        }
        Ok(_) => ("is something else", "move that away, and it creates its socket again"),
    };

    let message = format!("Runs{process}, but cannot be reached: {place} {problem}");
    local::fail(
        "daemon",
        message,
        format!("{first}; if not, {way_out}, and `quack` starts another"),
    )
}

/// Merges the checks in display order. A check of the daemon replaces the local one of the same name, except for a
/// local failure, which may be newer than the daemon's check.
fn merge(ours: Vec<Check>, theirs: Vec<Check>) -> Vec<Check> {
    let mut checks = ours;
    for check in theirs {
        match checks.iter_mut().find(|known| known.name == check.name) {
            Some(known) if known.status != CheckStatus::Fail => *known = check,
            Some(_) => {}
            None => checks.push(check),
        }
    }

    let place = |check: &Check| ORDER.iter().position(|name| *name == check.name);
    checks.sort_by_key(|check| place(check).unwrap_or(ORDER.len()));
    checks
}

fn render(checks: &[Check]) -> String {
    let name = |check: &Check| display::cut(shown_name(&check.name), 24);
    let width = checks.iter().map(|check| display::width(&name(check))).max().unwrap_or(0);

    let mut text = String::new();
    for check in checks {
        let (style, word) = match check.status {
            CheckStatus::Ok => (GREEN, "ok"),
            CheckStatus::Warn => (YELLOW, "warn"),
            CheckStatus::Fail => (RED, "fail"),
        };

        let (message, path) = parts(check);
        // On the wire, the choices that nothing sets have the name that the Rubber Duck daemon gives them.
        let message = message.replace("Pi default", "not set");
        let message = display::cut(&message, MAX_MESSAGE);
        text.push_str(&format!("{style}{word:<4}{style:#}  {:<width$}  {message}\n", name(check)));
        if let Some(path) = path {
            let path = display::cut(path, MAX_MESSAGE);
            text.push_str(&format!("{:width$}        {DIM}{path}{DIM:#}\n", ""));
        }

        let hint = check.hint.as_deref().filter(|_| check.status != CheckStatus::Ok);
        if let Some(hint) = hint {
            let hint = display::cut(hint, MAX_MESSAGE);
            text.push_str(&format!("{:width$}        {DIM}→ {hint}{DIM:#}\n", ""));
        }
    }

    let worst = checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Ok);
    text.push_str(match worst {
        CheckStatus::Ok => "\nAll checks passed.\n",
        CheckStatus::Warn => "\nReady with warnings.\n",
        CheckStatus::Fail => "\nSome checks failed.\n",
    });
    text
}

/// Returns the name of a check for the user. On the wire, those of the agent have the names of the Rubber Duck daemon.
fn shown_name(name: &str) -> &str {
    match name {
        "pi" => "agent",
        "pi_model" => "agent model",
        other => other,
    }
}

/// Splits the message from the `PATH`, which gets its own line.
fn parts(check: &Check) -> (&str, Option<&str>) {
    let cut = match check.name.as_str() {
        "environment" => check.message.split_once(PATH_SIGN),
        _ => None,
    };
    cut.map_or((&check.message, None), |(message, path)| (message, Some(path)))
}

#[cfg(test)]
mod tests {
    use super::local::{fail, ok, warn};
    use super::*;

    #[test]
    fn the_daemon_replaces_what_we_saw_and_adds_what_only_it_knows() {
        let ours = vec![
            ok("socket", "/s"),
            warn("metadata", "m", "h"),
            fail("config", "broken", "h"),
            ok("state", "/d"),
        ];
        let theirs = vec![
            ok("other", "o"),
            ok("sessions", "1 running"),
            ok("config", "/c"),
            ok("metadata", "mm"),
            ok("daemon", "Running"),
        ];
        let merged = merge(ours, theirs);
        let shown: Vec<_> = merged.iter().map(|c| (c.name.as_str(), c.message.as_str())).collect();
        let expected = [
            ("daemon", "Running"),
            ("socket", "/s"),
            ("config", "broken"),
            ("metadata", "mm"),
            ("state", "/d"),
            ("sessions", "1 running"),
            ("other", "o"),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_list_says_what_to_do_and_ends_with_the_verdict() {
        let mut checks = vec![ok("daemon", "Running"), warn("remote", "Disabled", "quack remote")];
        checks.push(ok("evil\u{1b}", "a\nb"));
        let plain = |checks: &[Check]| anstream::adapter::strip_str(&render(checks)).to_string();
        assert_eq!(
            plain(&checks),
            "ok    daemon  Running\nwarn  remote  Disabled\n              → quack remote\n\
             ok    evil\u{fffd}   a\u{fffd}b\n\nReady with warnings.\n"
        );
        assert!(plain(&checks[..1]).ends_with("\nAll checks passed.\n"));
        checks.push(fail("config", "broken", "fix it"));
        assert!(plain(&checks).ends_with("\nSome checks failed.\n"));
    }

    #[test]
    fn the_path_that_tools_see_has_a_line_of_its_own_which_is_cut() {
        let message = "of /bin/sh, now, PATH of 2 entries; they are /a:/b";
        let mut checks = vec![ok("environment", message), ok("log", "x; they are y")];
        let plain = |checks: &[Check]| anstream::adapter::strip_str(&render(checks)).to_string();
        assert_eq!(
            plain(&checks),
            "ok    environment  of /bin/sh, now, PATH of 2 entries\n                   /a:/b\n\
             ok    log          x; they are y\n\nAll checks passed.\n"
        );
        checks[0].message.push_str(&":/long".repeat(1000));
        let longest = plain(&checks).lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|n| n <= MAX_MESSAGE + 40), "{longest:?}");
    }

    #[test]
    fn a_daemon_that_lives_and_has_no_socket_is_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock");
        let holder = Some(LockHolder { pid: 77, is_stopped: false });
        let check = unheard(holder, &socket);
        assert_eq!(check.status, CheckStatus::Fail);
        assert!(check.message.starts_with("Runs (pid 77), but cannot be reached: "), "{check:?}");
        assert!(check.message.ends_with(" does not exist"), "{check:?}");
        assert!(check.hint.is_some_and(|hint| hint.contains("`kill 77` ends it")));
        std::fs::write(&socket, "").unwrap();
        let check = unheard(None, &socket);
        assert!(check.message.ends_with(" is something else"), "{check:?}");
        assert!(check.hint.is_some_and(|hint| hint.starts_with("move that away")));
    }
}
