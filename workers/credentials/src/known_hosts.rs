//! Finds the names of a host by its key in the user's `known_hosts` files (sshd(8)).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_policy::known_hosts::{HostNames, KnownHostLine, MAX_KNOWN_HOSTS_FILE, split_port};
use quackd_process::Writable;
use quackd_protocol::credentials::{CredentialRefusal, MAX_USES};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Files of the user, relative to the home, and of the system.
const FILES: [&str; 3] = [".ssh/known_hosts", ".ssh/known_hosts2", "/etc/ssh/ssh_known_hosts"];

/// Port of names without one.
const SSH_PORT: u16 = 22;

/// Name of a host, and its port.
pub(crate) type Place = (String, u16);

/// Returns the names of the host with this key, which is a blob. `candidates` are the names for hashed entries, in the form
/// of the files. Files that sessions could change are not read.
///
/// # Errors
/// `UnknownHost` if the key is revoked, or a file cannot be read or is too large: it could revoke the key.
pub(crate) fn names_blocking(
    home: &Path,
    untrusted: &Writable,
    host_key: &[u8],
    candidates: &[String],
) -> Result<Vec<Place>, CredentialRefusal> {
    let mut hashed = HostNames::new(candidates.iter().map(String::as_str));
    let mut found = Vec::new();
    for file in FILES {
        let path = home.join(file);
        if untrusted.held_blocking(&path).is_some() {
            continue;
        }
        let text = match read_blocking(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return Err(CredentialRefusal::UnknownHost),
        };
        found.extend(names(&text, host_key, &mut hashed).ok_or(CredentialRefusal::UnknownHost)?);
    }
    // The rules of the session are most likely about these names, so the limit cuts others.
    let named: HashSet<Place> = candidates.iter().filter_map(|name| place(name)).collect();
    found.sort_by_cached_key(|(host, port)| !named.contains(&(host.to_ascii_lowercase(), *port)));
    found.truncate(MAX_USES);
    Ok(found)
}

fn read_blocking(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_KNOWN_HOSTS_FILE + 1).read_to_end(&mut bytes)?;
    if MAX_KNOWN_HOSTS_FILE < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the names in one file. `None` if the key is revoked.
fn names(text: &str, host_key: &[u8], candidates: &mut HostNames<'_>) -> Option<Vec<Place>> {
    let mut found = Vec::new();
    for line in text.lines().filter_map(KnownHostLine::parse) {
        let key = line.key.split_ascii_whitespace().nth(1);
        if key.and_then(|key| STANDARD.decode(key).ok()).as_deref() != Some(host_key) {
            continue;
        }
        match line.marker {
            "@revoked" => return None,
            "" => found.extend(places(line.names, candidates)),
            _ => {}
        }
    }
    Some(found)
}

/// Returns the names of one line. None for a line with patterns, which could mean any host.
fn places(names: &str, candidates: &mut HostNames<'_>) -> Vec<Place> {
    if names.contains(['*', '?', '!']) {
        return Vec::new();
    }
    if names.starts_with('|') {
        return candidates.find_hashed(names).and_then(place).into_iter().collect();
    }
    names.split(',').filter_map(place).collect()
}

/// Reads `name` or `[name]:port`.
fn place(name: &str) -> Option<Place> {
    let (host, Some(port)) = split_port(name) else { return Some((name.to_owned(), SSH_PORT)) };
    // An address of IPv6 keeps its brackets before a port.
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::{TestDir, write_file};
    use std::os::unix::fs::symlink;

    /// A key, and the two names below hashed by OpenSSH 9.2 (`ssh-keygen -H`).
    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIHa4xMpBDqVuG+RMldxdVrJe43s+z0zFJPJxaO7+hHQG";
    const HASHED: [&str; 2] = [
        "|1|4VA1dUvd7DEpSjG7vljTBs+YRcE=|AC4wUjYeu4Gyfanu7H//53uPILc=",
        "|1|yNA3BhKKgf1wiYL9kJEVIiIg04I=|E/CJuwTVxmIp4GsXNwWhXPcK7Y0=",
    ];

    fn found(text: &str, candidates: &[&str]) -> Option<Vec<String>> {
        let key = STANDARD.decode(KEY).unwrap();
        let mut candidates = HostNames::new(candidates.iter().copied());
        let found = names(text, &key, &mut candidates)?;
        Some(found.into_iter().map(|(host, port)| format!("{host} {port}")).collect())
    }

    fn line(hosts: &str) -> String {
        format!("{hosts} ssh-ed25519 {KEY} me@host\n")
    }

    #[test]
    fn plain_names_and_ports_are_found_by_the_key() {
        let other = KEY.replace("hHQG", "hHQH");
        let text = format!(
            "# {KEY}\n\n{}{}a.example ssh-ed25519 {other}\n",
            line("github.com,140.82.121.3,[build.example]:2222"),
            line("[2001:db8::1]:2222,2001:db8::2")
        );
        let expected = [
            "github.com 22",
            "140.82.121.3 22",
            "build.example 2222",
            "[2001:db8::1] 2222",
            "2001:db8::2 22",
        ];
        assert_eq!(found(&text, &[]).unwrap(), expected);
        assert_eq!(found(&format!("#{}", line("github.com")), &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn hashed_names_are_found_among_the_candidates() {
        let text: String = HASHED.map(line).concat();
        let candidates = ["a.example", "github.com", "[build.example]:2222", "build.example"];
        assert_eq!(found(&text, &candidates).unwrap(), ["github.com 22", "build.example 2222"]);
        assert_eq!(found(&text, &["gitlab.com"]).unwrap(), [""; 0]);
        assert_eq!(found(&line("|1|x|y"), &["x"]).unwrap(), [""; 0]);
    }

    #[test]
    fn patterns_and_authorities_name_no_host_and_a_revoked_key_none_at_all() {
        for hosts in
            ["*.example", "a?.example", "a.example,!b.example", "@cert-authority a.example"]
        {
            assert_eq!(found(&line(hosts), &[]).unwrap(), [""; 0], "{hosts}");
        }
        let text = [line("github.com"), line("@revoked *")].concat();
        assert_eq!(found(&text, &[]), None);
    }

    #[test]
    fn names_of_rules_come_before_the_limit() {
        let home = TestDir::with(&[".ssh"]);
        let hosts: Vec<_> = (0..=MAX_USES).map(|n| format!("h{n}.example")).collect();
        let last = hosts.last().unwrap();
        write_file(home.join(".ssh/known_hosts"), line(&hosts.join(",")));
        let (key, untrusted) = (STANDARD.decode(KEY).unwrap(), Writable::default());
        let found = names_blocking(&home, &untrusted, &key, std::slice::from_ref(last)).unwrap();
        assert_eq!((found.len(), &found.first().unwrap().0), (MAX_USES, last));
    }

    #[test]
    fn a_file_that_sessions_could_change_is_not_read_and_a_long_one_refuses() {
        let dir = TestDir::with(&["ws", "home/.ssh"]);
        let (home, key) = (dir.join("home"), STANDARD.decode(KEY).unwrap());
        let untrusted = Writable::of_blocking([dir.join("ws")], &home);
        let names = || names_blocking(&home, &untrusted, &key, &[]);
        write_file(dir.join("ws/known_hosts"), line("evil.example"));
        symlink(dir.join("ws/known_hosts"), home.join(".ssh/known_hosts")).unwrap();
        write_file(home.join(".ssh/known_hosts2"), line("github.com"));
        assert_eq!(names(), Ok(vec![("github.com".to_owned(), 22)]));
        write_file(home.join(".ssh/known_hosts2"), vec![b'\n'; 1024 * 1024 + 1]);
        assert_eq!(names(), Err(CredentialRefusal::UnknownHost));
    }
}
