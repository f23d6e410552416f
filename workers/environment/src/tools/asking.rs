//! Runs one program of the user with the deadline, and reads one file. Used by the questions.

use nix::unistd::{AccessFlags, access};
use quackd_process::{Captured, Command, EndedBy, Exit, Held, LaunchError, Limits, Writable, run};
use quackd_protocol::environment::{TOOLS_DEADLINE, ToolsRequest};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum size of a configuration file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Variables that keep the tools from downloading anything while they are asked.
const OFFLINE: [(&str, &str); 6] = [
    ("CARGO_NET_OFFLINE", "true"),
    ("RUSTUP_AUTO_INSTALL", "0"),
    ("GOTOOLCHAIN", "local"),
    ("GOFLAGS", ""),
    ("GOTELEMETRY", "off"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
];

/// Reason why a source has no usable answer. Never contains the output of a tool, which may have credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("{0} is not in the PATH of commands")]
    NoProgram(String),
    #[error("{path} {held}", path = .path.display())]
    Untrusted { path: PathBuf, held: Held },
    #[error("{program} cannot be started: {source}")]
    Launch { program: String, source: LaunchError },
    #[error("`{0}` did not answer within {limit} s", limit = TOOLS_DEADLINE.as_secs())]
    Silent(String),
    #[error("`{call}` failed ({exit})")]
    Failed { call: String, exit: Exit },
    #[error("`{0}` printed more than can be read, or no text")]
    Unreadable(String),
    #[error("cannot read {path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Environment and limits of the questions of one request.
#[derive(Debug)]
pub(super) struct Asking {
    env: Vec<(String, String)>,
    untrusted: Writable,
    run_dir: PathBuf,
    until: Instant,
    abandon: CancellationToken,
    /// Number of started programs, for unique tags.
    n_started: Cell<u32>,
}

/// Streams of a program that has exited.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) exit: Exit,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Asking {
    pub(super) fn new(request: ToolsRequest, abandon: CancellationToken) -> Self {
        let mut env = request.env;
        let home = env.iter().find(|(name, _)| name == "HOME").map_or("/", |(_, home)| home);
        let untrusted = request.untrusted.iter().map(PathBuf::from);
        let untrusted = Writable::of_blocking(untrusted, Path::new(home));
        env.retain(|(name, _)| !OFFLINE.iter().any(|(fixed, _)| fixed == name));
        env.extend(OFFLINE.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let (run_dir, until) = (request.run_dir.into(), Instant::now() + TOOLS_DEADLINE);
        Self { env, untrusted, run_dir, until, abandon, n_started: Cell::new(0) }
    }

    /// Private directory for temporary files.
    pub(super) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Returns all variables of the tools' environment.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Value of a variable. `None` if it is empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables().find(|(known, value)| *known == name && !value.is_empty()).map(|(_, v)| v)
    }

    /// Directory in a variable, or this one in the home.
    pub(super) fn dir(&self, variable: &str, in_home: &str) -> PathBuf {
        match self.variable(variable).map(Path::new).filter(|path| path.is_absolute()) {
            Some(path) => path.to_owned(),
            None => self.in_home(in_home),
        }
    }

    /// Path in the user's home.
    pub(super) fn in_home(&self, path: &str) -> PathBuf {
        Path::new(self.variable("HOME").unwrap_or("/")).join(path)
    }

    /// Refuses a file that sessions could change.
    pub(super) fn check(&self, path: &Path) -> Result<(), Problem> {
        match self.untrusted.held_blocking(path) {
            Some(held) => Err(Problem::Untrusted { path: path.to_owned(), held }),
            None => Ok(()),
        }
    }

    /// Reads a file of at most 1 MiB. `None` if there is none.
    pub(super) fn read(&self, path: &Path) -> Result<Option<String>, Problem> {
        self.read_start(path, MAX_FILE + 1).and_then(|text| match text {
            Some(text) if MAX_FILE < text.len() as u64 => {
                Err(file_problem(path, io::ErrorKind::FileTooLarge.into()))
            }
            text => Ok(text),
        })
    }

    /// Reads the first `limit` bytes of a file, with invalid UTF-8 replaced. `None` if there is no file.
    pub(super) fn read_start(&self, path: &Path, limit: u64) -> Result<Option<String>, Problem> {
        self.check(path)?;
        let read = || -> io::Result<String> {
            // Opening a pipe would wait for a writer.
            if !path.metadata()?.is_file() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let mut bytes = Vec::new();
            File::open(path)?.take(limit).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };

        match read() {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_problem(path, error)),
        }
    }

    /// Runs a program successfully and returns its standard output.
    pub(super) async fn stdout(&self, program: &str, args: &[&str]) -> Result<String, Problem> {
        let output = self.output(program, args, &[]).await?;
        match output.exit {
            Exit::Code(0) => Ok(output.stdout),
            exit => Err(Problem::Failed { call: call(program, args), exit }),
        }
    }

    /// Runs a program of PATH in `/` until it exits, at most until the deadline. Kills what it leaves behind.
    pub(super) async fn output(
        &self,
        program: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Output, Problem> {
        let command = self.command(self.find(program)?, program, args, env);
        let finished = run(command).await.map_err(|source| match source {
            LaunchError::Aborted => Problem::Silent(call(program, args)),
            source => Problem::Launch { program: program.to_owned(), source },
        })?;

        if finished.ended_by != EndedBy::Itself {
            return Err(Problem::Silent(call(program, args)));
        }

        let text = |captured: Captured| {
            let whole = captured.is_whole().then(|| [captured.head, captured.tail].concat());
            let text = whole.and_then(|bytes| String::from_utf8(bytes).ok());
            text.ok_or_else(|| Problem::Unreadable(call(program, args)))
        };

        Ok(Output {
            exit: finished.exit,
            stdout: text(finished.stdout)?,
            stderr: text(finished.stderr)?,
        })
    }

    /// Finds a program in PATH.
    fn find(&self, program: &str) -> Result<PathBuf, Problem> {
        let path = self.variable("PATH").unwrap_or_default();
        let candidates = path.split(':').map(|dir| Path::new(dir).join(program));
        let is_program = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
        let located = candidates.into_iter().find(is_program);
        let located = located.ok_or_else(|| Problem::NoProgram(program.to_owned()))?;
        // rustup gives all of its programs one file, so a second name is no sign.
        match self.untrusted.way_blocking(&located) {
            Some(held) => Err(Problem::Untrusted { path: located, held }),
            None => Ok(located),
        }
    }

    fn command(
        &self,
        path: PathBuf,
        program: &str,
        args: &[&str],
        more: &[(&str, &str)],
    ) -> Command {
        let mut env = self.env.clone();
        // A variable of the call replaces that of the user.
        env.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));

        self.n_started.set(self.n_started.get() + 1);
        Command {
            program: path.into(),
            args: args.iter().map(Into::into).collect(),
            cwd: "/".into(),
            env,
            deadline: self.until.saturating_duration_since(Instant::now()),
            grace: GRACE,
            abort_grace: GRACE,
            leave: Duration::ZERO,
            cancel: self.abandon.clone(),
            tag: format!("tool-registries-{program}-{}", self.n_started.get()),
            spill: None,
            live: None,
            flow: None,
            input: None,
            terminal: None,
            limits: Limits::default(),
            group: None,
            spawn_thread: None,
        }
    }
}

fn file_problem(path: &Path, source: io::Error) -> Problem {
    Problem::File { path: path.to_owned(), source }
}

/// A command line for display. Long arguments, such as scripts, are left out.
pub(super) fn call(program: &str, args: &[&str]) -> String {
    let short = args.iter().filter(|arg| arg.len() < 40 && !arg.contains('/'));
    std::iter::once(program).chain(short.copied()).collect::<Vec<_>>().join(" ")
}
