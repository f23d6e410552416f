//! Keys of the workers and their commands: `worker`, `tools`, `far` and `environment`.

use crate::accessor::field;
use crate::definition::Key;
use crate::validate;
use crate::value_kind::ValueKind;
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MAX_WORKERS};

/// The tables `worker`, `tools` and `far`.
pub(super) static KEYS: &[Key] = &[
    Key {
        name: "worker.idle_minutes",
        description: "Minutes without a call before an idle worker is evicted. The next call starts a new worker.",
        kind: ValueKind::Minutes { field: field!(worker.idle), max: 24 * 60 },
    },
    Key {
        name: "worker.max_live",
        description: "Maximum number of live workers. Starting one more evicts the worker that was idle longest.",
        kind: ValueKind::Count { field: field!(worker.max_live), min: 1, max: MAX_WORKERS as u64 },
    },
    Key {
        name: "worker.evict_below_mb",
        description: "MiB of available memory below which idle workers and Pis are evicted; 0 for never.",
        kind: ValueKind::Count { field: field!(worker.evict_below_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "worker.launcher",
        description: "Words before the command line that starts a worker. The first one is a program.",
        kind: ValueKind::Words {
            field: field!(worker.launcher),
            values: "an array of strings",
            check: validate::argument,
        },
    },
    Key {
        name: "tools.default_timeout_s",
        description: "Deadline in seconds of tool calls that set none. If it is not set, `quack tool` uses 120, and none for commands at a terminal.",
        kind: ValueKind::Time {
            field: field!(tools.default_timeout),
            unit_s: 1,
            min: 1,
            max: MAX_TOOL_DEADLINE.as_secs(),
        },
    },
    Key {
        name: "tools.respect_ignore_files",
        description: "Whether `grep_search` skips files that match `.gitignore` or `.ignore`.",
        kind: ValueKind::Switch { field: field!(tools.respect_ignore_files) },
    },
    Key {
        name: "tools.env",
        description: "Names of variables that commands get in addition to the usual ones.",
        kind: ValueKind::Words {
            field: field!(tools.env),
            values: "an array of names",
            check: validate::variable_name,
        },
    },
    Key {
        name: "far.program",
        description: "Build of `quack` that is sent to other machines, such as a static one; empty for the running one.",
        kind: ValueKind::Text {
            field: field!(far.program),
            values: "an absolute path",
            variable: None,
            check: validate::far_program,
        },
    },
    Key {
        name: "far.resume_grace_s",
        description: "Seconds for which the worker of a session on another machine waits after its link was lost, if the engine can resume links; 0 for none.",
        kind: ValueKind::Time {
            field: field!(far.resume_grace),
            unit_s: 1,
            min: 0,
            max: 3 * 60 * 60,
        },
    },
    Key {
        name: "far.queue_s",
        description: "Seconds for which a worker may wait in the queue of its engine.",
        kind: ValueKind::Time {
            field: field!(far.queue),
            unit_s: 1,
            min: 1,
            max: 7 * 24 * 60 * 60,
        },
    },
];

/// The table `environment`, which `quack config show` prints after the limits.
pub(super) static ENVIRONMENT: &[Key] = &[Key {
    name: "environment.login_shell",
    description: "Whether commands get the environment of your login shell, such as its `PATH`.",
    kind: ValueKind::Switch { field: field!(environment.login_shell) },
}];
