//! The socket by which commands reach the user's ssh agent, and the keys of hosts that ssh in a session knows. The session's
//! proxy serves the socket, outside.

use crate::confinement_result::ConfinementResult;
use crate::private_files;
use quackd_policy::known_hosts::{
    COMMON_HOSTS, HostNames, KnownHostLine, MAX_KNOWN_HOSTS_FILE, split_port,
};
use quackd_protocol::credentials::AGENT_SOCKET_NAME;
use quackd_protocol::network::SocketKind;
use quackd_protocol::policy::Policy;
use quackd_protocol::tiers::Tier;
use quackd_protocol::worker::Start;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Variable that names the socket of an ssh agent.
const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";

/// Whether the proxy serves credentials to commands of this tier and policy.
pub(crate) fn is_served(tier: Tier, policy: &Policy) -> bool {
    tier.has_namespaces() && !policy.network
}

/// Lines of the user's `known_hosts` for the session's. Empty if the session has no ssh agent.
#[derive(Debug, Default)]
pub(crate) struct KnownHosts(String);

impl KnownHosts {
    /// Reads the lines about common hosts and about hosts that the session's rules name.
    pub(crate) fn read_blocking(start: &Start) -> Self {
        if !start.credentials.ssh || start.sandbox.policy.network {
            return Self::default();
        }
        let file = Path::new(&start.sandbox.home).join(".ssh/known_hosts");
        // Other kinds of files could block. Without the file, ssh knows no host.
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Self::default();
        }

        let mut bytes = Vec::new();
        let read = File::open(&file)
            .and_then(|file| file.take(MAX_KNOWN_HOSTS_FILE).read_to_end(&mut bytes));
        if read.is_err() {
            return Self::default();
        }
        Self(lines_about(&String::from_utf8_lossy(&bytes), &start.credentials.hosts))
    }
}

/// Returns the lines about common hosts and these, without other names of the same lines. Hashed names become plain.
fn lines_about(text: &str, hosts: &[String]) -> String {
    let named = COMMON_HOSTS.into_iter().chain(hosts.iter().map(String::as_str));
    // Without a line for a host and its port, ssh takes one for the host.
    let mut meant = HostNames::new(named.flat_map(|name| [name, split_port(name).0]));

    let mut lines = String::new();
    for KnownHostLine { marker, names, key } in text.lines().filter_map(KnownHostLine::parse) {
        let names = match meant.find_hashed(names) {
            Some(name) => name.to_owned(),
            None => {
                let is_meant = |name: &&str| meant.contains(split_port(name).0);
                names.split(',').filter(is_meant).collect::<Vec<_>>().join(",")
            }
        };
        if !names.is_empty() {
            lines.push_str([marker, &names, key].join(" ").trim_start());
            lines.push('\n');
        }
    }
    lines
}

/// Opens the socket in the private home and writes `known_hosts`. `None` if the session may not use the user's agent, or has
/// another one. A failure is a note. Called after the confinement, before the first command.
pub(crate) fn open_blocking(
    confined: &mut ConfinementResult,
    start: &Start,
    known_hosts: &KnownHosts,
) -> Option<(SocketKind, OwnedFd)> {
    let is_served = confined.report.tier.is_some_and(|tier| is_served(tier, &start.sandbox.policy));
    let is_listed = start.env.iter().any(|(name, _)| name == AGENT_VARIABLE);
    if !start.credentials.ssh || !is_served || is_listed {
        return None;
    }

    let home = confined.private_home.as_deref();
    let opened = home.ok_or_else(|| io::Error::other("the session has no private home"));
    let opened = opened.and_then(|home| {
        write_known_hosts_blocking(home, known_hosts)?;
        listen_blocking(home)
    });
    match opened {
        Ok((listener, path)) => {
            confined.env.push((AGENT_VARIABLE, path));
            Some((SocketKind::SshAgent, listener.into()))
        }
        Err(error) => {
            let note = format!("commands do not reach your ssh agent: {error}");
            confined.report.notes.push(note);
            None
        }
    }
}

fn listen_blocking(home: &Path) -> io::Result<(UnixListener, String)> {
    let path = home.join(AGENT_SOCKET_NAME);
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok((listener, path.display().to_string()))
}

fn write_known_hosts_blocking(home: &Path, KnownHosts(lines): &KnownHosts) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let directory = home.join(".ssh");
    match DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => private_files::write_blocking(&directory, "known_hosts", lines),
        // The policy shows the user's directory.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_knows_the_keys_of_its_hosts_and_of_forges_only() {
        let text = "# comment\n\ngithub.com,140.82.121.3 ssh-ed25519 AAAA\n[Build.example]:2222 ssh-rsa BBBB comment\n\
                    secret.example ssh-rsa CCCC\n|1|salt=|hash= ssh-rsa DDDD\n\
                    @revoked build.example\tssh-rsa EEEE\n*.example ssh-rsa FFFF\nbuild.example\n";
        let hosts = ["[build.example]:2222".to_owned()];
        assert_eq!(
            lines_about(text, &hosts),
            "github.com ssh-ed25519 AAAA\n[Build.example]:2222 ssh-rsa BBBB comment\n@revoked build.example ssh-rsa EEEE\n"
        );
        assert_eq!(lines_about(text, &[]), "github.com ssh-ed25519 AAAA\n");
    }

    #[test]
    fn hashed_names_of_these_hosts_become_plain() {
        // `github.com` and `[build.example]:2222`.
        let text = "|1|4VA1dUvd7DEpSjG7vljTBs+YRcE=|AC4wUjYeu4Gyfanu7H//53uPILc= ssh-ed25519 AAAA\n\
                    @revoked |1|yNA3BhKKgf1wiYL9kJEVIiIg04I=|E/CJuwTVxmIp4GsXNwWhXPcK7Y0= ssh-rsa BBBB\n";
        let github = "github.com ssh-ed25519 AAAA\n";
        let hosts = ["[build.example]:2222".to_owned()];
        let both = format!("{github}@revoked [build.example]:2222 ssh-rsa BBBB\n");
        assert_eq!(lines_about(text, &hosts), both);
        assert_eq!(lines_about(text, &["build.example".to_owned()]), github);
    }

    #[test]
    fn only_the_user_reaches_the_socket_and_no_file_of_the_user_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let (_listener, path) = listen_blocking(home.path()).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(listen_blocking(home.path()).is_err());
        let lines = KnownHosts("github.com ssh-ed25519 AAAA\n".to_owned());
        write_known_hosts_blocking(home.path(), &lines).unwrap();
        let file = home.path().join(".ssh/known_hosts");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), lines.0);
        std::fs::write(&file, "mine").unwrap();
        write_known_hosts_blocking(home.path(), &lines).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}
