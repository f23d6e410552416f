//! Parameters of bash and of its background jobs.

use super::arguments::arguments;
use super::forms::{Checked, Digits, JobReference, MayBeEmpty};
use super::row::{Action, Kind, Offer, Parameter, READS, Tool, WRITES, flag, text, whole};
use crate::limits::{MAX_JOB_TIME, MAX_TOOL_DEADLINE, MIN_TOOL_DEADLINE};
use std::time::Duration;

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] =
    &[BASH, JOBS, JOB_OUTPUT, JOB_KILL, TERM_READ, TERM_WRITE, REQUEST_PERMISSION];

/// Parameter of [`BASH`] that an agent gets only with [`TERM_READ`]: without it, a program on a terminal is of no use.
pub const TTY: &str = "tty";

const fn ms(time: Duration) -> u64 {
    time.as_secs() * 1000 + time.subsec_millis() as u64
}

arguments! {
    /// Arguments of `bash`.
    BashArguments of BASH {
        command: Option<String> = text("The command line.").also(&["cmd"]).required(),
        timeout_ms: Option<u64> = whole(
            ms(MIN_TOOL_DEADLINE),
            ms(MAX_JOB_TIME),
            "Timeout in milliseconds: at most 600000, in the background 86400000.",
        ),
        background: bool = flag("Start the command as a background job and answer at once.").or("false"),
        tty: bool = flag(
            "Start it as a background job on a terminal, for an interactive program: term_read shows the screen, \
             term_write types.",
        )
        .or("false"),
    }
}

/// Runs a command.
pub const BASH: Tool = Tool {
    name: "bash",
    about: "Run a shell command in the workspace, without a terminal. Returns its output and exit code. Each call \
            is a new shell, so write `cd dir && command`. Use read_file, search and find instead of cat, grep and find. \
            Processes that still run at the end are killed: start servers and long builds with background. Example: \
            {\"command\":\"make test\",\"timeout_ms\":300000}.",
    brief: Some(("Run a shell command in a new shell.", &["command", "timeout_ms"])),
    main: Some("command"),
    action: Action::Execute,
    returns_data: true,
    is_answer_recorded: true,
    offer: Offer::Work,
    parameters: BashArguments::PARAMETERS,
    ..WRITES
};

const _: () = assert!(ms(MAX_TOOL_DEADLINE) == 600_000 && ms(MAX_JOB_TIME) == 86_400_000);

const JOB: Parameter = Parameter::new(Kind::TextOrWhole, "The job: job-1, or 1.")
    .also(&["job_id", "jobId", "id"])
    .required();

arguments! {
    /// Arguments of `request_permission`.
    RequestPermissionArguments {
        kind: MayBeEmpty = Parameter::new(Kind::Choice(&["network", "write"]), "What to allow.").required(),
        target: MayBeEmpty = text("A host with its port, or an existing directory.").required(),
        reason: MayBeEmpty = text("Why you need it, in a few words. The user sees it."),
    }
}

/// Asks the user for a permission. The supervisor reads its arguments and answers it, in no worker.
pub const REQUEST_PERMISSION: Tool = Tool {
    name: "request_permission",
    about: "Ask the user to allow a host, or to allow writing in a directory outside of the workspace. Use it when a line \
            [Sandbox: …] says that one was denied, or before a command that needs it. Waits for the answer. Example: \
            {\"kind\":\"network\",\"target\":\"registry.example.org:443\",\"reason\":\"download the dependencies\"}.",
    offer: Offer::Work,
    parameters: RequestPermissionArguments::PARAMETERS,
    ..READS
};

/// Lists background jobs.
pub const JOBS: Tool = Tool {
    name: "jobs",
    about: "List the background jobs that bash started, with their states.",
    is_job_tool: true,
    returns_data: true,
    offer: Offer::Work,
    of_pi: &["bash"],
    parameters: &[],
    ..READS
};

arguments! {
    /// Arguments of `job_output`.
    JobOutputArguments of JOB_OUTPUT {
        job: JobReference = JOB,
        cursor: Checked<Digits> = whole(
            0,
            u64::MAX,
            "Start position in bytes of output: the cursor of the last answer.",
        ),
        wait_ms: Checked<Digits> = whole(
            0,
            ms(MAX_TOOL_DEADLINE),
            "Longest wait for more output or for the exit of the job, in milliseconds.",
        )
        .or("0"),
    }
}

/// Reads the output of a background job.
pub const JOB_OUTPUT: Tool = Tool {
    name: "job_output",
    about: "Read the output of a background job. To follow it, call again with the cursor of the last answer and with \
            wait_ms. Example: {\"job\":\"job-1\",\"cursor\":512,\"wait_ms\":10000}.",
    main: Some("job"),
    is_job_tool: true,
    returns_data: true,
    is_answer_recorded: true,
    offer: Offer::Work,
    of_pi: &["bash"],
    parameters: JobOutputArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `job_kill`.
    JobKillArguments of JOB_KILL {
        job: JobReference = JOB,
    }
}

/// Kills a background job.
pub const JOB_KILL: Tool = Tool {
    name: "job_kill",
    about: "End a background job and all processes that it started.",
    main: Some("job"),
    is_destructive: true,
    is_idempotent: true,
    is_job_tool: true,
    returns_data: true,
    is_answer_recorded: true,
    offer: Offer::Work,
    of_pi: &["bash"],
    parameters: JobKillArguments::PARAMETERS,
    ..READS
};

const TERMINAL: Parameter = Parameter::new(Kind::TextOrWhole, "The terminal: term-1, or 1.")
    .also(&["term", "terminal_id", "terminalId", "job", "id"])
    .required();

/// Longest wait for a change of the screen, in milliseconds.
const MAX_SCREEN_WAIT_MS: u64 = 60_000;

/// Most lines above the screen in one answer.
const MAX_SCREEN_HISTORY: u64 = 2000;

arguments! {
    /// Arguments of `term_read`.
    TermReadArguments of TERM_READ {
        terminal: JobReference = TERMINAL,
        history: Checked<u64> = whole(0, MAX_SCREEN_HISTORY, "Lines above the screen to show first.").or("0"),
        wait_ms: Checked<u64> = whole(
            0,
            MAX_SCREEN_WAIT_MS,
            "Longest wait for a change of the screen, in milliseconds.",
        )
        .or("0"),
    }
}

/// Shows the screen of a terminal.
pub const TERM_READ: Tool = Tool {
    name: "term_read",
    about: "Show the screen of a program on a terminal, which bash {\"command\":\"python3\",\"tty\":true} has started: its \
            rows as text, and the position of the cursor. Example: {\"terminal\":\"term-1\",\"wait_ms\":2000}.",
    main: Some("terminal"),
    is_job_tool: true,
    returns_data: true,
    is_answer_recorded: true,
    offer: Offer::Ask,
    of_pi: &["bash"],
    parameters: TermReadArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `term_write`.
    TermWriteArguments of TERM_WRITE {
        terminal: JobReference = TERMINAL,
        text: MayBeEmpty = text("Text to type, as it is."),
        keys: Checked<Vec<String>> = Parameter::new(
            Kind::Texts,
            "Keys to press after the text: Enter, Tab, Escape, Backspace, Up, Down, Left, Right, Home, End, PageUp, \
             PageDown, Delete, F1 to F12, C-c for Ctrl-C, M-x for Alt-X.",
        ),
        wait_ms: Checked<u64> = whole(
            0,
            MAX_SCREEN_WAIT_MS,
            "Longest wait until the screen stops to change, in milliseconds.",
        )
        .or("500"),
    }
}

/// Types into a terminal.
pub const TERM_WRITE: Tool = Tool {
    name: "term_write",
    about: "Type text and keys into a program on a terminal, which bash {\"command\":\"python3\",\"tty\":true} has \
            started, then show its screen. Example: \
            {\"terminal\":\"term-1\",\"text\":\"print(6*7)\",\"keys\":[\"Enter\"]}.",
    main: Some("terminal"),
    is_job_tool: true,
    returns_data: true,
    is_answer_recorded: true,
    action: Action::Other,
    is_destructive: true,
    offer: Offer::Ask,
    of_pi: &["bash"],
    parameters: TermWriteArguments::PARAMETERS,
    ..READS
};
