//! Passes the keys of model providers from this shell to the daemon, which may have been started without them.

use crate::display::plain;
use crate::output::CliOutput;
use quackd_client::{Client, ClientError};
use quackd_egress::models::{provider_variables, variables_of};
use quackd_protocol::client::KeysParams;
use std::collections::BTreeMap;

/// Passes them on. If the daemon refuses, it may still have another key, so that is a warning.
pub(crate) async fn pass_on(client: &Client, output: CliOutput) {
    if let Err((names, error)) = try_pass_on(client).await {
        let why = plain(&error.to_string());
        output.warning(&format!(
            "this shell has {names}, but the daemon did not take the value: {why}"
        ));
    }
}

/// Passes them on.
///
/// # Errors
/// The names of the variables, and why the daemon does not have their values.
pub(crate) async fn try_pass_on(client: &Client) -> Result<(), (String, ClientError)> {
    let variables = variables(|name| std::env::var(name).ok());
    if variables.is_empty() {
        return Ok(());
    }

    // The blank variables of a provider are not the user's.
    let names = variables.iter().filter(|(_, value)| !value.is_empty());
    let names = names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let params = KeysParams { variables, ..KeysParams::default() };
    client.call(params).await.map(drop).map_err(|error| (names, error))
}

/// Gives the daemon a key of one provider, as if this shell had it.
///
/// # Errors
/// The reason why the daemon does not have it.
pub(crate) async fn give(client: &Client, provider: &str, key: &str) -> Result<(), String> {
    let Some(names) = variables_of(provider) else {
        return Err(format!(
            "{provider} is no provider with a variable for its key; `quack login` stores a key"
        ));
    };

    // The first variable has the key. The others are removed, so that no address of another source
    // gets the key.
    let values = std::iter::once(key.to_owned()).chain(std::iter::repeat(String::new()));
    let variables = names.into_iter().map(str::to_owned).zip(values).collect();
    let params = KeysParams { variables, ..KeysParams::default() };
    client.call(params).await.map(drop).map_err(|error| error.to_string())
}

/// Returns all variables of each provider that has a key here. Variables that are not set are blank, because a key must not
/// go to an address that the daemon has from elsewhere.
fn variables(value: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let set = |name: &&str| value(name).is_some_and(|value| !value.trim().is_empty());
    let providers = provider_variables().filter(|names| names.iter().any(set));
    let of_providers = providers.flatten();
    of_providers.map(|name| (name.to_owned(), value(name).unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_a_provider_are_passed_on_together() {
        let value = |name: &str| (name == "OPENAI_API_KEY").then(|| "k".to_owned());
        let passed = variables(value);
        let expected = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(passed, BTreeMap::from(expected));
        assert!(variables(|name| (name == "GROQ_API_KEY").then(|| " ".to_owned())).is_empty());
    }
}
