//! The table of configuration keys. Each key is defined only here: reading, `quack config show` and
//! docs/configuration.md use the table. The defaults are in `config.rs`.

use crate::accessor::{choice, field};
use crate::choices::{APIS, TIERS, api_word, tier_word};
use crate::definition::Key;
use crate::validate;
use crate::value_kind::ValueKind;
use crate::{CheckpointChoice, EngineChoice, PiStart, RemoteApprovals, RunNetwork, UpstreamChoice};
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MAX_WORKERS};
use quackd_protocol::policy::{NetworkMode, Profile, WebSearchRule};

/// Seconds of a day, and the longest retention in days.
const DAY_S: u64 = 24 * 60 * 60;
const MAX_DAYS: u64 = 3650;

/// Largest number of tokens.
const MAX_TOKENS: u64 = 100_000_000;

/// Every key, table by table.
#[must_use]
pub fn keys() -> &'static [Key] {
    KEYS
}

static KEYS: &[Key] = &[
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
        name: "sandbox.profile",
        description: "File access of workers. A workspace or session can override it.",
        kind: ValueKind::Choice {
            field: choice!(sandbox.profile, Profile::ALL, Profile::name),
            variable: None,
        },
    },
    Key {
        name: "sandbox.network",
        description: "Network of commands: `off`, the `hosts` that rules name, or `on`. A workspace or session can override it. `true` and `false` mean `on` and `off`.",
        kind: ValueKind::Choice {
            field: choice!(sandbox.network, NetworkMode::ALL, NetworkMode::name),
            variable: None,
        },
    },
    Key {
        name: "sandbox.hosts",
        description: "Rules of the hosts that commands may reach if the network is `hosts`, such as `example.com`, `*.example.com:443`, `!ads.example.com` or `@github`.",
        kind: ValueKind::Words {
            field: field!(sandbox.hosts),
            values: "an array of rules",
            check: validate::host_rule,
        },
    },
    Key {
        name: "sandbox.transparent",
        description: "Whether programs that use no proxy reach allowed hosts too. `false` leaves only the HTTP and SOCKS proxy that variables name.",
        kind: ValueKind::Switch { field: field!(sandbox.transparent) },
    },
    Key {
        name: "sandbox.upstream_proxy",
        description: "Whether connections to allowed hosts go through the HTTP proxy that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` of the daemon's `environment` name, or to the hosts themselves (`none`).",
        kind: ValueKind::Choice {
            field: choice!(sandbox.upstream_proxy, UpstreamChoice::ALL, UpstreamChoice::word),
            variable: None,
        },
    },
    Key {
        name: "sandbox.web_search",
        description: "Whether `web_search` may send queries. A workspace or session can override it. If it is not set, sessions in safe mode have `off`.",
        kind: ValueKind::Choice {
            field: choice!(sandbox.web_search, WebSearchRule::ALL, WebSearchRule::name),
            variable: None,
        },
    },
    Key {
        name: "sandbox.writable",
        description: "Directories that workers may write in addition to their workspace.",
        kind: ValueKind::Words {
            field: field!(sandbox.writable),
            values: "an array of absolute paths",
            check: validate::policy_path,
        },
    },
    Key {
        name: "sandbox.hidden",
        description: "Files and directories that are hidden from workers.",
        kind: ValueKind::Words {
            field: field!(sandbox.hidden),
            values: "an array of absolute paths",
            check: validate::policy_path,
        },
    },
    Key {
        name: "sandbox.ask",
        description: "Denied operations about which the user is asked while a client that can answer is connected. An empty array asks about none.",
        kind: ValueKind::Words {
            field: field!(sandbox.ask),
            values: "an array of network, write, command, safe_mode",
            check: validate::approval_kind,
        },
    },
    Key {
        name: "sandbox.ask_wait_s",
        description: "Seconds in which the user can answer. A connection waits at most 30 s, a call at most until 2 s before its deadline.",
        kind: ValueKind::Time { field: field!(sandbox.ask_wait), unit_s: 1, min: 5, max: 600 },
    },
    Key {
        name: "sandbox.tier",
        description: "Highest tier of confinement: `auto` for the best that the system supports, or a lower tier.",
        kind: ValueKind::Choice {
            field: choice!(sandbox.tier, TIERS, tier_word),
            variable: Some("QUACKD_SANDBOX_TIER"),
        },
    },
    Key {
        name: "limits.commands",
        description: "Maximum number of concurrent commands in all sessions. More commands wait for a slot.",
        kind: ValueKind::Count { field: field!(limits.commands), min: 16, max: 1024 },
    },
    Key {
        name: "limits.jobs",
        description: "Maximum number of concurrent background jobs in all sessions.",
        kind: ValueKind::Count { field: field!(limits.jobs), min: 1, max: 1024 },
    },
    Key {
        name: "limits.processes",
        description: "Maximum number of processes in one session's commands.",
        kind: ValueKind::Count { field: field!(limits.processes), min: 16, max: 100_000 },
    },
    Key {
        name: "limits.total_processes",
        description: "Maximum number of processes in the commands of all sessions, where the kernel counts them.",
        kind: ValueKind::Count { field: field!(limits.total_processes), min: 64, max: 1_000_000 },
    },
    Key {
        name: "limits.session_memory_mb",
        description: "MiB of memory for the commands, the worker and the agent of one session together; 0 for no limit. Above the limit, the worker or the agent is killed.",
        kind: ValueKind::Count { field: field!(limits.session_memory_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "limits.cpu_minutes",
        description: "Minutes of processor time for each process of a command; 0 for no limit.",
        kind: ValueKind::Time { field: field!(limits.cpu), unit_s: 60, min: 0, max: 24 * 60 },
    },
    Key {
        name: "limits.file_mb",
        description: "Largest file that a command may write, in MiB; 0 for no limit.",
        kind: ValueKind::Count { field: field!(limits.file_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "limits.spill_mb",
        description: "Total size of the files with long outputs of all sessions, in MiB. The oldest files are deleted first.",
        kind: ValueKind::Count { field: field!(limits.spill_mb), min: 64, max: 1_048_576 },
    },
    Key {
        name: "keep.outputs_days",
        description: "Days to keep files with long outputs.",
        kind: ValueKind::Time { field: field!(keep.outputs), unit_s: DAY_S, min: 1, max: MAX_DAYS },
    },
    Key {
        name: "keep.undo_days",
        description: "Days to keep the originals of replaced files. Later, `quack undo` cannot restore them.",
        kind: ValueKind::Time { field: field!(keep.undo), unit_s: DAY_S, min: 1, max: MAX_DAYS },
    },
    Key {
        name: "keep.undo_mb",
        description: "Total size of the originals of all sessions, in MiB. The oldest are deleted first.",
        kind: ValueKind::Count { field: field!(keep.undo_mb), min: 256, max: 1_048_576 },
    },
    Key {
        name: "keep.checkpoints",
        description: "Sessions whose files' states are recorded after each call that may change them: those that are `isolated`, `all` (of a workspace with at most 20000 files), or `off`.",
        kind: ValueKind::Choice {
            field: choice!(keep.checkpoints, CheckpointChoice::ALL, CheckpointChoice::word),
            variable: None,
        },
    },
    Key {
        name: "keep.caches_mb",
        description: "Total size of the package caches of all workspaces, in MiB. The least recently used are deleted first; 0 for none, so that downloads end with the worker.",
        kind: ValueKind::Count { field: field!(keep.caches_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "keep.journal_days",
        description: "Days to keep the journal of calls, which `quack log` shows; 0 for no journal.",
        kind: ValueKind::Time { field: field!(keep.journal), unit_s: DAY_S, min: 0, max: MAX_DAYS },
    },
    Key {
        name: "keep.journal_mb",
        description: "Total size of the journal of calls, in MiB. The oldest calls are deleted first.",
        kind: ValueKind::Count { field: field!(keep.journal_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "keep.min_free_mb",
        description: "MiB of free disk space, or a tenth of a smaller disk. With less, long outputs are not written to files, and the log contains only warnings and errors; 0 for never.",
        kind: ValueKind::Count { field: field!(keep.min_free_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "isolated.copy_files",
        description: "Most files that are copied for an isolated session. A workspace with more of them, outside of ignored directories, is refused.",
        kind: ValueKind::Count { field: field!(isolated.copy_files), min: 1, max: 1_000_000 },
    },
    Key {
        name: "isolated.copy_mb",
        description: "Largest total size of these files, in MiB.",
        kind: ValueKind::Count { field: field!(isolated.copy_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "isolated.max_mb",
        description: "Disk space of the copy of one isolated session, in MiB, with its layers and without its checkpoints. Above it, file tools, MCP tools and background jobs are refused; commands run, so that they can delete files, but those of agents only until it is exceeded by a quarter (at least 1 MiB).",
        kind: ValueKind::Count { field: field!(isolated.max_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "isolated.total_mb",
        description: "Disk space of all copies together, in MiB, with their checkpoints. Above it, commands of agents are refused too, and no isolated session is created.",
        kind: ValueKind::Count { field: field!(isolated.total_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "environment.login_shell",
        description: "Whether commands get the environment of your login shell, such as its `PATH`.",
        kind: ValueKind::Switch { field: field!(environment.login_shell) },
    },
    Key {
        name: "agent.engine",
        description: "Which agent runs turns: quackd's own, or your Pi. `auto` is quackd's own if a model is configured and `pi.binary` is not set, otherwise Pi. `quack new --engine` sets it for one session.",
        kind: ValueKind::Choice {
            field: choice!(agent.engine, EngineChoice::ALL, EngineChoice::word),
            variable: Some("QUACKD_ENGINE"),
        },
    },
    Key {
        name: "agent.max_turns",
        description: "Most requests to the model for one prompt. The turn then ends with an error.",
        kind: ValueKind::Count { field: field!(agent.max_turns), min: 1, max: 10_000 },
    },
    Key {
        name: "agent.max_cost_usd",
        description: "Cost of one prompt with everything that follows it, in US dollars, after which no request is sent; 0 for no limit. A model without a known price is refused.",
        kind: ValueKind::Dollars { field: field!(agent.max_cost_usd), max: 1_000_000 },
    },
    Key {
        name: "agent.max_cost_usd_per_day",
        description: "The same for all sessions of a day (UTC) together.",
        kind: ValueKind::Dollars { field: field!(agent.max_cost_usd_per_day), max: 1_000_000 },
    },
    Key {
        name: "agent.retries",
        description: "Most further attempts after a request to a model that failed before its first byte.",
        kind: ValueKind::Count { field: field!(agent.retries), min: 0, max: 10 },
    },
    Key {
        name: "agent.compaction",
        description: "Whether the model summarizes a conversation that comes close to its limit.",
        kind: ValueKind::Switch { field: field!(agent.compaction) },
    },
    Key {
        name: "agent.parallel_tools",
        description: "Whether tool calls of one answer run at the same time. Changes of one file never do.",
        kind: ValueKind::Switch { field: field!(agent.parallel_tools) },
    },
    Key {
        name: "model.name",
        description: "Model of quackd's own agent, such as `gpt-5` or `anthropic/claude-sonnet-4-5`. If it is empty, the one of `pi.model`, then the usual one of the provider with a key.",
        kind: ValueKind::Text {
            field: field!(model.name),
            values: "a name",
            variable: None,
            check: validate::anything,
        },
    },
    Key {
        name: "model.provider",
        description: "Provider of the model, such as `openai`, `anthropic`, `openrouter`, `ollama`, `lmstudio` or `llama.cpp`, or one of Pi's `models.json`. If it is empty, it follows from the other keys.",
        kind: ValueKind::Text {
            field: field!(model.provider),
            values: "a name",
            variable: None,
            check: validate::anything,
        },
    },
    Key {
        name: "model.base_url",
        description: "Base URL of the provider, such as `http://127.0.0.1:8080/v1`. Plain http with a key only to this machine.",
        kind: ValueKind::Text {
            field: field!(model.base_url),
            values: "https://… or http://…",
            variable: None,
            check: validate::base_url,
        },
    },
    Key {
        name: "model.api",
        description: "API of the provider: `auto` for the usual one.",
        kind: ValueKind::Choice { field: choice!(model.api, APIS, api_word), variable: None },
    },
    Key {
        name: "model.key",
        description: "Key of the provider, or `keychain:ACCOUNT` for one in the system's keychain with the service `quackd`. Wins over variables and Pi's files; `quack config show` prints `(set)` in its place.",
        kind: ValueKind::Secret { field: field!(model.key) },
    },
    Key {
        name: "model.thinking",
        description: "Thinking level of a model that reasons: off, minimal, low, medium, high or xhigh. If it is empty, the one of `pi.thinking`.",
        kind: ValueKind::Text {
            field: field!(model.thinking),
            values: "a level",
            variable: None,
            check: validate::thinking,
        },
    },
    Key {
        name: "model.context_window",
        description: "Most tokens of input and output together; 0 for the known value, or 128000.",
        kind: ValueKind::Count { field: field!(model.context_window), min: 0, max: MAX_TOKENS },
    },
    Key {
        name: "model.max_tokens",
        description: "Most tokens of an answer; 0 for the known value, or 16384.",
        kind: ValueKind::Count { field: field!(model.max_tokens), min: 0, max: MAX_TOKENS },
    },
    Key {
        name: "model.idle_timeout_s",
        description: "Seconds without a byte of the provider after which a request fails.",
        kind: ValueKind::Time { field: field!(model.idle_timeout), unit_s: 1, min: 5, max: 3600 },
    },
    Key {
        name: "pi.binary",
        description: "Path of your Pi, or its name in your `PATH`; empty for `pi` in your `PATH`.",
        kind: ValueKind::Text {
            field: field!(pi.binary),
            values: "a path or a name",
            variable: Some("RUBBER_DUCK_PI_BINARY"),
            check: validate::anything,
        },
    },
    Key {
        name: "pi.model",
        description: "Model that Pi starts with. If it is empty, `gpt-4o-mini` with an OpenAI key, otherwise Pi's default.",
        kind: ValueKind::Text {
            field: field!(pi.model),
            values: "a name",
            variable: Some("RUBBER_DUCK_PI_MODEL"),
            check: validate::anything,
        },
    },
    Key {
        name: "pi.provider",
        description: "Provider that Pi starts with. If it is empty, `openai` with an OpenAI key unless `pi.model` names a provider, otherwise Pi's default.",
        kind: ValueKind::Text {
            field: field!(pi.provider),
            values: "a name",
            variable: Some("RUBBER_DUCK_PI_PROVIDER"),
            check: validate::anything,
        },
    },
    Key {
        name: "pi.thinking",
        description: "Thinking level of Pi's model.",
        kind: ValueKind::Text {
            field: field!(pi.thinking),
            values: "a level of Pi's",
            variable: Some("RUBBER_DUCK_PI_THINKING"),
            check: validate::anything,
        },
    },
    Key {
        name: "pi.start",
        description: "When to start a session's Pi: in the background when a client attaches, or with the first `say`.",
        kind: ValueKind::Choice {
            field: choice!(pi.start, PiStart::ALL, PiStart::word),
            variable: None,
        },
    },
    Key {
        name: "pi.max_live",
        description: "Maximum number of live agents, your Pi or quackd's own. Starting one more evicts the agent that was idle longest.",
        kind: ValueKind::Count { field: field!(pi.max_live), min: 1, max: 256 },
    },
    Key {
        name: "pi.allow_old",
        description: "Whether to start a Pi before 0.79 whose package is not found, in workspaces without `.pi`. Such a Pi runs any code that a command puts into `.pi` while Pi starts.",
        kind: ValueKind::Switch { field: field!(pi.allow_old) },
    },
    Key {
        name: "pi.env",
        description: "Names of variables of your login shell that Pi gets in addition to those of the known providers.",
        kind: ValueKind::Words {
            field: field!(pi.env),
            values: "an array of names",
            check: validate::variable_name,
        },
    },
    Key {
        name: "run.network",
        description: "Hosts that the session of a known agent may reach if `quack run` starts it: those of the agent, in addition to the session's (`agent`), or only the session's (`session`).",
        kind: ValueKind::Choice {
            field: choice!(run.network, RunNetwork::ALL, RunNetwork::word),
            variable: None,
        },
    },
    Key {
        name: "log.level",
        description: "Log level, optionally per target, such as `info,quackd_supervisor=debug`.",
        kind: ValueKind::Text {
            field: field!(log.level),
            values: "off, error, warn, info, debug, trace",
            variable: Some("QUACKD_LOG"),
            check: validate::log_filter,
        },
    },
    Key {
        name: "forward.listen",
        description: "Address of links such as `http://3000.web.localhost:43112`, which open with the first `quack forward --link`; `off` for none.",
        kind: ValueKind::Text {
            field: field!(forward.listen),
            values: "an address of this machine only, and a port; off",
            variable: None,
            check: validate::links,
        },
    },
    Key {
        name: "metrics.listen",
        description: "Address of the metrics endpoint for Prometheus, such as `127.0.0.1:9464`; empty for none.",
        kind: ValueKind::Text {
            field: field!(metrics.listen),
            values: "an address of this machine only, and a port",
            variable: None,
            check: validate::loopback,
        },
    },
    Key {
        name: "remote.approvals",
        description: "Answers about permissions that remote clients may give: `off` for none, `once` for the waiting operation, `session` also for the session.",
        kind: ValueKind::Choice {
            field: choice!(remote.approvals, RemoteApprovals::ALL, RemoteApprovals::word),
            variable: None,
        },
    },
    Key {
        name: "web_search.endpoint",
        description: "URL that receives the queries of `web_search` and your Exa key.",
        kind: ValueKind::Text {
            field: field!(web_search.endpoint),
            values: "https://…, or http:// to this machine",
            variable: Some("QUACKD_EXA_ENDPOINT"),
            check: validate::endpoint,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::to_toml;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    /// Returns the table of docs/configuration.md.
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
                key.description,
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
            assert!(
                key.description.ends_with('.') && !key.description.contains('|'),
                "{}",
                key.name
            );
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
