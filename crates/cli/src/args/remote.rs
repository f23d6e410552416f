//! Arguments of `quack remote`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Control remote access over HTTP and WebSockets
///
/// A phone or a program on another machine connects with a token. Remote access is off by default. The token grants the
/// rights that you have in your sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote                       show the status\n  quack remote enable\n  \
    quack remote enable --host 192.168.1.20 --tls-cert cert.pem --tls-key key.pem\n  \
    quack remote pair --public-url mac.tail1234.ts.net\n  quack remote token --rotate\n  quack remote tokens                tokens of pages\n  \
    quack remote disable"
)]
pub(crate) struct RemoteArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<RemoteVerb>,
}

/// Subcommands of `quack remote`.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteVerb {
    Status(RemoteStatusArgs),
    Enable(RemoteEnableArgs),
    Disable(RemoteDisableArgs),
    Pair(RemotePairArgs),
    Token(RemoteTokenArgs),
    Tokens(RemoteTokensArgs),
}

/// Show whether remote control listens, its address and its clients
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack remote status\n  quack remote status --json")]
pub(crate) struct RemoteStatusArgs {}

/// Turn remote control on, or change its settings
///
/// Omitted settings keep their values. Exits with 0 even if remote control is on but cannot listen. The output then
/// reports the failure.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote enable\n  quack remote enable --host 0.0.0.0 --port 8443 \
    --tls-cert cert.pem --tls-key key.pem\n  quack remote enable --tls-cert '' --tls-key ''     without TLS again"
)]
pub(crate) struct RemoteEnableArgs {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Port to listen on; 0 selects a free port
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Certificate as a PEM file; '' for none
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key as a PEM file; '' for none
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Set this token; `-` reads it from stdin
    #[arg(long, value_name = "TOKEN", conflicts_with = "rotate_token", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// Create a new token and disconnect clients with the old one
    #[arg(long)]
    pub(crate) rotate_token: bool,
}

/// Turn remote control off and keep the token
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack remote disable\n  quack remote disable --json")]
pub(crate) struct RemoteDisableArgs {}

/// Print the link that connects the phone app to this machine, with the token
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote pair\n  quack remote pair --public-url mac.tail1234.ts.net\n  \
    quack remote pair --public-url https://duck.example --rotate-token --json"
)]
pub(crate) struct RemotePairArgs {
    /// URL or host under which the phone reaches this machine
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Create a new token and disconnect clients with the old one
    #[arg(long)]
    pub(crate) rotate_token: bool,
}

/// Print the token, or set another one
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack remote token\n  quack remote token --rotate\n  \
    openssl rand -hex 20 | quack remote token --value -")]
pub(crate) struct RemoteTokenArgs {
    /// Set this token; `-` reads it from stdin
    #[arg(long, value_name = "TOKEN", conflicts_with = "rotate", allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
    /// Create a new token and disconnect clients with the old one
    #[arg(long)]
    pub(crate) rotate: bool,
}

/// List the tokens of pages that `quack open` signed in
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote tokens\n  quack remote tokens revoke 5f0c2a91\n  \
    quack remote tokens revoke --all"
)]
pub(crate) struct RemoteTokensArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<RemoteTokensVerb>,
}

/// Subcommands of `quack remote tokens`.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteTokensVerb {
    Revoke(RemoteRevokeArgs),
}

/// Sign pages out and disconnect them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote tokens revoke 5f0c2a91\n  quack remote tokens revoke --all"
)]
pub(crate) struct RemoteRevokeArgs {
    /// Id of the token
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// Revoke all tokens, and links that were not used yet
    #[arg(long)]
    pub(crate) all: bool,
}

/// Open a page in the browser that shows the sessions of every workspace
///
/// Turns remote control on if it is off, on this machine only. The link signs one browser in, once, within 10 minutes.
/// Without options the page may do what a remote client may do: work in sessions, and no more.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack open\n  quack open --approvals --apply     answer questions, take changes over\n  \
    quack open --print --public-url mac.tail1234.ts.net     a link and a QR code for a phone\n  \
    quack remote tokens                signed-in pages"
)]
pub(crate) struct OpenArgs {
    /// Let the page answer questions about permissions
    #[arg(long)]
    pub(crate) approvals: bool,
    /// Let the page apply, undo and discard changes, and restore files
    #[arg(long)]
    pub(crate) apply: bool,
    /// Let the page type into terminals
    #[arg(long)]
    pub(crate) terminals: bool,
    /// Print the link instead of opening a browser
    #[arg(long)]
    pub(crate) print: bool,
    /// URL or host under which the browser reaches this machine
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
}
