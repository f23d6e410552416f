//! The socket by which commands reach the user's ssh agent, and the keys of hosts that ssh in a session knows. The session's
//! proxy serves the socket, outside.

use crate::confinement_result::ConfinementResult;
use crate::private_files;
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

/// Maximum size of the user's `known_hosts`, in bytes.
const MAX_KNOWN_HOSTS_FILE: u64 = 1024 * 1024;

/// Hosts of repositories for everyone, so that their names tell a session nothing.
const FORGES: [&str; 7] = [
    "github.com",
    "ssh.github.com",
    "gitlab.com",
    "altssh.gitlab.com",
    "bitbucket.org",
    "codeberg.org",
    "git.sr.ht",
];

/// Whether the proxy serves credentials to commands of this tier and policy.
pub(crate) fn is_served(tier: Tier, policy: &Policy) -> bool {
    tier.has_namespaces() && !policy.network
}

/// Lines of the user's `known_hosts` for the session's. Empty if the session has no ssh agent.
#[derive(Debug, Default)]
pub(crate) struct KnownHosts(String);

impl KnownHosts {
    /// Reads the lines about forges and about hosts that the session's rules name. Lines with hashed names are left out.
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

/// The lines about forges and these hosts, without other names of the same lines.
fn lines_about(text: &str, hosts: &[String]) -> String {
    let is_meant = |name: &&str| {
        let host = name.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
        let host = host.map_or(*name, |(host, _port)| host);
        let mut all = FORGES.into_iter().chain(hosts.iter().map(String::as_str));
        all.any(|known| known.eq_ignore_ascii_case(host))
    };

    let mut lines = String::new();
    for line in text.lines() {
        // A mark tells that a key is revoked, or signs keys of hosts.
        let (mark, rest) = match line.split_once(' ') {
            Some((mark, rest)) if mark.starts_with('@') => (format!("{mark} "), rest),
            _ => (String::new(), line),
        };
        let Some((names, key)) = rest.split_once([' ', '\t']) else { continue };

        let names: Vec<&str> = names.split(',').filter(is_meant).collect();
        if !names.is_empty() {
            lines.push_str(&format!("{mark}{} {key}\n", names.join(",")));
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
        let hosts = ["build.example".to_owned()];
        assert_eq!(
            lines_about(text, &hosts),
            "github.com ssh-ed25519 AAAA\n[Build.example]:2222 ssh-rsa BBBB comment\n@revoked build.example ssh-rsa EEEE\n"
        );
        assert_eq!(lines_about(text, &[]), "github.com ssh-ed25519 AAAA\n");
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
