//! Keys of the agents: `agent` and `model` for quackd's own, and `pi`.

use crate::accessor::{choice, field};
use crate::choices::{APIS, api_word};
use crate::definition::Key;
use crate::validate;
use crate::value_kind::ValueKind;
use crate::{EngineChoice, PiStart};

/// Largest number of tokens.
const MAX_TOKENS: u64 = 100_000_000;

/// The tables `agent`, `model` and `pi`.
pub(super) static KEYS: &[Key] = &[
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
];
