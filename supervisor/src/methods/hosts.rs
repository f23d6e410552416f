//! The parts of `quack.sandbox` for the network by host: requests of commands, presets, and what the rules say about one
//! host.

use super::Caller;
use super::find::label;
use crate::errors::MethodError;
use crate::registry::FoundPolicy;
use crate::session::FoundSession;
use quackd_policy::hosts::presets::{self, PRESETS};
use quackd_policy::hosts::{Decision, Host, HostRules, OriginRule, is_refused, local_refusal};
use quackd_protocol::client::{
    HostExplained, HostVerdict, NetworkData, PresetInfo, PresetsData, SandboxParams,
};
use quackd_protocol::policy::NetworkMode;

/// Port of a host without one.
const USUAL_PORT: u16 = 443;

/// Most unreadable rules in one answer.
const MAX_UNREADABLE: usize = 8;

/// Requests of a session's commands.
pub(super) async fn requests(
    asked: &SandboxParams,
    (session, found): (FoundSession, FoundPolicy),
    caller: &Caller,
) -> Result<NetworkData, MethodError> {
    let label = label(caller, &session.session_id).await?;
    let network = caller.services.sessions.pool.networks.get(&session.session_id);
    let report = network.map(|network| network.report(asked.after.unwrap_or(0)));
    let (requests, hosts, last, dropped) = report.unwrap_or_default();
    Ok(NetworkData {
        session_id: session.session_id,
        session_name: session.session_name,
        label,
        mode: found.policy.network_mode(),
        requests,
        hosts,
        last,
        dropped,
    })
}

/// The presets with these names, or all.
pub(super) fn presets(asked: &SandboxParams) -> Result<PresetsData, MethodError> {
    let wanted = asked.rules.as_deref().unwrap_or_default();
    let wanted: Vec<&str> = wanted.iter().map(|name| name.trim_start_matches('@')).collect();
    if let Some(unknown) = wanted.iter().find(|name| presets::find(name).is_none()) {
        let error = quackd_policy::PolicyError::UnknownPreset((*unknown).to_owned());
        return Err(MethodError::Policy(error));
    }
    let shown = PRESETS.iter().filter(|preset| wanted.is_empty() || wanted.contains(&preset.name));
    let presets = shown.map(|preset| PresetInfo {
        name: preset.name.to_owned(),
        about: preset.about.to_owned(),
        hosts: presets::expand(preset.name).into_iter().map(str::to_owned).collect(),
    });
    Ok(PresetsData { presets: presets.collect() })
}

/// Explains the rules for one host.
pub(super) fn explain(
    host: &str,
    (session, found): (FoundSession, FoundPolicy),
) -> Result<HostExplained, MethodError> {
    let not_a_host = || MethodError::NotAHost(host.chars().take(100).collect());
    let (name, port) = split_port(host).ok_or_else(not_a_host)?;
    let host = Host::read(name).map_err(|_error| not_a_host())?;
    let target = format!("{}:{port}", display(&host));
    let rule = if port == USUAL_PORT || port == 80 { display(&host) } else { target.clone() };
    let allow = Some(format!("quack sandbox allow {rule}"));
    let mode = found.policy.network_mode();
    let explained =
        |verdict, text: String, change: Option<String>, by: Option<&OriginRule>| HostExplained {
            session_id: session.session_id.clone(),
            session_name: session.session_name.clone(),
            host: host.to_string(),
            port,
            mode,
            verdict,
            rule: by.map(|by| by.rule.to_string()),
            origin: by.map(|by| by.origin.clone()),
            text,
            change,
        };
    Ok(match mode {
        NetworkMode::Off => {
            let text = format!("{target} is denied: the network is off");
            explained(HostVerdict::Denied, text, allow, None)
        }
        NetworkMode::On => {
            let text = format!("{target} is allowed: the network is on, without restriction");
            let change = Some("quack sandbox set --network hosts".to_owned());
            explained(HostVerdict::Allowed, text, change, None)
        }
        NetworkMode::Hosts => {
            let rules = HostRules::parse(&found.rules.rules);
            match rules.decide(&host, port) {
                Decision::Allowed(by) => {
                    let text = format!("{target} is allowed by {by}{}", but_private(&host));
                    explained(HostVerdict::Allowed, text, None, Some(by))
                }
                Decision::Denied(by) => {
                    let text = format!("{target} is denied by {by}");
                    let change = Some(format!("quack sandbox revoke '{}'", by.rule));
                    explained(HostVerdict::Denied, text, change, Some(by))
                }
                Decision::NotListed => {
                    let mut text = format!("{target} is denied: no rule names it");
                    for error in rules.unreadable().iter().take(MAX_UNREADABLE) {
                        text.push_str(&format!("\nnot in force: {error}"));
                    }
                    explained(HostVerdict::Denied, text, allow, None)
                }
            }
        }
    })
}

/// The end of the text for a name: it does not lead everywhere.
fn but_private(host: &Host) -> String {
    match host {
        Host::Name(_) => ", unless the name leads to this machine or a local network".to_owned(),
        Host::Address(address) if is_refused(*address) => {
            format!(", which names it although it is {}", local_refusal(*address))
        }
        Host::Address(_) => String::new(),
    }
}

fn display(host: &Host) -> String {
    match host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]"),
        host => host.to_string(),
    }
}

/// Splits `host`, `host:port`, `[v6]` and `[v6]:port`.
fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    };
    let port = port.map_or(Some(USUAL_PORT), |port| port.parse().ok().filter(|port| *port != 0));
    Some((host, port?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_told_from_an_address() {
        for (text, expected) in [
            ("a.example", Some(("a.example", 443))),
            ("a.example:22", Some(("a.example", 22))),
            ("[::1]:80", Some(("[::1]", 80))),
            ("[::1]", Some(("[::1]", 443))),
            ("::1", Some(("::1", 443))),
            ("a.example:0", None),
            ("a.example:x", None),
        ] {
            assert_eq!(split_port(text), expected, "{text}");
        }
    }
}
