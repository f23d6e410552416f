//! Keys of the log, the listeners, remote clients, terminals and web searches: `log`, `forward`, `metrics`, `remote`,
//! `run` and `web_search`.

use crate::accessor::{choice, field};
use crate::definition::Key;
use crate::run::MAX_SCROLLBACK_KB;
use crate::validate;
use crate::value_kind::ValueKind;
use crate::{ClipboardChoice, RemoteApprovals, RunNetwork};

/// The tables `log`, `forward`, `metrics`, `remote`, `run` and `web_search`.
pub(super) static KEYS: &[Key] = &[
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
        name: "remote.terminals",
        description: "Whether remote clients may start programs on terminals, type into terminals and end them. Otherwise they may look at them only.",
        kind: ValueKind::Switch { field: field!(remote.terminals) },
    },
    Key {
        name: "run.detach_keys",
        description: "Keys that detach from a terminal of `quack run`, such as `ctrl-a d`. Pressing the first one twice sends it to the program.",
        kind: ValueKind::Text {
            field: field!(run.detach_keys),
            values: "a key, or several after each other",
            variable: None,
            check: validate::anything,
        },
    },
    Key {
        name: "run.clipboard",
        description: "Whether a program of `quack run` may set the clipboard of your terminal (`write`). No program can read it.",
        kind: ValueKind::Choice {
            field: choice!(run.clipboard, ClipboardChoice::ALL, ClipboardChoice::word),
            variable: None,
        },
    },
    Key {
        name: "run.scrollback_kb",
        description: "KiB of lines above the screen that are kept for each terminal.",
        kind: ValueKind::Count { field: field!(run.scrollback_kb), min: 0, max: MAX_SCROLLBACK_KB },
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
