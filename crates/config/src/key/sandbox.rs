//! Keys of the confinement: `sandbox` and `credentials`.

use crate::UpstreamChoice;
use crate::accessor::{choice, field};
use crate::choices::{TIERS, tier_word};
use crate::definition::Key;
use crate::validate;
use crate::value_kind::ValueKind;
use quackd_protocol::policy::{NetworkMode, Profile, WebSearchRule};

/// The tables `sandbox` and `credentials`.
pub(super) static KEYS: &[Key] = &[
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
            values: "an array of network, write, command, safe_mode, credential",
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
        name: "credentials.ssh",
        description: "Whether commands may use keys of your ssh agent, after you have allowed it: to log in to allowed hosts, and to sign commits.",
        kind: ValueKind::Switch { field: field!(credentials.ssh) },
    },
    Key {
        name: "credentials.git",
        description: "Whether commands may use passwords and tokens of your git's credential helpers for repositories of allowed hosts, after you have allowed it.",
        kind: ValueKind::Switch { field: field!(credentials.git) },
    },
    Key {
        name: "credentials.ssh_agent",
        description: "Socket of your ssh agent: `auto` for the one that `SSH_AUTH_SOCK` of the daemon or of your login shell names, empty for none.",
        kind: ValueKind::Text {
            field: field!(credentials.ssh_agent),
            values: "auto, or an absolute path",
            variable: None,
            check: validate::ssh_agent,
        },
    },
];
