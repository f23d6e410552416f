//! `quack remote`: turns remote control on and off, and prints its token and the link for a phone.

use crate::args::remote::{
    RemoteArgs, RemoteEnableArgs, RemotePairArgs, RemoteTokenArgs, RemoteVerb,
};
use crate::connect::call;
use crate::display::plain;
use crate::exit::{CliError, ExitCode};
use crate::output::{BOLD, CliOutput, DIM, GREEN, YELLOW};
use crate::subcommands::page_tokens;
use anyhow::{Context, bail};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use quackd_protocol::client::{
    RemoteConfigureParams, RemoteData, RemoteStatus, RemoteStatusParams,
};
use quackd_protocol::foreign_text::is_unsafe;
use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use serde::Serialize;
use std::fmt::Write;
use std::io::{IsTerminal, Read};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Default port of a link if the user gives only a host.
const USUAL_PORT: u16 = 43111;

/// Maximum length of a token on stdin, in bytes.
const MAX_TOKEN: u64 = 4096;

/// Runs the subcommand.
pub(crate) async fn run(args: RemoteArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match args.verb {
        None | Some(RemoteVerb::Status(_)) => status(output).await,
        Some(RemoteVerb::Enable(args)) => enable(args, output).await,
        Some(RemoteVerb::Disable(_)) => {
            let off = RemoteConfigureParams { enabled: Some(false), ..Default::default() };
            show(&call(off, output).await?, output)
        }
        Some(RemoteVerb::Pair(args)) => pair(args, output).await,
        Some(RemoteVerb::Token(args)) => token(args, output).await,
        Some(RemoteVerb::Tokens(args)) => page_tokens::run(args, output).await,
    }
}

/// `--json` document of all subcommands except `status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RemoteOutput<'a> {
    #[serde(flatten)]
    data: &'a RemoteData,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair_link: Option<&'a str>,
}

impl<'a> RemoteOutput<'a> {
    fn of(data: &'a RemoteData) -> Self {
        Self { data, public_url: None, pair_link: None }
    }
}

async fn status(output: CliOutput) -> anyhow::Result<ExitCode> {
    let data = call(RemoteStatusParams::default(), output).await?;
    if output.is_json() {
        output.document(&data.status)?;
        return Ok(ExitCode::Ok);
    }
    output.text(&render(&data.status))?;
    warn_of(&data.status, output);
    Ok(ExitCode::Ok)
}

async fn enable(args: RemoteEnableArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = RemoteConfigureParams {
        enabled: Some(true),
        host: args.host,
        port: args.port,
        tls_cert_path: absolute(args.tls_cert)?,
        tls_key_path: absolute(args.tls_key)?,
        auth_token: checked(args.token)?,
        rotate_token: Some(args.rotate_token),
        include_token: Some(true),
    };
    show(&call(params, output).await?, output)
}

async fn token(args: RemoteTokenArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let data = set_token(checked(args.value)?, args.rotate, output).await?;
    let token = known(&data)?;
    output.show(&RemoteOutput::of(&data), || format!("{token}\n"))?;
    Ok(ExitCode::Ok)
}

/// Sets the token to `value`, or to a new one if `rotate`. Returns the status with the token.
async fn set_token(
    value: Option<String>,
    rotate: bool,
    output: CliOutput,
) -> anyhow::Result<RemoteData> {
    if value.is_none() && !rotate {
        return call(RemoteStatusParams { include_token: true }, output).await;
    }

    let params = RemoteConfigureParams {
        auth_token: value,
        rotate_token: Some(rotate),
        include_token: Some(true),
        ..Default::default()
    };
    call(params, output).await
}

async fn pair(args: RemotePairArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    // Checked before a rotation, which makes the old token invalid.
    let public = args.public_url.as_deref().map(public_url).transpose()?;
    let data = set_token(None, args.rotate_token, output).await?;
    let token = known(&data)?;
    let url = public.or_else(|| reachable(&data.status, lan_address));
    let link = url.as_ref().map(|url| pair_link(url, token, &host_name()));

    if output.is_json() {
        let (public_url, pair_link) = (url.as_deref(), link.as_deref());
        output.document(&RemoteOutput { data: &data, public_url, pair_link })?;
    } else {
        let link = link.as_deref().unwrap_or_default();
        // Scripts need only the link. Users at a terminal can scan the QR code.
        if std::io::stdout().is_terminal() {
            output.text(&code(link))?;
        }
        output.text(&if link.is_empty() { String::new() } else { format!("{link}\n") })?;
    }

    if url.is_none() {
        output.warning(
            "a phone cannot reach this machine under 127.0.0.1: say how it does with --public-url, or \
             listen on another address with `quack remote enable --host`",
        );
    }

    if !data.status.listening {
        output.warning("remote control does not listen; `quack remote enable` turns it on");
    }
    Ok(if url.is_some() { ExitCode::Ok } else { ExitCode::Failed })
}

fn known(data: &RemoteData) -> anyhow::Result<&str> {
    match (&data.auth_token, data.status.token_configured) {
        (Some(token), _) => Ok(token),
        (None, false) => bail!("there is no token yet; `quack remote enable` makes one"),
        (None, true) => bail!(
            "the token is known as a hash only; `quack remote token --rotate` makes a new one"
        ),
    }
}

fn show(data: &RemoteData, output: CliOutput) -> anyhow::Result<ExitCode> {
    output.show(&RemoteOutput::of(data), || {
        let mut text = render(&data.status);
        if let Some(token) = &data.auth_token {
            line(&mut text, "Token", &plain(token));
        }
        text
    })?;
    warn_of(&data.status, output);
    Ok(ExitCode::Ok)
}

/// Prints warnings about risky settings to stderr, also with `--json`.
fn warn_of(status: &RemoteStatus, output: CliOutput) {
    if status.enabled && !is_loopback(&status.host) && !status.tls_enabled {
        output.warning(
            "without TLS, others on the network can read the token and all data; --tls-cert and \
             --tls-key turn TLS on",
        );
    }
    if status.token_is_short {
        output.warning(&format!(
            "the token has less than {MIN_REMOTE_TOKEN_BYTES} characters and could be guessed; `quack remote \
             token --rotate` makes another one"
        ));
    }
    if let (true, Some(reason)) = (status.enabled, &status.last_error) {
        output.warning(&format!("remote control does not listen: {}", plain(reason)));
    }
}

fn render(status: &RemoteStatus) -> String {
    let mut text = String::new();

    let state = match (status.enabled, status.listening) {
        (_, true) => format!("{GREEN}listening{GREEN:#}"),
        (true, false) => format!("{YELLOW}enabled, not listening{YELLOW:#}"),
        (false, false) => format!("{DIM}disabled{DIM:#}"),
    };

    let transport = if status.tls_enabled { "https + wss" } else { "http + ws" };
    let token = if status.token_configured { "configured" } else { "missing" };
    let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), plain);

    line(&mut text, "State", &state);
    line(&mut text, "Host", &plain(&status.host));
    line(&mut text, "Port", &status.port.to_string());
    line(&mut text, "Transport", transport);
    line(&mut text, "Auth Token", token);
    line(&mut text, "HTTP URL", &or_none(&status.http_url));
    line(&mut text, "WebSocket", &or_none(&status.ws_url));
    line(&mut text, "Clients", &status.connected_clients.to_string());
    line(&mut text, "Token Updated", &or_none(&status.token_updated_at));

    if status.last_error.is_some() {
        line(&mut text, "Last Error", &or_none(&status.last_error));
    }
    text
}

fn line(text: &mut String, label: &str, value: &str) {
    // Writing to a String cannot fail.
    writeln!(text, "{BOLD}{label:<15}{BOLD:#}{value}").ok();
}

/// Returns the token of an option, or for `-` the token on stdin. Rejects a blank or short token.
fn checked(token: Option<String>) -> anyhow::Result<Option<String>> {
    let Some(mut token) = token else { return Ok(None) };
    if token == "-" {
        token.clear();
        let read = std::io::stdin().lock().take(MAX_TOKEN).read_to_string(&mut token);
        read.context("cannot read the token from stdin")?;
    }

    let token = token.trim().to_owned();
    if token.is_empty() {
        return Err(CliError::usage("the token is empty").into());
    }
    if token.len() < MIN_REMOTE_TOKEN_BYTES {
        return Err(CliError::usage(format!(
            "the token must have at least {MIN_REMOTE_TOKEN_BYTES} characters; `quack remote token --rotate` \
             makes one"
        ))
        .into());
    }
    Ok(Some(token))
}

/// Makes a path absolute, because the daemon has another working directory. An empty path stays empty: it clears the
/// setting.
fn absolute(path: Option<PathBuf>) -> anyhow::Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    if path == Path::new("") {
        return Ok(Some(String::new()));
    }
    let path = std::path::absolute(&path).context("cannot find the absolute path")?;
    let text = path.to_str().map(str::to_owned);
    text.map(Some).ok_or_else(|| CliError::usage("the path of a certificate must be UTF-8").into())
}

/// Parses the user's `--public-url` into the beginning of a URL.
pub(super) fn public_url(text: &str) -> anyhow::Result<String> {
    let text = text.trim();
    let (scheme, host) = text.split_once("://").unwrap_or(("", text));

    let host = host.trim_end_matches('/');
    let is_bad = |c: char| c.is_whitespace() || is_unsafe(c);
    if host.is_empty() || host.contains(is_bad) || !["", "http", "https"].contains(&scheme) {
        return Err(CliError::usage(format!("not a URL or host: {}", plain(text))).into());
    }

    if !scheme.is_empty() {
        return Ok(format!("{scheme}://{host}"));
    }

    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if host.ends_with(".ts.net") {
        // Tailscale serves this host over HTTPS with its own certificate.
        format!("https://{host}")
    } else if has_port {
        format!("http://{host}")
    } else {
        format!("http://{host}:{USUAL_PORT}")
    })
}

/// Returns the URL under which other machines reach the listener. `None` if they cannot.
fn reachable(status: &RemoteStatus, lan: impl Fn() -> Option<IpAddr>) -> Option<String> {
    if is_loopback(&status.host) {
        return None;
    }
    let address: Option<IpAddr> = status.host.parse().ok();
    let host = match address {
        Some(all) if all.is_unspecified() => lan().map(|address| address.to_string())?,
        _ => status.host.clone(),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("{}://{host}:{}", status.protocol, status.port))
}

/// Returns this machine's address on its network. Asks the kernel for the outgoing address and sends nothing.
fn lan_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // An address for documentation (RFC 5737), which only the default route covers.
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn pair_link(url: &str, token: &str, name: &str) -> String {
    let (url, token, name) = (escaped(url), escaped(token), escaped(name));
    format!("rubberduck://pair?host={url}&token={token}&displayName={name}")
}

/// Draws the link as a QR code of half blocks, light on dark, because most terminals are dark. Empty for an empty or
/// too long link.
pub(super) fn code(link: &str) -> String {
    if link.is_empty() {
        return String::new();
    }
    let Ok(code) = QrCode::new(link) else { return String::new() };
    let (dark, light) = (Dense1x2::Light, Dense1x2::Dark);
    let picture = code.render::<Dense1x2>().dark_color(dark).light_color(light).build();
    format!("{picture}\n\n")
}

/// Percent-encodes the characters with a meaning in URLs.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            write!(out, "%{byte:02X}").ok();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_becomes_a_url_that_a_phone_can_dial() {
        for (said, url) in [
            ("mac.local", "http://mac.local:43111"),
            ("mac.local:80", "http://mac.local:80"),
            ("mac.tail1.ts.net", "https://mac.tail1.ts.net"),
            ("https://duck.example/ ", "https://duck.example"),
            ("http://10.0.0.1:1", "http://10.0.0.1:1"),
        ] {
            assert_eq!(public_url(said).unwrap(), url);
        }
        for bad in ["", " ", "ftp://a", "a b", "https://"] {
            assert!(public_url(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nothing_reaches_what_listens_on_this_machine_only() {
        let status = |host: &str| RemoteStatus {
            host: host.into(),
            port: 7,
            protocol: "http".into(),
            ..Default::default()
        };
        let url = |host: &str| reachable(&status(host), || Some("192.168.0.9".parse().unwrap()));
        for local in ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"] {
            assert_eq!(url(local), None, "{local}");
        }
        assert_eq!(url("0.0.0.0").unwrap(), "http://192.168.0.9:7");
        assert_eq!(url("fd00::1").unwrap(), "http://[fd00::1]:7");
        assert_eq!(url("mac.local").unwrap(), "http://mac.local:7");
        assert_eq!(reachable(&status("0.0.0.0"), || None), None);
    }

    #[test]
    fn a_link_carries_any_text() {
        assert_eq!(
            pair_link("http://a:1", "t+/= &", "Björn's Mac"),
            "rubberduck://pair?host=http%3A%2F%2Fa%3A1&token=t%2B%2F%3D%20%26&displayName=Bj%C3%B6rn%27s%20Mac"
        );
    }

    #[test]
    fn a_link_is_a_square_that_a_camera_reads() {
        let picture = code("rubberduck://pair?host=http%3A%2F%2Fa%3A43111&token=x&displayName=y");
        let widths: Vec<usize> =
            picture.trim_end().lines().map(|line| line.chars().count()).collect();
        assert!(widths.len() * 2 >= widths[0] && widths.iter().all(|width| *width == widths[0]));
        assert_eq!((code(""), code(&"x".repeat(5000))), (String::new(), String::new()));
    }

    #[test]
    fn the_state_is_a_line_for_each_fact() {
        let status = RemoteStatus {
            enabled: true,
            host: "0.0.0.0".into(),
            port: 43111,
            protocol: "http".into(),
            token_configured: true,
            last_error: Some("taken".into()),
            ..Default::default()
        };
        let text = anstream::adapter::strip_str(&render(&status)).to_string();
        let labels: Vec<&str> =
            text.lines().map(|line| line.get(..15).unwrap().trim_end()).collect();
        assert_eq!(
            labels,
            [
                "State",
                "Host",
                "Port",
                "Transport",
                "Auth Token",
                "HTTP URL",
                "WebSocket",
                "Clients",
                "Token Updated",
                "Last Error"
            ]
        );
        assert!(text.contains("enabled, not listening") && text.contains("http + ws"), "{text}");
    }
}
