//! The command line of `quack remote`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Lets a phone, or a program on another machine, in: over HTTP and WebSockets, with a token.
///
/// Off until you enable it. Who has the token can do what you can do in your sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote                       how it is\n  quack remote enable\n  \
    quack remote enable --host 192.168.1.20 --tls-cert cert.pem --tls-key key.pem\n  \
    quack remote pair --public-url mac.tail1234.ts.net\n  quack remote token --rotate\n  quack remote disable"
)]
pub(crate) struct RemoteArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<RemoteVerb>,
}

/// What `quack remote` does.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteVerb {
    Status(RemoteStatusArgs),
    Enable(RemoteEnableArgs),
    Disable(RemoteDisableArgs),
    Pair(RemotePairArgs),
    Token(RemoteTokenArgs),
}

/// Says whether remote control listens, where, and who is connected.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack remote status\n  quack remote status --json")]
pub(crate) struct RemoteStatusArgs {}

/// Turns remote control on, or changes it. What is not given stays as it is.
///
/// Exits with 0 also if it is on and cannot listen, which the output then says.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote enable\n  quack remote enable --host 0.0.0.0 --port 8443 \
    --tls-cert cert.pem --tls-key key.pem\n  quack remote enable --tls-cert '' --tls-key ''     without TLS again"
)]
pub(crate) struct RemoteEnableArgs {
    /// Address to listen on; 127.0.0.1 until another one is given
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Certificate, a PEM file; '' for none
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, a PEM file; '' for none
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Token of your own; `-` reads it from stdin
    #[arg(long, value_name = "TOKEN", conflicts_with = "rotate_token", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// Make a new token: whoever has the old one is sent away
    #[arg(long)]
    pub(crate) rotate_token: bool,
}

/// Turns remote control off. The token is kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack remote disable\n  quack remote disable --json")]
pub(crate) struct RemoteDisableArgs {}

/// Prints the link that makes the phone app know this machine, token included.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack remote pair\n  quack remote pair --public-url mac.tail1234.ts.net\n  \
    quack remote pair --public-url https://duck.example --rotate-token --json"
)]
pub(crate) struct RemotePairArgs {
    /// How the phone reaches this machine: a URL or a host
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Make a new token: whoever has the old one is sent away
    #[arg(long)]
    pub(crate) rotate_token: bool,
}

/// Prints the token, or sets another one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack remote token\n  quack remote token --rotate\n  \
    openssl rand -hex 20 | quack remote token --value -")]
pub(crate) struct RemoteTokenArgs {
    /// Token of your own; `-` reads it from stdin
    #[arg(long, value_name = "TOKEN", conflicts_with = "rotate", allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
    /// Make a new one: whoever has the old one is sent away
    #[arg(long)]
    pub(crate) rotate: bool,
}
