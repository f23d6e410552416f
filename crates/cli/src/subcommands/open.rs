//! `quack open`: opens the page in a browser.

use crate::args::remote::OpenArgs;
use crate::connect::call;
use crate::display::plain;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::platform::opener;
use crate::subcommands::remote::{code, is_loopback, public_url};
use anyhow::bail;
use quackd_process::spawn_on_desktop_blocking;
use quackd_protocol::client::{
    PageCodeParams, PageRights, RemoteConfigureParams, RemoteStatus, RemoteStatusParams,
};
use serde::Serialize;
use std::io::IsTerminal;
use std::net::IpAddr;

/// Host of remote control that `quack open` turns on.
const THIS_MACHINE: &str = "127.0.0.1";

/// `--json` document of `quack open`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenOutput<'a> {
    url: &'a str,
    link: &'a str,
    valid_ms: u64,
    rights: PageRights,
}

/// Runs `quack open`.
pub(crate) async fn run(args: OpenArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let public = args.public_url.as_deref().map(public_url).transpose()?;
    let status = call(RemoteStatusParams::default(), output).await?.status;
    if !status.listening {
        turn_on(&status, output).await?;
    }

    let OpenArgs { approvals, apply, terminals, print, .. } = args;
    let rights = PageRights { approvals, apply, terminals };
    let host = public.as_deref().and_then(host_name).map(str::to_owned);
    let made = call(PageCodeParams { rights, host }, output).await?;
    let url = public.unwrap_or_else(|| page_url(&made.status));
    // The browser sends a fragment to no server.
    let link = format!("{url}/#code={}", made.code);

    if output.is_json() {
        output.document(&OpenOutput { url: &url, link: &link, valid_ms: made.valid_ms, rights })?;
        return Ok(ExitCode::Ok);
    }
    if let Some(program) = opener().filter(|_| !print) {
        match spawn_on_desktop_blocking(program, &[&link]) {
            Ok(()) => {
                output.text(&format!("Opened {} in the browser\n", plain(&url)))?;
                return Ok(ExitCode::Ok);
            }
            Err(error) => output.warning(&format!("cannot start {program}: {error}")),
        }
    }
    // A phone cannot open a link to this machine itself.
    if std::io::stdout().is_terminal() && !is_loopback(host_of(&url)) {
        output.text(&code(&link))?;
    }
    output.text(&format!("{}\n", plain(&link)))?;
    Ok(ExitCode::Ok)
}

/// Turns remote control on. If it was off, other machines do not reach it.
async fn turn_on(status: &RemoteStatus, output: CliOutput) -> anyhow::Result<()> {
    let is_exposed = !status.enabled && !is_loopback(&status.host);
    let on = RemoteConfigureParams {
        enabled: Some(true),
        host: is_exposed.then(|| THIS_MACHINE.to_owned()),
        ..Default::default()
    };
    let status = call(on, output).await?.status;
    if !status.listening {
        let why = status.last_error.unwrap_or_default();
        bail!(
            "remote control does not listen: {}; `quack remote enable --port PORT` chooses another port",
            plain(&why)
        );
    }
    if is_exposed {
        output.warning("remote control listens on this machine only now; `quack remote enable --host` changes it");
    }
    Ok(())
}

/// Returns the URL of the page for a browser on this machine.
fn page_url(status: &RemoteStatus) -> String {
    let host = status.host.trim_start_matches('[').trim_end_matches(']');
    let host = match host.parse::<IpAddr>() {
        Ok(all) if all.is_unspecified() => THIS_MACHINE.to_owned(),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    };
    format!("{}://{host}:{}", status.protocol, status.port)
}

/// Returns the host of a URL without a path.
fn host_of(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Returns the host of a URL if it is a name. The daemon needs no permission for addresses.
fn host_name(url: &str) -> Option<&str> {
    let host = host_of(url);
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    (!is_address && !is_loopback(host)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_at_an_address_that_a_browser_here_can_dial() {
        let url = |host: &str| {
            let status = RemoteStatus {
                host: host.into(),
                port: 7,
                protocol: "http".into(),
                ..Default::default()
            };
            page_url(&status)
        };
        assert_eq!(url("127.0.0.1"), "http://127.0.0.1:7");
        assert_eq!(url("0.0.0.0"), "http://127.0.0.1:7");
        assert_eq!(url("::"), "http://127.0.0.1:7");
        assert_eq!(url("::1"), "http://[::1]:7");
        assert_eq!(url("mac.local"), "http://mac.local:7");
    }

    #[test]
    fn only_a_name_needs_a_permission() {
        assert_eq!(host_name("https://mac.tail1.ts.net"), Some("mac.tail1.ts.net"));
        assert_eq!(host_name("http://mac.local:43111"), Some("mac.local"));
        for own in
            ["http://127.0.0.1:1", "http://localhost:1", "http://[fd00::1]:1", "http://10.0.0.1"]
        {
            assert_eq!(host_name(own), None, "{own}");
        }
    }
}
