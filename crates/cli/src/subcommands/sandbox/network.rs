//! `quack sandbox network`, `presets` and `explain HOST`: requests of commands for hosts, lists of hosts, and the verdict
//! about one host.

use super::request::{WORKER_TIMEOUT, ask};
use crate::args::SessionArgs;
use crate::args::sandbox::{SandboxNetworkArgs, SandboxPresetsArgs};
use crate::connect::start_and_connect;
use crate::display::{bytes, plain, table};
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref::Missing;
use crate::time_format::local;
use jiff::tz::TimeZone;
use quackd_protocol::client::{
    HostTotals, HostVerdict, NetworkData, NetworkRequest, PresetInfo, SandboxExplainHost,
    SandboxNetwork, SandboxPresets, SandboxSession,
};
use quackd_protocol::denial::of_session;
use quackd_protocol::limits::REPLY_TIMEOUT;
use quackd_protocol::network::Verdict;
use quackd_protocol::policy::NetworkMode;
use quackd_protocol::state::FoundHost;
use std::time::Duration;

/// Time between two requests of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Lists the requests, and with `--follow` also new ones until the user interrupts it. Polls the
/// daemon.
pub(super) async fn network(
    args: SandboxNetworkArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let choice = args.which.into_which();
    let params = |session| SandboxNetwork { session, after: None };
    let mut data = ask(&choice, Missing::Refuse, params, REPLY_TIMEOUT, output).await?;

    if args.denied {
        data.requests.retain(is_denied);
        data.hosts.retain(|host| host.denied != 0);
    }

    let zone = TimeZone::system();
    if !args.follow {
        output.show(&data, || totals(&data, &zone))?;
    }

    if args.follow || args.requests {
        print(&data.requests, &zone, output, args.follow)?;
    }

    if !args.follow {
        return Ok(ExitCode::Ok);
    }

    let daemon = start_and_connect(output).await?;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let session = SandboxSession::of(data.session_id.0.clone());
        let params = SandboxNetwork { session, after: Some(data.last) };
        let next = daemon.client.call(params).await?;

        let requests = next.requests.into_iter();
        let requests: Vec<_> =
            requests.filter(|request| !args.denied || is_denied(request)).collect();
        print(&requests, &zone, output, true)?;
        data.last = next.last;
    }
}

fn print(
    requests: &[NetworkRequest],
    zone: &TimeZone,
    output: CliOutput,
    is_stream: bool,
) -> anyhow::Result<()> {
    // One document has the requests already.
    if output.is_json() && !is_stream {
        return Ok(());
    }
    for request in requests {
        output.show(request, || line(request, zone))?;
    }
    Ok(())
}

fn is_denied(request: &NetworkRequest) -> bool {
    matches!(request.entry.verdict, Verdict::Denied(_))
}

fn line(request: &NetworkRequest, zone: &TimeZone) -> String {
    let entry = &request.entry;
    let at = local(&request.at, zone);
    let target = match entry.port {
        0 => plain(&entry.host),
        port => format!("{}:{port}", plain(&entry.host)),
    };
    let rule = entry.rule.as_deref().map(|rule| format!("  {DIM}{}{DIM:#}", plain(rule)));

    let result = match entry.verdict {
        Verdict::Allowed => format!(
            "allowed  sent {}, received {} in {} ms",
            bytes(entry.sent),
            bytes(entry.received),
            entry.took_ms
        ),
        Verdict::Denied(reason) => format!("{BOLD}denied{BOLD:#}  {reason}"),
        Verdict::Failed(reason) => format!("failed  {}", word(&reason)),
    };

    let path = word(&entry.path);
    format!("{DIM}{at}{DIM:#}  {target}  {path}  {result}{}\n", rule.unwrap_or_default())
}

/// Returns the name of a value on the wire.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn totals(data: &NetworkData, zone: &TimeZone) -> String {
    if data.hosts.is_empty() && data.mode == NetworkMode::Off {
        let of = of_session(&plain(&data.label));
        return format!(
            "network off: no request has reached the proxy; `quack sandbox denials{of}` lists other denials\n"
        );
    }
    if data.hosts.is_empty() {
        return format!("network {}; no requests since the daemon started\n", data.mode);
    }

    let head = ["HOST", "ALLOWED", "DENIED", "FAILED", "SENT", "RECEIVED", "LAST"];
    let row = |host: &HostTotals| {
        [
            plain(&host.host),
            host.allowed.to_string(),
            host.denied.to_string(),
            host.failed.to_string(),
            bytes(host.sent),
            bytes(host.received),
            local(&host.last_at, zone),
        ]
    };

    let rows: Vec<_> = data.hosts.iter().map(row).collect();
    let more = match data.dropped {
        0 => String::new(),
        n => format!("{n} more requests were not counted: there were too many at once\n"),
    };
    format!("network {}\n{}{more}", data.mode, table(head, [0; 7], &rows))
}

/// Lists the presets with their hosts, or those with the given names.
pub(super) async fn presets(
    args: SandboxPresetsArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let daemon = start_and_connect(output).await?;
    let params = SandboxPresets { rules: Some(args.names), ..SandboxPresets::default() };
    // A preset may ask the user's tools.
    let data = daemon.client.call_within(params, WORKER_TIMEOUT).await?;

    output.show(&data, || data.presets.iter().map(preset).collect())?;
    Ok(ExitCode::Ok)
}

fn preset(preset: &PresetInfo) -> String {
    let tested = preset.tested.as_deref().filter(|_| !preset.derived);
    let tested = tested.map(|date| format!("  {DIM}tested {}{DIM:#}", plain(date)));
    let tested = tested.unwrap_or_default();

    let (name, about) = (plain(&preset.name), plain(&preset.about));
    let mut text = format!("{BOLD}@{name}{BOLD:#}  {about}{tested}\n");
    let mut line = |line: String| text.push_str(&format!("  {line}\n"));

    if preset.derived {
        for FoundHost { rule, source } in &preset.found {
            line(format!("{}  {DIM}{}{DIM:#}", plain(rule), plain(source)));
        }
        match &preset.found_at {
            Some(at) => line(format!("found {}", plain(at))),
            None => line(format!("no hosts yet: quack sandbox presets {name} asks your tools")),
        }
    } else {
        preset.hosts.iter().for_each(|host| line(plain(host)));
    }

    preset.problems.iter().for_each(|problem| line(format!("note: {}", plain(problem))));
    preset.warning.iter().for_each(|warning| line(format!("warning: {}", plain(warning))));
    text
}

/// Prints the verdict about a connection to `host`, and the command that changes it.
pub(super) async fn explain_host(
    host: String,
    choice: &SessionArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let params = |session| SandboxExplainHost { session, host: Some(host) };
    let data = ask(choice, Missing::Create, params, REPLY_TIMEOUT, output).await?;

    output.show(&data, || {
        let change = data.change.as_deref().map(|change| {
            let to = if data.verdict == HostVerdict::Allowed { "restrict" } else { "allow" };
            format!("  to {to} it: {}\n", plain(change))
        });
        let text: String = data.text.lines().map(|line| plain(line) + "\n").collect();
        text + &change.unwrap_or_default()
    })?;
    Ok(ExitCode::Ok)
}

/// Last labels of names that no registry gives away.
const LOCAL_SUFFIXES: [&str; 8] =
    ["corp", "example", "home", "internal", "lan", "local", "localhost", "test"];

/// Returns true if the argument of `explain` is a host and no path.
pub(super) fn is_host(text: &str) -> bool {
    use quackd_policy::hosts::{Host, is_registered};

    let is_path = text.contains(['/', '\\'])
        || text.starts_with(['.', '~'])
        || std::path::Path::new(text).exists();
    if is_path {
        return false;
    }

    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match Host::read(text) {
        _ if has_port => true,
        Ok(Host::Address(_)) => true,
        // The name of a file with an extension would also be a host; a registered domain could not.
        Ok(Host::Name(name)) => {
            let last = name.rsplit('.').next().unwrap_or_default();
            is_registered(&name) || LOCAL_SUFFIXES.contains(&last)
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_paths() {
        for host in
            ["example.com", "registry.example.org:443", "10.0.0.1", "localhost", "localhost:80"]
        {
            assert!(is_host(host), "{host}");
        }
        for path in
            ["src/main.rs", "./a", "~/.ssh", "Makefile", ".git", "/etc/hosts", "main.bak", ""]
        {
            assert!(!is_host(path), "{path}");
        }
    }
}
