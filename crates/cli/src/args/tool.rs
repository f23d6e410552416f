//! Arguments of `quack tool` and `quack demo`.

use super::SessionArgs;
use clap::Args;
use jiff::SignedDuration;
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MIN_TOOL_DEADLINE};
use std::path::PathBuf;
use std::time::Duration;

/// Demonstrate the supervisor on a real repository, in a few seconds
///
/// Searches and reads the repository, runs a command, kills the worker during another one and shows the recovery.
/// Changes none of your files and needs no key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack demo\n  quack demo ~/src/app\n  quack demo --json")]
pub(crate) struct DemoArgs {
    /// Directory [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

/// List the tools
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack tools\n  quack tools --json | jq -r .tools[].name\n  quack tool bash --help   the arguments of one tool"
)]
pub(crate) struct ToolsArgs {}

/// Run one tool in a session and print its result
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack tool bash 'git status'\n  quack tool read_file README.md\n  \
    quack tool grep_search '{\"pattern\":\"fn main\",\"include\":\"*.rs\"}'\n  \
    quack tool bash - --timeout 5m < script.sh\n  quack tool bash --raw 'git diff' > patch\n  \
    pg_dump old | quack tool bash 'psql new'\n  quack tool bash --detach 'npm run dev'\n\nOutput of a command is printed as it arrives. Ctrl-C ends the call; \
    a second Ctrl-C exits at once. A pipe or a file on stdin is the stdin of the command.\n\nExit codes: 0 the tool succeeded, 1 it failed, \
    4 it was refused as busy or its deadline passed, 130 it was interrupted.\nWith --raw: the command's own code, \
    128+N if signal N ended it, 124 if its deadline passed, 125 if quack failed and the command did not run or its \
    end is not known; then stderr ends with a line that begins with `error:`.\nWith --safe, bash runs git, grep, rg, find, ls, \
    cat, head, tail, wc, pytest, `npm test`, `swift test` and `xcodebuild test`, with ` | ` between them, and no \
    options that write or run another program. docs/tools.md has the options.\nWith --json, `exitCode` of the document is the code of the command; `quack` itself exits with 0 or 1."
)]
pub(crate) struct ToolArgs {
    /// Tool: bash, read_file, grep_search, …; `quack tools` lists them, `quack tool NAME --help` shows the arguments of one
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Main argument as a word, all arguments as a JSON object, or `-` for stdin
    #[arg(value_name = "WORD|JSON|-", allow_hyphen_values = true)]
    pub(crate) argument: Option<String>,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
    /// Allow only read-only tools and commands
    #[arg(long)]
    pub(crate) safe: bool,
    /// Start the command as a background job and exit; `job_kill` ends it early
    #[arg(long, conflicts_with = "raw")]
    pub(crate) detach: bool,
    /// Print exactly the command's stdout and stderr, and exit with its code
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Deadline, such as 500ms, 10s, 2m or 10 (seconds), at most 10m. Without it: tools.default_timeout_s if that is
    /// configured, none for commands at a terminal, otherwise 2m
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub(crate) timeout: Option<Duration>,
    /// Do not pass stdin to the command; it reads /dev/null
    #[arg(short = 'n', long)]
    pub(crate) no_stdin: bool,
    /// Do not ask at this terminal about operations that the sandbox denies
    #[arg(long)]
    pub(crate) no_ask: bool,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

/// Parses a deadline.
pub(super) fn deadline(text: &str) -> Result<Duration, String> {
    duration(text)
        .ok_or_else(|| "give a time such as 500ms, 10s, 2m or 10 (seconds)".to_owned())
        .and_then(|time| {
            if (MIN_TOOL_DEADLINE..=MAX_TOOL_DEADLINE).contains(&time) {
                Ok(time)
            } else {
                Err(format!("give a time from {MIN_TOOL_DEADLINE:?} to {MAX_TOOL_DEADLINE:?}"))
            }
        })
}

/// Parses a duration. A number without a unit is in seconds.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok())
}
