//! The command line as types. Read once by `main`; the verbs get their own part of it.

pub(crate) mod gc;
pub(crate) mod logs;
pub(crate) mod pin;
pub(crate) mod remote;
pub(crate) mod sandbox;
pub(crate) mod say;
pub(crate) mod schema;
pub(crate) mod search;
pub(crate) mod service;
pub(crate) mod top;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MIN_TOOL_DEADLINE};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 busy or deadline, \
130 interrupted.";

/// Supervises coding-agent sessions: one worker process per session.
#[derive(Debug, Parser)]
#[command(
    name = "quack",
    version = quackd_protocol::VERSION,
    disable_help_subcommand = true,
    override_usage = "quack [OPTIONS] [DIR]\n       quack [OPTIONS] <COMMAND>",
    after_help = format!(
        "Examples:\n  quack                      attach the repository you are in, and follow it\n  \
         quack demo                 see what it does, in three seconds\n  \
         quack tool bash 'ls -la'   run one tool in a session\n  \
         quack ps                   what is running\n\n{EXIT_CODES}"
    )
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) attach: AttachArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

impl Cli {
    /// Reads a command line, program name included.
    ///
    /// # Errors
    /// A usage error, or help or version as text: clap prints all of them.
    pub(crate) fn read(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(line)?;
        // clap could see to this itself, but then `--json` would have to stand after the verb.
        if cli.verb.is_some() && cli.attach.is_given() {
            let text = "options and directories of a verb stand after the verb";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, text));
        }
        Ok(cli)
    }
}

/// What every verb takes.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON and nothing else: one document, or a line for each event
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// The values of `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Demo(DemoArgs),
    Tool(ToolArgs),
    Grep(Box<search::GrepArgs>),
    Find(Box<search::FindArgs>),
    Replace(Box<search::ReplaceArgs>),
    Undo(search::UndoArgs),
    Say(say::SayArgs),
    Follow(FollowArgs),
    Sessions(SessionsArgs),
    Workspaces(WorkspacesArgs),
    New(NewArgs),
    Activate(ActivateArgs),
    Delete(DeleteArgs),
    State(StateArgs),
    Ps(PsArgs),
    Top(top::TopArgs),
    Metrics(top::MetricsArgs),
    Sandbox(sandbox::SandboxArgs),
    Remote(remote::RemoteArgs),
    Abort(AbortArgs),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
    Doctor(DoctorArgs),
    Logs(logs::LogsArgs),
    Gc(gc::GcArgs),
    Daemon(DaemonArgs),
    Stop(StopArgs),
    Restart(service::RestartArgs),
    Service(service::ServiceArgs),
    Uninstall(service::UninstallArgs),
    Config(ConfigArgs),
    Schema(schema::SchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Version(VersionArgs),
    /// Runs one session's worker; the supervisor starts it.
    #[command(hide = true)]
    Worker,
    /// Asks the user's login shell for its environment; the supervisor starts it.
    #[command(hide = true)]
    LoginEnvironment,
    /// Serves one session's Pi. Not for people: the supervisor starts it.
    #[command(hide = true)]
    PiWorker,
}

/// Attaches to a directory's repository, makes its session the active one and follows it.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Directory; the current one if absent
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Show the session and end
    #[arg(long)]
    pub(crate) no_follow: bool,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// Allow `/` and the home directory
    #[arg(long)]
    pub(crate) force: bool,
}

impl AttachArgs {
    fn is_given(&self) -> bool {
        let look = self.look;
        self.dir.is_some() || self.no_follow || self.force || look.show_thinking || look.verbose
    }
}

/// What the verbs that follow a session show of it.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LookArgs {
    /// Show what the model thinks
    #[arg(long)]
    pub(crate) show_thinking: bool,
    /// Show events that only matter when looking for a mistake
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Which session a verb means.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// Session, by id or name
    #[arg(long, value_name = "REF", allow_hyphen_values = true, conflicts_with = "dir")]
    pub(crate) session: Option<String>,
    /// Use the session of this directory's repository; the current one if absent
    #[arg(short = 'C', long = "dir", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Shows in a few seconds what the supervisor does, on a real repository.
///
/// Searches and reads it, runs a command, kills the worker in the middle of another one and shows
/// what happens then. Changes no file of yours and needs no key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack demo\n  quack demo ~/src/app\n  quack demo --json")]
pub(crate) struct DemoArgs {
    /// Directory; the current one if absent
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Allow `/` and the home directory
    #[arg(long)]
    pub(crate) force: bool,
}

/// Runs one tool in a session and prints its answer.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack tool bash 'git status'\n  quack tool read_file README.md\n  \
    quack tool grep_search '{\"pattern\":\"fn main\",\"include\":\"*.rs\"}'\n  \
    quack tool bash - --timeout 2m < script.sh\n\nExit codes: 0 the tool succeeded, 1 it failed, \
    4 it was refused as busy or its deadline passed.\nA command's own exit code is in --json."
)]
pub(crate) struct ToolArgs {
    /// Tool: bash, read_file, grep_search, …
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A word (the tool's main argument), a JSON object, or `-` to read either from stdin
    #[arg(value_name = "WORD|JSON|-", allow_hyphen_values = true)]
    pub(crate) argument: Option<String>,
    /// Session, by id or name
    #[arg(long, value_name = "REF", allow_hyphen_values = true, conflicts_with = "dir")]
    pub(crate) session: Option<String>,
    /// Use the session of this directory's repository; the current one if absent
    #[arg(short = 'C', long = "dir", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Only allow what changes nothing
    #[arg(long)]
    pub(crate) safe: bool,
    /// Deadline, such as 500ms, 10s or 2m; 30 s if absent
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub(crate) timeout: Option<Duration>,
    /// Allow `/` and the home directory
    #[arg(long)]
    pub(crate) force: bool,
}

/// Shows what happens in a session until Ctrl-C, which ends it with exit code 0.
///
/// Survives a restart of the daemon of up to 5 s. With --json every event is one line, as the daemon
/// sends it: {"event","sessionId","data","seq"}.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack follow\n  quack follow --session duck-2 --show-thinking\n  \
    quack follow -C ~/src/app --since 0\n  quack follow --json | jq .data"
)]
pub(crate) struct FollowArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Begin after this event, as far as it is still kept; with what is new if absent
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// Allow `/` and the home directory
    #[arg(long)]
    pub(crate) force: bool,
}

/// Lists the directories that have sessions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack workspaces\n  quack workspaces --json")]
pub(crate) struct WorkspacesArgs {}

/// Makes one more session for a directory's repository.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack new\n  quack new ~/src/app --name review --safe\n  \
    quack new --activate --json")]
pub(crate) struct NewArgs {
    /// Directory; the current one if absent
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Its name; `duck-` and a number if absent
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Make it the active session
    #[arg(long)]
    pub(crate) activate: bool,
    /// Only allow what changes nothing
    #[arg(long)]
    pub(crate) safe: bool,
    /// Allow `/` and the home directory
    #[arg(long)]
    pub(crate) force: bool,
}

/// Makes a session the active one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack activate duck-2\n  quack activate duck-2 --json")]
pub(crate) struct ActivateArgs {
    /// Session, by id or name
    #[arg(value_name = "REF", allow_hyphen_values = true)]
    pub(crate) session: String,
}

/// Deletes a session: the daemon forgets it, your files stay.
///
/// Asks first. Where nobody can be asked, --yes is needed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack delete duck-2\n  quack delete duck-2 --yes --json\n  \
    quack delete duck-2 --force     also if calls are running")]
pub(crate) struct DeleteArgs {
    /// Session, by id or name
    #[arg(value_name = "REF", allow_hyphen_values = true)]
    pub(crate) session: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// End its running calls; do not ask
    #[arg(long)]
    pub(crate) force: bool,
}

/// Shows one session and its worker process.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack state\n  quack state --session duck-2\n  quack state -C ~/src/app --json"
)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

/// Looks everything over and says what to do about it.
///
/// Works without a daemon. Exit code 1 if a check failed; a warning is no failure.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack doctor\n  quack doctor --refresh-environment\n  quack doctor --tree\n  quack doctor --json"
)]
pub(crate) struct DoctorArgs {
    /// Have the daemon ask your login shell for its environment again
    #[arg(long)]
    pub(crate) refresh_environment: bool,
    /// Show every kind of process and thread of the daemon, what it is promised and how it is
    #[arg(long, conflicts_with = "refresh_environment")]
    pub(crate) tree: bool,
}

/// Lists the sessions of the active workspace.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sessions\n  quack sessions --all --json")]
pub(crate) struct SessionsArgs {
    /// The sessions of every workspace
    #[arg(long)]
    pub(crate) all: bool,
}

/// Shows the supervisor, its worker processes and the calls in flight.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack ps\n  quack ps --json\n  quack ps --watch\n  \
    quack ps --watch=10 --json | jq '.workers | length'")]
pub(crate) struct PsArgs {
    /// Again and again, every 2 s or so many, until Ctrl-C (exit code 0); with --json a line for each look
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub(crate) watch: Option<u64>,
}

/// Ends every call in flight of a session.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack abort\n  quack abort --session duck-1")]
pub(crate) struct AbortArgs {
    /// Session, by id or name; the active one if absent
    #[arg(long, value_name = "REF", allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
}

/// Runs the supervisor in the foreground; TERM drains it and ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack daemon\n  quack daemon --verbose")]
pub(crate) struct DaemonArgs {
    /// Copy the log to stderr; QUACKD_LOG=debug says more
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Detach from the terminal; used when a verb starts the daemon
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    /// The service manager that starts it: systemd or launchd; used in their files
    #[arg(long, hide = true, value_name = "MANAGER")]
    pub(crate) service: Option<quackd_service::Manager>,
}

/// Stops the supervisor: running calls get a moment, then every worker ends.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack stop\n  quack stop --json")]
pub(crate) struct StopArgs {}

/// Prints the version of this program and of the daemon that is running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack version\n  quack version --json")]
pub(crate) struct VersionArgs {}

/// Shows the configuration and where it comes from.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config show --origin\n  quack config show --json\n  \
    $EDITOR \"$(quack config path)\"")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

/// What `quack config` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    Show(ConfigShowArgs),
    Path(ConfigPathArgs),
}

/// Prints every key with its value, as a file that says the same.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config show\n  quack config show --origin")]
pub(crate) struct ConfigShowArgs {
    /// Say of each value where it comes from
    #[arg(long)]
    pub(crate) origin: bool,
}

/// Prints the path of the configuration file, whether there is one or not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config path\n  quack config path --json")]
pub(crate) struct ConfigPathArgs {}

/// Prints a script that makes a shell complete verbs and options.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack completions bash > ~/.local/share/bash-completion/completions/quack\n  \
    quack completions zsh > \"${fpath[1]}/_quack\"\n  \
    quack completions fish > ~/.config/fish/completions/quack.fish"
)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// The shells of `quack completions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
}

/// Prints the manual page, or writes the pages of all verbs into a directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack man | man -l -\n  quack man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for the pages; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

fn deadline(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text
        .parse()
        .map_err(|_e| "give a number with a unit, such as 500ms, 10s or 2m".to_owned())?;
    Duration::try_from(signed)
        .ok()
        .filter(|time| (MIN_TOOL_DEADLINE..=MAX_TOOL_DEADLINE).contains(time))
        .ok_or_else(|| format!("give a time from {MIN_TOOL_DEADLINE:?} to {MAX_TOOL_DEADLINE:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::read(std::iter::once("quack").chain(line.split_whitespace()))
    }

    fn tool(line: &str) -> ToolArgs {
        match parse(line).unwrap().verb {
            Some(Verb::Tool(tool)) => tool,
            other => panic!("not a tool: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_public_verb_has_examples() {
        for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{}", verb.get_name());
        }
    }

    #[test]
    fn a_word_that_is_no_verb_is_a_directory() {
        let cli = parse("src/app --force").unwrap();
        assert!(cli.verb.is_none());
        assert_eq!((cli.attach.dir, cli.attach.force), (Some(PathBuf::from("src/app")), true));
        assert!(parse("").unwrap().attach.dir.is_none());
    }

    #[test]
    fn attaching_follows_unless_it_should_not() {
        let cli = parse("src --no-follow --show-thinking").unwrap();
        assert!(cli.attach.no_follow && cli.attach.look.show_thinking && !cli.attach.look.verbose);
        assert!(!parse("").unwrap().attach.no_follow);
    }

    #[test]
    fn output_flags_stand_before_and_after_the_verb() {
        for line in ["--json ps", "ps --json", "--color=always ps --json"] {
            let cli = parse(line).unwrap();
            assert!(cli.output.json && matches!(cli.verb, Some(Verb::Ps(_))), "{line}");
        }
        assert!(parse("--json").unwrap().output.json);
        assert_eq!(parse("ps --color never").unwrap().output.color, Color::Never);
    }

    #[test]
    fn a_tool_takes_a_word_json_or_stdin() {
        assert_eq!(tool("tool bash ls").argument.as_deref(), Some("ls"));
        assert_eq!(tool("tool bash -").argument.as_deref(), Some("-"));
        assert_eq!(tool("tool grep_search -x").argument.as_deref(), Some("-x"));
        assert_eq!(tool("tool bash").argument, None);
        let all = tool("tool bash ls -C /src --safe --timeout 2m --force");
        assert_eq!(all.dir, Some(PathBuf::from("/src")));
        assert!(all.safe && all.force);
        assert_eq!(all.timeout, Some(Duration::from_secs(120)));
    }

    #[test]
    fn a_session_may_begin_with_a_hyphen() {
        for line in ["tool bash ls --session -Vx", "state --session -Vx --json", "activate -Vx"] {
            assert!(parse(line).is_ok(), "{line}");
        }
        match parse("delete --yes -Vx").unwrap().verb {
            Some(Verb::Delete(args)) => assert!(args.yes && args.session == "-Vx"),
            other => panic!("not a deletion: {other:?}"),
        }
    }

    #[test]
    fn what_contradicts_itself_is_a_usage_error() {
        for (line, kind) in [
            ("tool", ErrorKind::MissingRequiredArgument),
            ("tool bash ls -la", ErrorKind::UnknownArgument),
            ("tool bash ls --session s -C .", ErrorKind::ArgumentConflict),
            ("tool bash ls --timeout 10", ErrorKind::ValueValidation),
            ("tool bash ls --timeout 1ms", ErrorKind::ValueValidation),
            ("tool bash ls --timeout 1h", ErrorKind::ValueValidation),
            ("tool bash ls --timeout=-5s", ErrorKind::ValueValidation),
            ("ps --color sometimes", ErrorKind::InvalidValue),
            ("ps extra", ErrorKind::UnknownArgument),
            ("dir ps", ErrorKind::ArgumentConflict),
            ("--force ps", ErrorKind::ArgumentConflict),
            ("--no-follow ps", ErrorKind::ArgumentConflict),
            ("--verbose follow", ErrorKind::ArgumentConflict),
            ("follow --session s -C .", ErrorKind::ArgumentConflict),
            ("follow --since -1", ErrorKind::UnknownArgument),
            ("delete", ErrorKind::MissingRequiredArgument),
            ("logs -n many", ErrorKind::ValueValidation),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{line}");
        }
    }
}
