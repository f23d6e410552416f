//! The two units of `systemd --user`. Made by the command line; what each line is for stands beside it.
//!
//! What is not there is left out on purpose:
//! - `NoNewPrivileges` and everything that brings it along in a user's manager (`RestrictRealtime`,
//!   `LockPersonality`, `SystemCallArchitectures`, filters of system calls): a profile of AppArmor that
//!   allows namespaces could not be entered any more, and `sudo` of a session with `full-access` would fail.
//!   Workers confine themselves further than any unit could.
//! - `RestrictNamespaces`, `PrivateUsers`, `Protect…`, `MemoryDenyWriteExecute`: workers make namespaces,
//!   mount a `/proc` of their own, and run programs that compile at run time.
//! - `UMask`: commands would inherit it, and what they make in a workspace would be readable to nobody else.
//!   The daemon gives every file of its own its mode.
//! - `DelegateSubgroup`: the daemon moves itself into a leaf (`quackd-process`, control groups), and what it
//!   was given is marked as delegated; a subgroup that systemd makes is not.

use crate::description::{
    OPEN_FILES, RESTART_PAUSE, START_BURST, START_TIMEOUT, START_WINDOW, STOP_TIMEOUT, WATCHDOG,
};
use crate::place::SOCKET_UNIT;
use crate::{Manager, SOCKET_NAME, Service, exit, file};

/// The text of the unit that makes the socket.
#[must_use]
pub fn socket_unit(service: &Service) -> String {
    format!(
        "\
{mark}
[Unit]
Description=Socket of quackd, the supervisor of coding-agent sessions

[Socket]
ListenStream={socket}
SocketMode=0600
DirectoryMode=0700
FileDescriptorName={SOCKET_NAME}
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
",
        mark = file::unit_mark(),
        socket = specifiers(&service.socket),
    )
}

/// The text of the unit that runs the daemon.
#[must_use]
pub fn service_unit(service: &Service) -> String {
    let [program, rest @ ..] = service.arguments(Manager::Systemd);
    // Variables are not looked for in the first word.
    let command: Vec<String> =
        std::iter::once(plain_or_quoted(program)).chain(rest.map(word)).collect();
    let environment: String = service
        .environment
        .iter()
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    format!(
        "\
{mark}
[Unit]
Description=quackd, the supervisor of coding-agent sessions
# The socket is always there, and clients that come while the daemon restarts wait in it.
Requires={SOCKET_UNIT}
After={SOCKET_UNIT}
StartLimitIntervalSec={window}
StartLimitBurst={START_BURST}

[Service]
# The daemon says when it serves, how it is, and that it is alive.
Type=notify
NotifyAccess=main
ExecStart={command}
{environment}# Keys that the daemon needs, one NAME=value a line; `-`: it need not be there.
EnvironmentFile=-{variables}
TimeoutStartSec={start}
# A daemon that hangs is killed at once: its monitors end what it had started.
WatchdogSec={watchdog}
WatchdogSignal=SIGKILL
# After a crash, a kill, a hang; and if it asks for it, after an upgrade.
Restart=on-failure
RestartSec={pause}
RestartForceExitStatus={restart}
SuccessExitStatus={restart}
# Another daemon serves already; or only a person can change what is wrong.
RestartPreventExitStatus={stopped} {terminal}
# TERM is for the daemon alone, which lets calls finish; what is left after that is killed.
KillMode=mixed
TimeoutStopSec={stop}
# One command that runs out of memory is not the end of all others.
OOMPolicy=continue
# Commands get control groups of their own.
Delegate=yes
LimitNOFILE={OPEN_FILES}
LimitCORE=0

[Install]
WantedBy=default.target
",
        mark = file::unit_mark(),
        command = command.join(" "),
        variables = pattern(&format!("{}/{}", service.state_dir, file::VARIABLES)),
        window = START_WINDOW.as_secs(),
        start = START_TIMEOUT.as_secs(),
        watchdog = WATCHDOG.as_secs(),
        pause = RESTART_PAUSE.as_secs(),
        stop = STOP_TIMEOUT.as_secs(),
        restart = exit::RESTART,
        stopped = exit::STOPPED,
        terminal = exit::TERMINAL,
    )
}

/// `%` begins a specifier.
fn specifiers(value: &str) -> String {
    value.replace('%', "%%")
}

/// Where a pattern of glob(7) is read, without quotes: a path in which nothing stands for anything else.
fn pattern(path: &str) -> String {
    let mut literal = String::with_capacity(path.len());
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            literal.push('\\');
        }
        literal.push(c);
    }
    specifiers(&literal)
}

/// In quotes, whatever it is; control characters were refused before.
fn quoted(value: &str) -> String {
    let escaped = specifiers(value).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// A word of a command line, where `$` stands for a variable as well.
fn word(value: &str) -> String {
    plain_or_quoted(&value.replace('$', "$$"))
}

fn plain_or_quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@".contains(c);
    if value.chars().all(is_plain) { value.to_owned() } else { quoted(value) }
}

#[cfg(test)]
mod tests;
