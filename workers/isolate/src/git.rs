//! Runs git in this confined process, without settings of the user, hooks and background work.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Maximum size of an output, in bytes.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;

/// Maximum size of an error text, in bytes.
const MAX_ERROR: u64 = 4 * 1024;

/// Settings of every call. Those of the repository itself count too, so the caller's confinement must allow for them.
const SETTINGS: &[&str] = &[
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "fetch.fsckObjects=true",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",
];

/// Prepares a call in `directory`.
#[expect(
    clippy::disallowed_methods,
    reason = "this process is confined, has one task, and ends with its monitor"
)]
pub(crate) fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1")])
        .arg("-C")
        .arg(directory);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command.args(words);
    command
}

/// Runs a call to its end with `input`, which is at most some hundred KiB, and returns its output.
///
/// # Errors
/// That of the start, or the first cause that git printed.
pub(crate) fn output(mut command: Command, input: &[u8]) -> io::Result<Vec<u8>> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // Git may print errors before it has read everything.
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(stderr) = stderr {
            stderr.take(MAX_ERROR).read_to_end(&mut text).ok();
        }
        text
    });
    if let Some(mut stdin) = stdin {
        // Git that does not read it says why.
        stdin.write_all(input).ok();
    }
    let mut text = Vec::new();
    if let Some(stdout) = stdout {
        stdout.take(MAX_OUTPUT).read_to_end(&mut text)?;
    }
    // With more output git ends, because the pipe has no reader.
    let status = child.wait()?;
    if status.success() {
        return Ok(text);
    }
    let errors = errors.join().unwrap_or_default();
    let errors = String::from_utf8_lossy(&errors);
    let cause = errors.lines().find_map(|line| line.strip_prefix("fatal: "));
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    let cause = cause.or(last).unwrap_or("no reason given");
    Err(io::Error::other(format!("git failed: {cause}")))
}
