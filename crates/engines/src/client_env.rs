//! The environment of an engine's client, which runs unconfined on this machine.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables that an engine's client gets. Some clients, such as `srun`, pass on their environment, so no key and no token
/// is listed.
const VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "SSH_ASKPASS_REQUIRE",
    "DISPLAY",
    "KRB5CCNAME",
    "SLURM_CONF",
    "KUBECONFIG",
    "CONTAINER_HOST",
    "CONTAINER_CONNECTION",
    "CONTAINER_SSHKEY",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "DOCKER_HOST",
];

/// Beginnings of further names.
const PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Returns the listed part of a process's own variables and of those of a login shell, which win. Sorted by name.
#[must_use]
pub fn client_env(
    own: impl Iterator<Item = (OsString, OsString)>,
    login: &[(String, String)],
) -> BTreeMap<String, String> {
    let is_listed = |name: &str| {
        VARIABLES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let own =
        own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    own.chain(login.iter().cloned()).filter(|(name, _)| is_listed(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_of_an_engine_gets_listed_variables_only() {
        let own = [("PATH", "/own"), ("OPENAI_API_KEY", "k"), ("DISPLAY", ":0"), ("LC_ALL", "C")];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let login = [("PATH", "/login"), ("CARGO_HOME", "/c"), ("XDG_CONFIG_HOME", "/x")];
        let login = login.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = client_env(own.into_iter(), &login);
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let wanted =
            [("DISPLAY", ":0"), ("LC_ALL", "C"), ("PATH", "/login"), ("XDG_CONFIG_HOME", "/x")];
        assert_eq!(env, wanted);
    }
}
