//! Runs git in this confined process, without settings of the user, hooks and background work.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

/// Maximum size of an output, in bytes.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;

/// Maximum size of an error text, in bytes.
const MAX_ERROR: u64 = 4 * 1024;

/// Settings of every call. Those of the repository itself count too, so the caller's confinement must allow for them.
const SETTINGS: &[&str] = &[
    "core.commitGraph=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
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
        // Settings may name files below the home: there are none.
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/nonexistent")])
        .envs([("GIT_NO_REPLACE_OBJECTS", "1"), ("GIT_GRAFT_FILE", "/dev/null")])
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

/// Runs a call to its end and returns its output, which is bounded.
///
/// # Errors
/// That of the start, or the first cause that git printed.
pub(crate) fn output(command: Command, input: &[u8]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    run(command, &mut io::Cursor::new(input), &mut text, MAX_OUTPUT)?;
    Ok(text)
}

/// As [`output`], from one file to another. With more than `max_output` bytes git ends with an error.
pub(crate) fn run(
    command: Command,
    input: &mut (impl Read + Send),
    output: &mut impl Write,
    max_output: u64,
) -> io::Result<()> {
    // Git that does not read it says why.
    let feed = |stdin: &mut ChildStdin| io::copy(input, stdin).map(drop).or(Ok(()));
    run_fed(command, feed, output, max_output)
}

/// As [`run`], with an input that is written by `feed`. Its error ends git and comes first, unless git closed its input.
pub(crate) fn run_fed<E: From<io::Error> + Send>(
    mut command: Command,
    feed: impl FnOnce(&mut ChildStdin) -> Result<(), E> + Send,
    output: &mut impl Write,
    max_output: u64,
) -> Result<(), E> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());

    let (errors, written, fed) = std::thread::scope(|scope| {
        // Git may print while it still reads.
        let errors = scope.spawn(move || stderr.map(first_bytes).unwrap_or_default());
        let fed = scope.spawn(move || stdin.map_or(Ok(()), |mut stdin| feed(&mut stdin)));
        let written = stdout.map_or(Ok(0), |stdout| io::copy(&mut stdout.take(max_output), output));
        let fed = fed.join().unwrap_or_else(|_| Err(io::Error::other("no input").into()));
        (errors.join().unwrap_or_default(), written, fed)
    });

    // With more output git ends, because the pipe has no reader.
    let status = child.wait()?;
    written?;
    fed?;
    if status.success() {
        return Ok(());
    }

    let errors = String::from_utf8_lossy(&errors);
    let cause = errors.lines().find_map(|line| line.strip_prefix("fatal: "));
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    let cause = cause.or(last).unwrap_or("no reason given");
    Err(io::Error::other(format!("git failed: {cause}")).into())
}

/// Reads everything and keeps the beginning.
fn first_bytes(mut errors: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    errors.by_ref().take(MAX_ERROR).read_to_end(&mut text).ok();
    io::copy(&mut errors, &mut io::sink()).ok();
    text
}
