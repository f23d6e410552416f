//! The table of keys: each is defined here and nowhere else. Reading, `quack config show` and
//! docs/configuration.md are made from it; what a key is when nobody says otherwise is in `config.rs`.

use crate::Config;
use crate::check;
use crate::kind::{Field, Kind};
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MAX_WORKERS};
use serde_json::Value as Json;

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    name: &'static str,
    about: &'static str,
    pub(crate) kind: Kind,
}

impl Key {
    /// The name from the file's root, such as `worker.idle_minutes`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it is for: one sentence in Markdown.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// What its value may be, for people.
    #[must_use]
    pub fn values(&self) -> String {
        self.kind.values()
    }

    /// The value if nobody says otherwise.
    #[must_use]
    pub fn default(&self) -> Json {
        self.kind.show(&Config::default()).0
    }

    /// The environment variable that wins over the file.
    #[must_use]
    pub fn variable(&self) -> Option<&'static str> {
        self.kind.variable()
    }

    /// The table that the key stands in, and its name there.
    pub(crate) fn path(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }
}

/// Seconds of a day, and the most days that something is kept.
const DAY_S: u64 = 24 * 60 * 60;
const MAX_DAYS: u64 = 3650;

/// Every key, table by table.
#[must_use]
pub fn keys() -> &'static [Key] {
    KEYS
}

/// Where in [`Config`] a key's value is kept.
macro_rules! field {
    ($table:ident . $name:ident) => {
        Field { get: |config| &config.$table.$name, get_mut: |config| &mut config.$table.$name }
    };
}

static KEYS: &[Key] = &[
    Key {
        name: "worker.idle_minutes",
        about: "A worker that had no call for so many minutes is ended; the next call starts a new one.",
        kind: Kind::Time { field: field!(worker.idle), unit_s: 60, min: 1, max: 24 * 60 },
    },
    Key {
        name: "worker.max_live",
        about: "So many workers may live at the same time; one more takes the place of the one that was idle for longest.",
        kind: Kind::Count { field: field!(worker.max_live), min: 1, max: MAX_WORKERS as u64 },
    },
    Key {
        name: "worker.evict_below_mb",
        about: "While less than so many MiB of memory are available, workers and Pis that nobody uses are ended; 0 for never.",
        kind: Kind::Count { field: field!(worker.evict_below_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "worker.launcher",
        about: "Words put before the command line that starts a worker; the first is a program.",
        kind: Kind::Words {
            field: field!(worker.launcher),
            values: "an array of strings",
            check: check::argument,
        },
    },
    Key {
        name: "tools.default_timeout_s",
        about: "A tool call that names no deadline has so many seconds. `quack tool` has 120 if this is not set.",
        kind: Kind::Time {
            field: field!(tools.default_timeout),
            unit_s: 1,
            min: 1,
            max: MAX_TOOL_DEADLINE.as_secs(),
        },
    },
    Key {
        name: "tools.respect_ignore_files",
        about: "`grep_search` leaves out what `.gitignore` and `.ignore` name.",
        kind: Kind::Switch { field: field!(tools.respect_ignore_files) },
    },
    Key {
        name: "tools.env",
        about: "Variables that commands get besides the usual ones, by name.",
        kind: Kind::Words {
            field: field!(tools.env),
            values: "an array of names",
            check: check::variable_name,
        },
    },
    Key {
        name: "sandbox.profile",
        about: "What workers may do to files, unless their workspace or session says otherwise.",
        kind: Kind::Text {
            field: field!(sandbox.profile),
            values: "read-only, workspace-write, full-access",
            variable: None,
            check: check::profile,
        },
    },
    Key {
        name: "sandbox.network",
        about: "Whether workers may use the network, unless their workspace or session says otherwise.",
        kind: Kind::Switch { field: field!(sandbox.network) },
    },
    Key {
        name: "sandbox.web_search",
        about: "Whether `web_search` may send queries. A workspace or session can override it. If it is not set, sessions in safe mode have `off`.",
        kind: Kind::Text {
            field: field!(sandbox.web_search),
            values: "on, ask, off",
            variable: None,
            check: check::web_search,
        },
    },
    Key {
        name: "sandbox.writable",
        about: "Directories that workers may write beside their workspace.",
        kind: Kind::Words {
            field: field!(sandbox.writable),
            values: "an array of absolute paths",
            check: check::policy_path,
        },
    },
    Key {
        name: "sandbox.hidden",
        about: "Files and directories that workers are not shown.",
        kind: Kind::Words {
            field: field!(sandbox.hidden),
            values: "an array of absolute paths",
            check: check::policy_path,
        },
    },
    Key {
        name: "sandbox.tier",
        about: "The most confinement that is tried: `auto` for all that the system has, or a lower tier.",
        kind: Kind::Text {
            field: field!(sandbox.tier),
            values: "auto, A, B, D, unconfined",
            variable: Some("QUACKD_SANDBOX_TIER"),
            check: check::tier,
        },
    },
    Key {
        name: "limits.commands",
        about: "So many commands may run at the same time, over all sessions; more wait for a place.",
        kind: Kind::Count { field: field!(limits.commands), min: 16, max: 1024 },
    },
    Key {
        name: "limits.jobs",
        about: "So many background jobs may run at the same time, over all sessions.",
        kind: Kind::Count { field: field!(limits.jobs), min: 1, max: 1024 },
    },
    Key {
        name: "limits.processes",
        about: "So many processes may the commands of one session have.",
        kind: Kind::Count { field: field!(limits.processes), min: 16, max: 100_000 },
    },
    Key {
        name: "limits.total_processes",
        about: "So many processes may the commands of all sessions have, where the kernel counts them.",
        kind: Kind::Count { field: field!(limits.total_processes), min: 64, max: 1_000_000 },
    },
    Key {
        name: "limits.session_memory_mb",
        about: "So many MiB of memory may the commands, the worker and the Pi of one session have together; its worker or its Pi is ended for more; 0 for no limit.",
        kind: Kind::Count { field: field!(limits.session_memory_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "limits.cpu_minutes",
        about: "So much processor time may each process of a command use; 0 for no limit.",
        kind: Kind::Time { field: field!(limits.cpu), unit_s: 60, min: 0, max: 24 * 60 },
    },
    Key {
        name: "limits.file_mb",
        about: "So many MiB may a file have that a command writes; 0 for no limit.",
        kind: Kind::Count { field: field!(limits.file_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "limits.spill_mb",
        about: "So many MiB may the files with long outputs of all sessions have together; the oldest are deleted.",
        kind: Kind::Count { field: field!(limits.spill_mb), min: 64, max: 1_048_576 },
    },
    Key {
        name: "keep.outputs_days",
        about: "Files with long outputs are deleted when they are so many days old.",
        kind: Kind::Time { field: field!(keep.outputs), unit_s: DAY_S, min: 1, max: MAX_DAYS },
    },
    Key {
        name: "keep.undo_days",
        about: "So are the originals of files that were replaced; the replacement cannot be undone then.",
        kind: Kind::Time { field: field!(keep.undo), unit_s: DAY_S, min: 1, max: MAX_DAYS },
    },
    Key {
        name: "keep.undo_mb",
        about: "So many MiB may the originals of all sessions have together; the oldest are deleted.",
        kind: Kind::Count { field: field!(keep.undo_mb), min: 256, max: 1_048_576 },
    },
    Key {
        name: "keep.min_free_mb",
        about: "With fewer MiB free, or a tenth of a smaller disk, long outputs are not written to files and the log says warnings and errors only; 0 for never.",
        kind: Kind::Count { field: field!(keep.min_free_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "environment.login_shell",
        about: "Commands get the environment of your login shell, such as its `PATH`.",
        kind: Kind::Switch { field: field!(environment.login_shell) },
    },
    Key {
        name: "pi.binary",
        about: "Your Pi, by its path or by a name that is looked for in your `PATH`; empty for `pi` in your `PATH`.",
        kind: Kind::Text {
            field: field!(pi.binary),
            values: "a path or a name",
            variable: Some("RUBBER_DUCK_PI_BINARY"),
            check: check::anything,
        },
    },
    Key {
        name: "pi.model",
        about: "The model that Pi is started with; empty for `gpt-4o-mini` if there is an OpenAI key, else for Pi's own choice.",
        kind: Kind::Text {
            field: field!(pi.model),
            values: "a name",
            variable: Some("RUBBER_DUCK_PI_MODEL"),
            check: check::anything,
        },
    },
    Key {
        name: "pi.provider",
        about: "The provider that Pi is started with; empty for `openai` if there is a key and `pi.model` names none, else for Pi's own choice.",
        kind: Kind::Text {
            field: field!(pi.provider),
            values: "a name",
            variable: Some("RUBBER_DUCK_PI_PROVIDER"),
            check: check::anything,
        },
    },
    Key {
        name: "pi.thinking",
        about: "How much Pi's model thinks before it answers.",
        kind: Kind::Text {
            field: field!(pi.thinking),
            values: "a level of Pi's",
            variable: Some("RUBBER_DUCK_PI_THINKING"),
            check: check::anything,
        },
    },
    Key {
        name: "pi.start",
        about: "When a session's Pi is started: in the background when somebody attaches, or by the first `say`.",
        kind: Kind::Text {
            field: field!(pi.start),
            values: "attach, say",
            variable: None,
            check: check::pi_start,
        },
    },
    Key {
        name: "pi.max_live",
        about: "So many Pis may live at the same time; one more takes the place of the one that was idle for longest.",
        kind: Kind::Count { field: field!(pi.max_live), min: 1, max: 256 },
    },
    Key {
        name: "pi.allow_old",
        about: "Start a Pi before 0.79 too, in workspaces without `.pi`. Such a Pi runs any code that a command puts into `.pi` while Pi starts.",
        kind: Kind::Switch { field: field!(pi.allow_old) },
    },
    Key {
        name: "pi.env",
        about: "Variables of your login shell that Pi gets besides those of the known providers, by name.",
        kind: Kind::Words {
            field: field!(pi.env),
            values: "an array of names",
            check: check::variable_name,
        },
    },
    Key {
        name: "log.level",
        about: "How much the log says, in all or by part, such as `info,quackd_supervisor=debug`.",
        kind: Kind::Text {
            field: field!(log.level),
            values: "off, error, warn, info, debug, trace",
            variable: Some("QUACKD_LOG"),
            check: check::log_filter,
        },
    },
    Key {
        name: "metrics.listen",
        about: "Where a Prometheus may ask for the daemon's numbers, such as `127.0.0.1:9464`; empty for nowhere.",
        kind: Kind::Text {
            field: field!(metrics.listen),
            values: "an address of this machine only, and a port",
            variable: None,
            check: check::loopback,
        },
    },
    Key {
        name: "web_search.endpoint",
        about: "Where `web_search` sends its query and your Exa key.",
        kind: Kind::Text {
            field: field!(web_search.endpoint),
            values: "https://…, or http:// to this machine",
            variable: Some("QUACKD_EXA_ENDPOINT"),
            check: check::endpoint,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::to_toml;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    /// The table of docs/configuration.md.
    fn markdown() -> String {
        let mut text = "| key | value | default | what it does |\n|---|---|---|---|\n".to_owned();
        for key in keys() {
            let variable = key.variable().map(|name| format!(" `{name}` wins over it."));
            // Writing to a String cannot fail.
            let _never = writeln!(
                text,
                "| `{}` | {} | `{}` | {}{} |",
                key.name,
                key.values(),
                to_toml(&key.default()),
                key.about,
                variable.unwrap_or_default()
            );
        }
        text
    }

    #[test]
    fn every_key_stands_in_one_table_and_has_a_sentence() {
        let names: BTreeSet<&str> = keys().iter().map(Key::name).collect();
        assert_eq!(names.len(), keys().len());
        for key in keys() {
            assert_eq!(key.name.split('.').count(), 2, "{}", key.name);
            assert!(key.about.ends_with('.') && !key.about.contains('|'), "{}", key.name);
        }
    }

    #[test]
    fn the_document_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table: String =
            page.split_inclusive('\n').filter(|line| line.starts_with('|')).collect();
        assert_eq!(table, markdown(), "docs/configuration.md differs from the table of keys");
    }
}
