//! Modes of a session: how far its sandbox lets the agent write.
//!
//! A mode is the profile of the session's layer of the policy. It never gives more than the configuration, the workspace
//! and the session allow when it is offered, and other settings of the session stay.

use quackd_protocol::client::{PolicyScope, SandboxData, SandboxSession, SandboxSet};
use quackd_protocol::policy::{PolicyPatch, Profile};
use serde_json::{Value, json};

/// The modes that a session may have.
#[derive(Debug, Clone)]
pub(crate) struct Modes {
    current: Profile,
    /// Profile without the session's layer.
    base: Profile,
    /// The widest profile that may be chosen.
    most: Profile,
    /// The session's layer.
    layer: PolicyPatch,
    /// Whether the user has turned the network off, so that nothing is asked about hosts.
    is_network_off: bool,
}

impl Modes {
    /// Reads the modes from the policy.
    pub(crate) fn of(data: &SandboxData) -> Self {
        let layers = &data.layers;
        let base = layers.workspace.profile.or(layers.configuration.profile).unwrap_or_default();
        let current = data.policy.profile;
        let most = if layers.safe_mode {
            // Only the user ends safe mode.
            Profile::ReadOnly
        } else {
            // The user may have given the session more than the configuration.
            let profiles = [base, current, layers.session.profile.unwrap_or(base)];
            profiles.into_iter().max_by_key(|profile| rank(*profile)).unwrap_or(base)
        };
        let is_network_off = data.hosts_denied_unasked;
        Self { current, base, most, layer: layers.session.clone(), is_network_off }
    }

    /// Returns the state for the client.
    pub(crate) fn state(&self) -> Value {
        let modes = self.offered().map(|profile| mode(profile, self.is_network_off));
        let modes: Vec<Value> = modes.collect();
        json!({"currentModeId": id(self.current), "availableModes": modes})
    }

    /// Returns the parameters of `quack.sandbox` for a mode. `None` if the mode is not offered.
    pub(crate) fn change(&self, mode: &str, session: &str) -> Option<SandboxSet> {
        let chosen = self.offered().find(|profile| id(*profile) == mode)?;
        // Without a profile the session follows later changes of the configuration.
        let profile = Some(chosen).filter(|chosen| *chosen != self.base);

        Some(SandboxSet {
            session: SandboxSession::of(session),
            scope: Some(PolicyScope::Session),
            reset: Some(true),
            patch: PolicyPatch { profile, ..self.layer.clone() },
            end_jobs: None,
        })
    }

    fn offered(&self) -> impl Iterator<Item = Profile> {
        let n = rank(self.most).map_or(0, |rank| rank + 1);
        Profile::ALL.into_iter().take(n)
    }
}

/// Returns the position among the profiles, from the narrowest to the widest.
fn rank(profile: Profile) -> Option<usize> {
    Profile::ALL.iter().position(|other| *other == profile)
}

fn id(profile: Profile) -> &'static str {
    match profile {
        Profile::ReadOnly => "read-only",
        Profile::WorkspaceWrite => "ask",
        Profile::FullAccess => "full",
    }
}

fn mode(profile: Profile, is_network_off: bool) -> Value {
    let (name, description) = match profile {
        Profile::ReadOnly => ("Read only", "Reads the workspace and changes no file"),
        Profile::WorkspaceWrite if is_network_off => (
            "Ask",
            "Writes the workspace, and asks before it writes elsewhere. The network is off, as you have set it: hosts are \
             denied without a question",
        ),
        Profile::WorkspaceWrite => {
            ("Ask", "Writes the workspace, and asks before anything that the sandbox denies")
        }
        Profile::FullAccess => ("Full access", "No sandbox and no questions"),
    };
    json!({"id": id(profile), "name": name, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(configuration: &str, workspace: &str, session: Value, now: &str, safe: bool) -> Modes {
        let profile = |name: &str| match name {
            "" => json!({}),
            name => json!({ "profile": name }),
        };
        let policy = json!({"profile": now, "network": false, "webSearch": "on", "writableRoots": [], "hidden": []});
        let layers = json!({"configuration": profile(configuration), "workspace": profile(workspace),
            "session": session, "safeMode": safe});
        let data = json!({"sessionId": "s", "sessionName": "n", "workspacePath": "/w", "policy": policy,
            "layers": layers, "inForce": null, "outdated": false});
        Modes::of(&serde_json::from_value(data).unwrap())
    }

    fn ids(modes: &Modes) -> (String, Vec<String>) {
        let state = modes.state();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = state["availableModes"].as_array().unwrap().iter();
        (text(&state["currentModeId"]), all.map(|mode| text(&mode["id"])).collect())
    }

    #[test]
    fn no_mode_gives_more_than_the_configuration() {
        for (modes, current, offered) in [
            (data("", "", json!({}), "workspace-write", false), "ask", &["read-only", "ask"][..]),
            (data("read-only", "", json!({}), "read-only", false), "read-only", &["read-only"]),
            (
                data("read-only", "workspace-write", json!({}), "workspace-write", false),
                "ask",
                &["read-only", "ask"],
            ),
            (
                data("", "full-access", json!({}), "full-access", false),
                "full",
                &["read-only", "ask", "full"],
            ),
            (
                data("full-access", "", json!({"profile": "read-only"}), "read-only", false),
                "read-only",
                &["read-only", "ask", "full"],
            ),
            (data("full-access", "", json!({}), "read-only", true), "read-only", &["read-only"]),
        ] {
            assert_eq!(
                ids(&modes),
                (current.to_owned(), offered.iter().map(|id| (*id).to_owned()).collect())
            );
            let refused =
                ["read-only", "ask", "full", "root"].into_iter().filter(|id| !offered.contains(id));
            refused.for_each(|id| assert!(modes.change(id, "s").is_none(), "{id}"));
        }
    }

    #[test]
    fn a_mode_keeps_the_other_settings_of_the_session() {
        let layer = json!({"profile": "read-only", "networkMode": "hosts", "hosts": ["a.example"], "hidden": ["/k"]});
        let modes = data("", "", layer, "read-only", false);
        let change =
            |modes: Modes| serde_json::to_value(modes.change("ask", "s").unwrap()).unwrap();
        let params = change(modes);
        assert_eq!(params.get("profile"), None);
        assert_eq!(
            (&params["hosts"], &params["hidden"], &params["networkMode"], &params["reset"]),
            (&json!(["a.example"]), &json!(["/k"]), &json!("hosts"), &json!(true))
        );
        let modes = data("full-access", "", json!({}), "full-access", false);
        assert_eq!(change(modes)["profile"], "workspace-write");
    }
}
