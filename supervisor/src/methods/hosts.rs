//! The parts of `quack.sandbox` for the network by host: requests of commands, and what the rules say about one host.

use super::Caller;
use super::find::label;
use crate::daemon_info::DaemonInfo;
use crate::errors::MethodError;
use crate::registry::FoundPolicy;
use crate::session::FoundSession;
use quackd_policy::hosts::presets::{self, PRESETS, PresetHosts};
use quackd_policy::hosts::{Decision, Host, HostRules, OriginRule, is_refused, local_refusal};
use quackd_policy::upstream::UpstreamProxy;
use quackd_protocol::client::{HostExplained, HostVerdict, NetworkData};
use quackd_protocol::denial::of_session;
use quackd_protocol::network::{MACHINE_HOST, RuleText};
use quackd_protocol::policy::NetworkMode;
use quackd_protocol::state::FoundPreset;
use quackd_protocol::suggestion::may_be_suggested;
use std::collections::BTreeMap;

/// Port of a host without one.
const USUAL_PORT: u16 = 443;

/// Most unreadable rules in one answer.
const MAX_UNREADABLE: usize = 8;

/// Returns the requests of a session's commands with a higher number than `after`.
pub(super) async fn requests(
    after: u64,
    session: FoundSession,
    found: FoundPolicy,
    caller: &Caller,
) -> Result<NetworkData, MethodError> {
    let label = label(caller, &session.session_id).await?;

    let network = caller.services.sessions.pool.networks.get(&session.session_id);
    let report = network.map(|network| network.report(after));
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

/// Explains that no rule names a host, and which rules cannot be read: one of them may have been meant for it.
fn not_listed(target: &str, preset: Option<&str>, rules: &HostRules) -> String {
    let preset = preset.map(|name| format!("; it is a host of @{name}")).unwrap_or_default();
    let mut text = format!("{target} is denied: no rule names it{preset}");
    for error in rules.unreadable().iter().take(MAX_UNREADABLE) {
        text.push_str(&format!("\nnot in force: {error}"));
    }
    text
}

/// Explains the rules for one host.
pub(super) async fn explain(
    host: &str,
    session: FoundSession,
    found: FoundPolicy,
    caller: &Caller,
) -> Result<HostExplained, MethodError> {
    let not_a_host = || MethodError::NotAHost(host.chars().take(100).collect());
    let (host, port) = parse(host).ok_or_else(not_a_host)?;

    let snapshot = caller.snapshot().await?;
    let label = snapshot.label(&session.session_id);

    let target = format!("{}:{port}", display(&host));
    let is_machine = matches!(&host, Host::Name(name) if name == MACHINE_HOST);
    let rule = match (port, is_machine) {
        (_, true) => format!("machine:{port}"),
        (80 | USUAL_PORT, false) => display(&host),
        _ => target.clone(),
    };
    let allow = may_be_suggested(&display(&host)).then(|| format!("quack sandbox allow {rule}"));

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
            change: change.map(|change| change + &of_session(&label)),
        };

    Ok(match mode {
        NetworkMode::Off | NetworkMode::Hosts if is_own_loopback(&host) => {
            let text = format!(
                "{target} needs no rule: it leads to servers of the session itself\n  for a server of this machine: quack sandbox allow machine:{port}{}",
                of_session(&label)
            );
            explained(HostVerdict::Allowed, text, None, None)
        }
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
            let rules = found.rules.hosts();
            match rules.decide(&host, port) {
                Decision::Allowed(by) => {
                    let path = upstream(&host, port, &caller.services.daemon)
                        .unwrap_or_else(|| but_private(&host));
                    let text = format!("{target} is allowed by {by}{path}");
                    explained(HostVerdict::Allowed, text, None, Some(by))
                }
                Decision::Denied(by) => {
                    let text = format!("{target} is denied by {by}");
                    let change = Some(format!("quack sandbox revoke '{}'", by.rule));
                    explained(HostVerdict::Denied, text, change, Some(by))
                }
                Decision::NotListed => {
                    let preset = preset_of(&host, port, snapshot.presets());
                    let text = not_listed(&target, preset, rules);
                    explained(HostVerdict::Denied, text, allow, None)
                }
            }
        }
    })
}

/// Returns whether commands without the machine's network reach their own session by this host.
fn is_own_loopback(host: &Host) -> bool {
    match host {
        Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Address(address) => address.is_loopback() || address.is_unspecified(),
    }
}

/// Returns the derived preset that allows a host.
fn preset_of(
    host: &Host,
    port: u16,
    known: &BTreeMap<String, FoundPreset>,
) -> Option<&'static str> {
    let allows = |preset: &&presets::Preset| {
        let rules = presets::expand(preset.name, known).into_iter();
        let text = |rule: &str| RuleText { rule: rule.to_owned(), origin: String::new() };
        let rules = HostRules::parse(&rules.map(text).collect::<Vec<_>>());
        matches!(rules.decide(host, port), Decision::Allowed(_))
    };
    let derived = PRESETS.iter().filter(|preset| matches!(preset.hosts, PresetHosts::Derived(_)));
    derived.into_iter().find(allows).map(|preset| preset.name)
}

/// Returns the end of the text for a name that the proxy of the user's network resolves, or should.
fn upstream(host: &Host, port: u16, daemon: &DaemonInfo) -> Option<String> {
    let Host::Name(name) = host else { return None };
    if name == MACHINE_HOST {
        return None;
    }

    let variables = match &daemon.upstream {
        Ok(variables) => variables.as_ref()?,
        Err(error) => return Some(format!("{}\nnot used: {error}", but_private(host))),
    };
    let (proxy, at) = UpstreamProxy::new(variables).of_name(name, port, port == 80)?;
    Some(format!(
        ", through {proxy}:{at}, the proxy of this network: it resolves the name, so quackd cannot check the address"
    ))
}

/// Returns the end of the text for a name: it does not lead everywhere.
fn but_private(host: &Host) -> String {
    match host {
        Host::Name(name) if name == MACHINE_HOST => ", and leads to this machine".to_owned(),
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

/// Reads a host with an optional port. `machine` means this machine.
fn parse(text: &str) -> Option<(Host, u16)> {
    let (name, port) = split_port(text)?;
    let name = if name == "machine" { MACHINE_HOST } else { name };
    Some((Host::read(name).ok()?, port))
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
