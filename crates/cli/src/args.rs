//! The command line as types. `main` parses it once and passes each subcommand its arguments.

pub(crate) mod acp;
pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod daemon;
mod display_options;
pub(crate) mod engines;
pub(crate) mod forward;
pub(crate) mod gc;
pub(crate) mod isolated;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod pin;
pub(crate) mod program;
pub(crate) mod remote;
mod root_help;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod say;
pub(crate) mod schema;
pub(crate) mod search;
pub(crate) mod service;
mod session_choice;
pub(crate) mod sessions;
pub(crate) mod terminals;
pub(crate) mod tool;
mod tool_help;
pub(crate) mod top;
pub(crate) mod undo;

pub(crate) use self::display_options::DisplayArgs;
pub(crate) use self::session_choice::{
    AnySessionArgs, NamedSessionArgs, REF, SessionArgs, reference,
};

use crate::display;
use crate::suggest::nearest;
use clap::error::ErrorKind;
use clap::{Args, ColorChoice, Command, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 busy or deadline, \
130 interrupted.";

/// Supervise coding-agent sessions, one worker process per session
#[derive(Debug, Parser)]
#[command(
    name = "quack",
    version = quackd_protocol::VERSION,
    override_usage = "quack [OPTIONS] [DIR]\n       quack [OPTIONS] <COMMAND>",
    override_help = root_help::text(),
    after_help = format!(
        "Examples:\n  quack                      attach the current repository and follow its session\n  \
         quack demo                 see what quackd does, in three seconds\n  \
         quack tool bash 'ls -la'   run one tool in a session\n  \
         quack ps                   show the processes and running calls\n\n{EXIT_CODES}"
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
    /// Parses a command line, which includes the program name.
    ///
    /// # Errors
    /// A usage error, or the text of help or version. clap prints all of them.
    pub(crate) fn read(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let line = rpc::rewritten(line.into_iter().map(Into::into).collect());
        let mistyped = || {
            let text = unknown_verb(first_word(&line)?)?;
            Some(Self::command().error(ErrorKind::InvalidSubcommand, text))
        };

        // clap knows no help of a single tool.
        if let Some(help) = tool_help::requested(&line) {
            return Err(help);
        }

        let cli = Self::try_parse_from(&line).map_err(|error| {
            if error.kind() == ErrorKind::InvalidSubcommand && is_denial(&line) {
                return Self::command().error(ErrorKind::InvalidSubcommand, NO_DENY);
            }
            if first_word(&line) == Some("run") {
                return run::with_tip(error);
            }

            // clap parses a mistyped subcommand as the directory and reports the next word instead. With `--help` it shows
            // the help of no subcommand.
            let may_be_mistyped = error.use_stderr() || error.kind() == ErrorKind::DisplayHelp;
            if may_be_mistyped { mistyped().unwrap_or(error) } else { error }
        })?;

        if cli.verb.is_some()
            && cli.attach.dir.is_some()
            && let Some(error) = mistyped()
        {
            return Err(error);
        }

        // With clap's own check, `--json` would be rejected before the subcommand.
        if cli.verb.is_some() && cli.attach.is_given() {
            let text = "put the options and the directory of a subcommand after it";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, text));
        }
        Ok(cli)
    }
}

/// Text for `quack sandbox deny`, which other programs have.
const NO_DENY: &str = "there is no `quack sandbox deny`. To deny a host: quack sandbox allow '!HOST'. To take back a host or \
grant: quack sandbox revoke HOST. To take back a directory: quack sandbox set --not-writable DIR. To answer an open \
question: quack deny TARGET. `quack sandbox denials` lists the denied operations";

/// Whether a command line asks `quack sandbox` to deny something.
fn is_denial(line: &[OsString]) -> bool {
    let mut words = line.iter().skip(1).filter_map(|word| word.to_str());
    words.any(|word| word == "sandbox")
        && words.find(|word| !word.starts_with('-')).is_some_and(|verb| {
            ["deny", "block", "disallow", "forbid", "reject", "remove", "unallow"].contains(&verb)
        })
}

/// Returns the first word after the options: a subcommand or a directory.
fn first_word(line: &[OsString]) -> Option<&str> {
    let mut words = line.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    loop {
        match words.next()? {
            "--color" => drop(words.next()),
            option if option.starts_with('-') => {}
            word => return Some(word),
        }
    }
}

/// Returns the error text for a word that is neither a subcommand nor a directory. `None` for a path or a subcommand.
pub(crate) fn unknown_verb(word: &str) -> Option<String> {
    let all = Cli::command();
    let is_verb = all.find_subcommand(word).is_some() || word == "help";
    if is_verb || word.is_empty() || word.contains('/') || Path::new(word).exists() {
        return None;
    }
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set());

    let near = nearest(word, verbs.map(Command::get_name));
    let verb = match (word, quackd_protocol::tools::find(word)) {
        (_, Some(tool)) => Some(format!("tool {}", tool.name)),
        ("list" | "ls", None) => Some("sessions".to_owned()),
        ("exec", None) => Some("tool bash".to_owned()),
        ("sh" | "shell" | "terminal", None) => Some("run".to_owned()),
        ("read", None) => Some("tool read_file".to_owned()),
        ("status", None) => Some("ps".to_owned()),
        (_, None) => near.first().map(|verb| (*verb).to_owned()),
    };

    let meant = verb.map(|verb| format!("did you mean `quack {verb}`? "));
    Some(format!(
        "`{}` is neither a subcommand nor a directory; {}`quack --help` lists the subcommands",
        display::name(word),
        meant.unwrap_or_default()
    ))
}

/// Whether an invalid command line requests JSON.
pub(crate) fn wants_json(line: impl IntoIterator<Item = OsString>) -> bool {
    line.into_iter().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Whether an invalid command line is one of `quack tool --raw`, which exits with the command's codes.
pub(crate) fn wants_raw(line: impl IntoIterator<Item = OsString>) -> bool {
    let mut words = line.into_iter().take_while(|word| word != "--");
    words.any(|word| word == "tool") && words.any(|word| word == "--raw")
}

/// Options of every subcommand.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON only: one document, or one line per event
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Set when to use colors; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(run::RunArgs),
    Attach(terminals::TermAttachArgs),
    Detach(terminals::DetachArgs),
    Play(terminals::PlayArgs),
    Demo(tool::DemoArgs),
    Tool(tool::ToolArgs),
    Tools(tool::ToolsArgs),
    Jobs(jobs::JobsArgs),
    Grep(Box<search::GrepArgs>),
    Find(Box<search::FindArgs>),
    Replace(Box<search::ReplaceArgs>),
    Undo(undo::UndoArgs),
    Changes(undo::ChangesArgs),
    Diff(isolated::DiffArgs),
    Apply(isolated::ApplyArgs),
    Refresh(isolated::RefreshArgs),
    Discard(isolated::DiscardArgs),
    Checkpoints(isolated::CheckpointsArgs),
    Restore(isolated::RestoreArgs),
    Say(say::SayArgs),
    Rpc(Box<rpc::RpcArgs>),
    Follow(sessions::FollowArgs),
    History(sessions::HistoryArgs),
    Export(sessions::ExportArgs),
    Fork(sessions::ForkArgs),
    Sessions(sessions::SessionsArgs),
    Workspaces(sessions::WorkspacesArgs),
    New(sessions::NewArgs),
    Activate(sessions::ActivateArgs),
    Delete(sessions::DeleteArgs),
    State(sessions::StateArgs),
    Ps(daemon::PsArgs),
    Top(top::TopArgs),
    Metrics(top::MetricsArgs),
    Models(models::ModelsArgs),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Sandbox(sandbox::SandboxArgs),
    Forward(forward::ForwardArgs),
    Approvals(approvals::ApprovalsArgs),
    Allow(approvals::AllowArgs),
    Deny(approvals::DenyArgs),
    Agents(agents::AgentsArgs),
    Engines(engines::EnginesArgs),
    Mcp(Box<mcp::McpArgs>),
    Acp(acp::AcpArgs),
    Open(remote::OpenArgs),
    Remote(remote::RemoteArgs),
    Abort(sessions::AbortArgs),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
    Doctor(daemon::DoctorArgs),
    Log(log::LogArgs),
    Logs(logs::LogsArgs),
    Gc(gc::GcArgs),
    Daemon(daemon::DaemonArgs),
    Stop(daemon::StopArgs),
    Restart(service::RestartArgs),
    Service(service::ServiceArgs),
    Uninstall(service::UninstallArgs),
    Config(program::ConfigArgs),
    Schema(schema::SchemaArgs),
    Completions(program::CompletionsArgs),
    Man(program::ManArgs),
    Version(program::VersionArgs),
    /// Run one session's worker; started by the supervisor
    #[command(hide = true)]
    Worker,
    /// Ask the user's login shell for its environment; started by the supervisor
    #[command(hide = true)]
    LoginEnvironment,
    /// Serve one session's Pi; started by the supervisor
    #[command(hide = true)]
    PiWorker,
}

/// Attach to a directory's repository, activate its session and follow it
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Directory [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Show the session and exit
    #[arg(long)]
    pub(crate) no_follow: bool,
    #[command(flatten)]
    pub(crate) look: DisplayArgs,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

impl AttachArgs {
    fn is_given(&self) -> bool {
        let look = self.look;
        self.dir.is_some() || self.no_follow || self.force || look.show_thinking || look.verbose
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::read(std::iter::once("quack").chain(line.split_whitespace()))
    }

    fn tool(line: &str) -> tool::ToolArgs {
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
    fn every_public_verb_has_examples_that_can_be_read() {
        fn look(name: &str, command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{name}"));
            let own = examples.lines().take_while(|line| line.starts_with("  "));
            // `quack service restart` is `quack restart`.
            let word = command.get_name();
            assert!(own.clone().any(|line| line.contains(word)), "{name}: {help}");
            assert!(command.get_about().is_some(), "{name} says nothing of itself");
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                look(&format!("{name} {}", verb.get_name()), verb);
            }
        }
        look("quack", &Cli::command());
    }

    #[test]
    fn help_is_a_verb_too() {
        for line in ["help", "help say", "--help", "say --help", "config help show"] {
            let shown = parse(line).unwrap_err();
            assert_eq!((shown.kind(), shown.exit_code()), (ErrorKind::DisplayHelp, 0), "{line}");
            assert!(shown.to_string().contains("Usage: quack"), "{shown}");
        }
        assert_eq!(parse("help nothing").unwrap_err().exit_code(), 2);
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
        assert_eq!(parse("ps --color never").unwrap().output.color, ColorChoice::Never);
    }

    #[test]
    fn a_tool_takes_a_word_json_or_stdin() {
        assert_eq!(tool("tool bash ls").argument.as_deref(), Some("ls"));
        assert_eq!(tool("tool bash -").argument.as_deref(), Some("-"));
        assert_eq!(tool("tool grep_search -x").argument.as_deref(), Some("-x"));
        assert_eq!(tool("tool bash").argument, None);
        let all = tool("tool bash ls -C /src --safe --timeout 2m --force");
        assert_eq!(all.which.dir, Some(PathBuf::from("/src")));
        assert!(all.safe && all.force);
        assert_eq!(all.timeout, Some(Duration::from_secs(120)));
    }

    #[test]
    fn a_session_may_begin_with_a_hyphen() {
        for line in ["tool bash ls --session -Vx", "state --session -Vx --json", "activate -Vx"] {
            assert!(parse(line).is_ok(), "{line}");
        }
        match parse("delete --yes -Vx").unwrap().verb {
            Some(Verb::Delete(args)) => {
                assert!(args.yes && args.which.into_which().session.as_deref() == Some("-Vx"));
            }
            other => panic!("not a deletion: {other:?}"),
        }
    }

    #[test]
    fn an_empty_reference_is_refused_wherever_a_session_is_named() {
        fn look(command: &clap::Command, path: &str, seen: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                // `quack allow --session` is a scope.
                let is_session = argument.get_action().takes_values()
                    && (["session", "reference"].contains(&id)
                        || argument.get_long() == Some("session"));
                let name = argument.get_value_names().and_then(|names| names.first());
                assert_eq!(is_session, name.is_some_and(|name| name == REF), "{path} {id}");
                if is_session {
                    for empty in ["", " \t"] {
                        let option = argument.get_long().map(|long| format!("--{long}"));
                        let option = option.as_deref();
                        let words = path.split_whitespace().chain(option).chain([empty]);
                        let error = Cli::read(words).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::ValueValidation, "{path}: {error}");
                    }
                    seen.push(path.clone());
                }
            }
            command.get_subcommands().for_each(|verb| look(verb, &path, seen));
        }
        let mut seen = Vec::new();
        look(&Cli::command(), "", &mut seen);
        assert_eq!(seen.len(), 64, "{seen:?}");
    }

    #[test]
    fn what_contradicts_itself_is_a_usage_error() {
        for (line, kind) in [
            ("tool", ErrorKind::MissingRequiredArgument),
            ("tool bash ls -la", ErrorKind::UnknownArgument),
            ("tool bash ls --session s -C .", ErrorKind::ArgumentConflict),
            ("tool bash ls --timeout ten", ErrorKind::ValueValidation),
            ("tool bash ls --timeout 1000", ErrorKind::ValueValidation),
            ("tool bash ls --timeout nan", ErrorKind::ValueValidation),
            ("tool bash ls --timeout 1ms", ErrorKind::ValueValidation),
            ("tool bash ls --timeout 1h", ErrorKind::ValueValidation),
            ("tool bash ls --timeout=-5s", ErrorKind::ValueValidation),
            ("ps --color sometimes", ErrorKind::InvalidValue),
            ("ps extra", ErrorKind::UnknownArgument),
            ("src ps", ErrorKind::ArgumentConflict),
            ("tol bash ls", ErrorKind::InvalidSubcommand),
            ("--json sesions --all", ErrorKind::InvalidSubcommand),
            ("dir ps", ErrorKind::InvalidSubcommand),
            ("--force ps", ErrorKind::ArgumentConflict),
            ("--no-follow ps", ErrorKind::ArgumentConflict),
            ("--verbose follow", ErrorKind::ArgumentConflict),
            ("follow --session s -C .", ErrorKind::ArgumentConflict),
            ("follow --since -1", ErrorKind::ValueValidation),
            ("follow api --session api", ErrorKind::ArgumentConflict),
            ("delete api --session api", ErrorKind::ArgumentConflict),
            ("new --send /w", ErrorKind::MissingRequiredArgument),
            ("new --on ssh:a /w --isolated", ErrorKind::ArgumentConflict),
            ("run --on ssh:a --in api", ErrorKind::ArgumentConflict),
            ("delete", ErrorKind::MissingRequiredArgument),
            ("logs -n many", ErrorKind::ValueValidation),
            ("run claude", ErrorKind::UnknownArgument),
            ("play", ErrorKind::MissingRequiredArgument),
            ("sandbox allow", ErrorKind::MissingRequiredArgument),
            ("sandbox allow --credential github.com", ErrorKind::ValueValidation),
            ("allow --credential pull", ErrorKind::ValueValidation),
            ("play x --speed 0", ErrorKind::ValueValidation),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{line}");
        }
    }
}
