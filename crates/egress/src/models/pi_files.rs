//! The files of Pi that name models and keys: `models.json` and `auth.json`. Only read.

use super::json;
use indexmap::IndexMap;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::model::{InputKind, ModelCompat, ModelCost, ModelInfo, Price};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Variable with the directory of Pi's files.
const DIRECTORY_VARIABLE: &str = "PI_CODING_AGENT_DIR";

/// Returns the directory of Pi's files.
pub(super) fn directory(env: &[(String, String)], home: &Path) -> PathBuf {
    let given =
        env.iter().find(|(name, _)| name == DIRECTORY_VARIABLE).map(|(_, value)| value.trim());
    match given {
        None | Some("") => home.join(".pi").join("agent"),
        Some("~") => home.to_owned(),
        Some(path) => match path.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => home.join(path),
        },
    }
}

/// `models.json`, in its order. Unknown members are reported by [`super::unused_keys`].
#[derive(Default, Deserialize)]
pub(super) struct ModelsFile {
    #[serde(default)]
    pub(super) providers: IndexMap<String, PiProvider>,
}

/// A provider in `models.json`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PiProvider {
    pub(super) base_url: Option<String>,
    pub(super) api: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) auth_header: bool,
    pub(super) compat: Option<ModelCompat>,
    pub(super) models: Vec<PiModel>,
    pub(super) model_overrides: BTreeMap<String, PiFacts>,
}

/// A model in `models.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PiModel {
    pub(super) id: String,
    #[serde(default)]
    pub(super) api: Option<String>,
    #[serde(default)]
    pub(super) base_url: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) facts: PiFacts,
}

/// Facts about a model. Missing ones stay as they are.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PiFacts {
    pub(super) name: Option<String>,
    pub(super) reasoning: Option<bool>,
    pub(super) input: Option<Vec<InputKind>>,
    pub(super) cost: Option<ModelCost>,
    pub(super) context_window: Option<u64>,
    pub(super) max_tokens: Option<u64>,
    pub(super) compat: Option<ModelCompat>,
}

/// An entry of `auth.json`.
#[derive(Deserialize)]
struct Credential {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    key: Option<String>,
}

/// Keys of `auth.json`, not resolved, and problems.
#[derive(Default)]
pub(super) struct AuthFile {
    pub(super) keys: BTreeMap<String, String>,
    pub(super) problems: Vec<String>,
}

/// Reads `auth.json`, or another file with its content.
pub(super) fn read_auth_blocking(path: &Path) -> AuthFile {
    let mut auth = AuthFile::default();
    match json::read_blocking::<BTreeMap<String, Credential>>(path) {
        Ok(entries) => {
            for (provider, credential) in entries.unwrap_or_default() {
                match (credential.kind.as_str(), credential.key) {
                    ("api_key", Some(key)) => drop(auth.keys.insert(provider, key)),
                    ("oauth", _) => auth.problems.push(format!(
                        "{}: {provider} is a login of Pi, which only Pi can use: quackd needs an API key",
                        path.display()
                    )),
                    _ => {}
                }
            }
        }
        Err(problem) => auth.problems.push(problem),
    }
    auth
}

/// Reads `models.json`.
///
/// # Errors
/// The problem in one line, without values of the file.
pub(super) fn read_models_blocking(directory: &Path) -> Result<ModelsFile, String> {
    json::read_blocking(&directory.join("models.json")).map(Option::unwrap_or_default)
}

/// Resolves a value of Pi's files: `$NAME`, `${NAME}` or the name of a variable, or the value itself.
///
/// # Errors
/// The reason why there is no value, as the rest of a sentence about it.
pub(super) fn resolve(value: &str, env: &[(String, String)]) -> Result<String, String> {
    let value = value.trim();
    let variable = |name: &str| {
        let text = env.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim());
        text.filter(|value| !value.is_empty()).map(str::to_owned)
    };

    if value.starts_with('!') {
        return Err("is a command, which quackd does not run: name a variable instead, or store the key with `quack login`".to_owned());
    }

    let named = value
        .strip_prefix('$')
        .map(|name| name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name));
    let is_name_character =
        |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    // A text like a variable's name is more probably one than a key.
    let looks_like_name = value.bytes().all(is_name_character) && value.contains('_');

    match (named, variable(named.unwrap_or(value))) {
        (_, Some(text)) => Ok(text),
        (Some(name), None) => Err(format!("is the variable {}, which is not set", short(name))),
        (None, None) if looks_like_name => {
            Err(format!("is the variable {}, which is not set", short(value)))
        }
        (None, None) => Ok(value.to_owned()),
    }
}

/// Returns the name of a variable for display. Any other text may be a key.
fn short(name: &str) -> &str {
    let is_name = name.len() <= 60 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_name { name } else { "with an invalid name" }
}

/// Longest name of a model for display, in characters.
const MAX_NAME: usize = 256;

/// Applies the facts that are given.
pub(super) fn apply(info: &mut ModelInfo, facts: &PiFacts) {
    if let Some(name) = &facts.name {
        info.name = stripped_line(name, MAX_NAME);
    }
    info.reasoning = facts.reasoning.unwrap_or(info.reasoning);
    if let Some(input) = &facts.input {
        info.input.clone_from(input);
        // There are no further kinds.
        info.input.truncate(2);
    }

    info.price = facts.cost.map_or(info.price, Price::given);
    info.context_window = facts.context_window.unwrap_or(info.context_window);
    info.max_tokens = facts.max_tokens.unwrap_or(info.max_tokens);
    if let Some(compat) = &facts.compat {
        info.compat = merged(compat.clone(), &info.compat);
    }
}

pub(super) fn merged(own: ModelCompat, usual: &ModelCompat) -> ModelCompat {
    let usual = usual.clone();
    ModelCompat {
        supports_store: own.supports_store.or(usual.supports_store),
        supports_developer_role: own.supports_developer_role.or(usual.supports_developer_role),
        supports_reasoning_effort: own
            .supports_reasoning_effort
            .or(usual.supports_reasoning_effort),
        supports_usage_in_streaming: own
            .supports_usage_in_streaming
            .or(usual.supports_usage_in_streaming),
        max_tokens_field: own.max_tokens_field.or(usual.max_tokens_field),
        requires_tool_result_name: own
            .requires_tool_result_name
            .or(usual.requires_tool_result_name),
        requires_assistant_after_tool_result: own
            .requires_assistant_after_tool_result
            .or(usual.requires_assistant_after_tool_result),
        requires_thinking_as_text: own
            .requires_thinking_as_text
            .or(usual.requires_thinking_as_text),
        requires_reasoning_content_on_assistant_messages: own
            .requires_reasoning_content_on_assistant_messages
            .or(usual.requires_reasoning_content_on_assistant_messages),
        thinking_format: own.thinking_format.or(usual.thinking_format),
        cache_control_format: own.cache_control_format.or(usual.cache_control_format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_variable_or_itself_and_never_a_command() {
        let env = [("A_KEY".to_owned(), " k\n".to_owned()), ("mine".to_owned(), "m".to_owned())];
        let resolved = |value: &str| resolve(value, &env);
        for (value, expected) in
            [("$A_KEY", "k"), ("${A_KEY}", "k"), ("A_KEY", "k"), ("mine", "m"), ("sk-1", "sk-1")]
        {
            assert_eq!(resolved(value), Ok(expected.to_owned()), "{value}");
        }
        assert!(resolved("!cat key").unwrap_err().contains("command"));
        assert!(resolved("OTHER_KEY").unwrap_err().contains("OTHER_KEY"));
        assert!(resolved("$B").unwrap_err().contains("the variable B"));
        assert!(!resolved("$sk-secret").unwrap_err().contains("secret"));
    }

    #[test]
    fn the_directory_is_pis() {
        let of = |value: &str| {
            directory(&[(DIRECTORY_VARIABLE.to_owned(), value.to_owned())], Path::new("/home/a"))
        };
        assert_eq!(directory(&[], Path::new("/home/a")), Path::new("/home/a/.pi/agent"));
        assert_eq!(of(""), Path::new("/home/a/.pi/agent"));
        assert_eq!(of("~/x"), Path::new("/home/a/x"));
        assert_eq!(of("/y"), Path::new("/y"));
    }

    #[test]
    fn logins_are_a_problem_and_keys_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"openai": {"type": "api_key", "key": "sk-1"},
            "anthropic": {"type": "oauth", "refresh": "r", "access": "hush", "expires": 1}}"#;
        std::fs::write(directory.path().join("auth.json"), text).unwrap();
        let auth = read_auth_blocking(&directory.path().join("auth.json"));
        assert_eq!(auth.keys.get("openai").map(String::as_str), Some("sk-1"));
        assert_eq!(auth.problems.len(), 1);
        assert!(auth.problems[0].contains("anthropic") && !auth.problems[0].contains("hush"));
    }
}
