//! The user's settings of git about signatures and logins, and those by which git in a session uses the user's credentials
//! without getting them: the user's ssh agent signs, and the session's proxy logs in.

use super::openat;
use crate::git_config::Entry;
use quackd_protocol::credentials::{GIT_GATEWAY_PREFIX, Repository};
use quackd_protocol::network::PROXY_PORT;
use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum size of a file with a public key, in bytes.
const MAX_KEY: u64 = 16 * 1024;

/// Maximum number of hosts with a credential helper of their own.
const MAX_HELPERS: usize = 64;

/// Reason why commits of a session are not signed, although the user's settings sign them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsigned {
    /// `gpg.format` is not `ssh`.
    Format,
    /// `user.signingKey` names no public key of ssh.
    NoKey,
    /// No ssh agent is known, or the session may not use it.
    NoAgent,
}

impl fmt::Display for Unsigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "your key is not in the session, and sessions sign with keys of ssh only (gpg.format = ssh)"
            }
            Self::NoKey => {
                "your key is not in the session, and user.signingKey names no public key of ssh"
            }
            Self::NoAgent => {
                "quackd knows no ssh agent that may sign. Outside of the session, run ssh-add, then quack restart from a \
                 shell that has SSH_AUTH_SOCK, or set credentials.ssh_agent. Sessions sign with credentials.ssh = true, in \
                 tiers A and B, unless the network is on"
            }
        })
    }
}

/// Settings of the user for signatures and logins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UserCredentials {
    signs_commits: bool,
    signs_tags: bool,
    /// Whether the format of signatures is that of ssh.
    is_ssh: bool,
    /// `user.signingKey`, if it is a key: first as the user writes it, then as git in a session reads it.
    key: Option<String>,
    /// The file that `user.signingKey` names.
    key_file: Option<PathBuf>,
    /// Whether a credential helper is for all hosts.
    has_helper: bool,
    /// Hosts with a credential helper of their own.
    helpers: Vec<String>,
}

impl UserCredentials {
    /// Takes a setting. Returns false for another one.
    pub(super) fn take(&mut self, entry: &Entry) -> bool {
        let value = entry.value.as_deref();
        // An empty value removes the helpers before it.
        let is_set = value.is_some_and(|value| !value.is_empty());
        match (entry.section.as_str(), entry.subsection.as_str(), entry.key.as_str()) {
            ("commit", "", "gpgsign") => self.signs_commits = is_true(value),
            ("tag", "", "gpgsign") => self.signs_tags = is_true(value),
            ("gpg", "", "format") => self.is_ssh = value == Some("ssh"),
            ("credential", "", "helper") => {
                self.has_helper = is_set;
                if !is_set {
                    self.helpers.clear();
                }
            }
            ("credential", url, "helper") => {
                let Some(host) = host_of(url) else { return true };
                self.helpers.retain(|known| *known != host);
                if is_set && self.helpers.len() < MAX_HELPERS {
                    self.helpers.push(host);
                }
            }
            _ => return false,
        }
        true
    }

    /// Takes `user.signingKey`. `file`: the file that it names if it is a path.
    pub(super) fn take_key(&mut self, value: &str, file: Option<PathBuf>) {
        let is_literal = value.starts_with("key::") || value.starts_with("ssh-");
        let is_path = value.starts_with(['/', '~']);
        self.key = is_literal.then(|| value.to_owned());
        self.key_file = file.filter(|_| is_path);
    }

    /// Reads the public key that the last value names. Never reads a private key.
    pub(super) fn read_key_blocking(&mut self) {
        let file = self.key_file.take();
        let text = self.key.take().or_else(|| public_text_blocking(&file?));
        self.key = text.filter(|_| self.is_ssh).as_deref().and_then(public_key);
    }

    /// Returns why commits are not signed without the user's ssh agent.
    pub(super) fn unsigned(&self) -> Option<Unsigned> {
        let reason = match (self.is_ssh, &self.key) {
            (false, _) => Unsigned::Format,
            (true, None) => Unsigned::NoKey,
            (true, Some(_)) => Unsigned::NoAgent,
        };
        self.signs_commits.then_some(reason)
    }

    /// Returns the settings by which git signs with the user's ssh agent. Empty without a key.
    pub(super) fn signing(&self) -> Vec<Entry> {
        let Some(key) = &self.key else { return Vec::new() };
        let mut entries = vec![entry("gpg", "format", "ssh"), entry("user", "signingKey", key)];
        entries.extend(self.signs_commits.then(|| entry("commit", "gpgSign", "true")));
        entries.extend(self.signs_tags.then(|| entry("tag", "gpgSign", "true")));
        entries
    }

    /// Returns the settings by which git reaches hosts with a credential helper through the session's proxy, which has the
    /// credentials.
    pub(super) fn gateways(&self) -> Vec<Entry> {
        let gateway = |place: String| Entry {
            subsection: format!("http://127.0.0.1:{PROXY_PORT}{GIT_GATEWAY_PREFIX}{place}"),
            ..entry("url", "insteadOf", &format!("https://{place}"))
        };
        if self.has_helper {
            return vec![gateway(String::new())];
        }
        self.helpers.iter().map(|host| gateway(format!("{host}/"))).collect()
    }
}

fn entry(section: &str, key: &str, value: &str) -> Entry {
    Entry {
        section: section.to_owned(),
        subsection: String::new(),
        key: key.to_owned(),
        value: Some(value.to_owned()),
    }
}

/// The host of an address in `credential.<url>.helper`, if it is one of https without port, user and path.
fn host_of(url: &str) -> Option<String> {
    let host = url.strip_prefix("https://")?.trim_end_matches('/');
    Repository::new(host, "any").map(|repository| repository.host)
}

fn is_true(value: Option<&str>) -> bool {
    let words = ["true", "yes", "on", "1"];
    value.is_none_or(|value| words.iter().any(|word| word.eq_ignore_ascii_case(value)))
}

/// The text of a public key, which is beside its private key.
fn public_text_blocking(file: &Path) -> Option<String> {
    let mut public = file.as_os_str().to_owned();
    if file.extension().is_none_or(|extension| extension != "pub") {
        public.push(".pub");
    }
    String::from_utf8(openat::read_own(Path::new(&public), MAX_KEY).ok()?).ok()
}

/// A public key as git reads it in its settings, without its comment.
fn public_key(text: &str) -> Option<String> {
    let line = text.strip_prefix("key::").unwrap_or(text).lines().next()?;
    let mut words = line.split_whitespace();
    let (kind, blob) = (words.next()?, words.next()?);

    let is_kind = ["ssh-", "ecdsa-", "sk-"].iter().any(|begin| kind.starts_with(begin));
    let is_plain = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-.@".contains(&byte))
    };
    (is_kind && is_plain(kind) && is_plain(blob)).then(|| format!("key::{kind} {blob}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_config::{parse, to_text};
    use quackd_testkit::write_file;

    fn read(text: &str) -> UserCredentials {
        let mut read = UserCredentials::default();
        for entry in parse(text) {
            if entry.is("user", "signingkey") {
                let value = entry.value.unwrap_or_default();
                read.take_key(&value, Some(PathBuf::from(&value)));
            } else {
                assert!(read.take(&entry), "{entry:?}");
            }
        }
        read.read_key_blocking();
        read
    }

    const SSH: &str = "[gpg]\nformat=ssh\n[commit]\ngpgSign\n[user]\nsigningKey=";

    #[test]
    fn a_public_key_of_ssh_is_carried_as_text() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("id");
        write_file(&key, "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n");
        write_file(directory.path().join("id.pub"), "ssh-ed25519 AAAAC3 me@host\n");
        write_file(directory.path().join("private.pub"), "-----BEGIN OPENSSH PRIVATE KEY-----\n");
        let carried = "[gpg]\n\tformat = \"ssh\"\n[user]\n\tsigningKey = \"key::ssh-ed25519 AAAAC3\"\n\
                       [commit]\n\tgpgSign = \"true\"\n";
        let (path, public) = (key.display().to_string(), format!("{}.pub", key.display()));
        for value in [
            path.as_str(),
            public.as_str(),
            "ssh-ed25519 AAAAC3 comment",
            "key::ssh-ed25519 AAAAC3 comment",
        ] {
            let read = read(&format!("{SSH}{value}\n"));
            assert_eq!(read.unsigned(), Some(Unsigned::NoAgent), "{value}");
            assert_eq!(to_text(read.signing().iter()), carried, "{value}");
        }
        let private = directory.path().join("private.pub").display().to_string();
        let missing = directory.path().join("missing").display().to_string();
        for value in [private.as_str(), missing.as_str(), "relative", "ABCDEF", "key::rubbish"] {
            let read = read(&format!("{SSH}{value}\n"));
            assert_eq!(read.unsigned(), Some(Unsigned::NoKey), "{value}");
            assert_eq!(read.signing(), [], "{value}");
        }
    }

    #[test]
    fn only_the_format_of_ssh_is_signed() {
        let of_gpg = read("[commit]\ngpgSign=true\n[user]\nsigningKey=ssh-ed25519 AAAA\n");
        assert_eq!((of_gpg.unsigned(), of_gpg.signing()), (Some(Unsigned::Format), Vec::new()));
        let off = read("[commit]\ngpgSign\ngpgSign=false\n[tag]\ngpgSign\n[gpg]\nformat=ssh\n");
        assert_eq!(off.unsigned(), None);
    }

    #[test]
    fn hosts_with_a_credential_helper_are_reached_through_the_proxy() {
        let hosts = |text: &str| {
            let entries = read(text).gateways();
            entries.into_iter().map(|entry| entry.value.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(hosts(""), [""; 0]);
        assert_eq!(hosts("[credential]\nhelper=store\n"), ["https://"]);
        assert_eq!(hosts("[credential]\nhelper=store\nhelper=\n"), [""; 0]);
        let gh = "[credential \"https://GitHub.com\"]\nhelper=\nhelper=!gh auth git-credential\n";
        assert_eq!(hosts(gh), ["https://github.com/"]);
        for other in ["http://a.example", "https://a.example:444", "https://me@a.example", "a"] {
            assert_eq!(hosts(&format!("[credential \"{other}\"]\nhelper=x\n")), [""; 0], "{other}");
        }
        let many: String = (0..100)
            .map(|n| format!("[credential \"https://h{n}.example/\"]\nhelper=x\n"))
            .collect();
        assert_eq!(hosts(&many).len(), MAX_HELPERS);
        assert_eq!(
            to_text(read(gh).gateways().iter()),
            "[url \"http://127.0.0.1:61080/https/github.com/\"]\n\tinsteadOf = \"https://github.com/\"\n"
        );
    }
}
