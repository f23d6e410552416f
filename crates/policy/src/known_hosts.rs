//! Lines of ssh's `known_hosts` files (sshd(8)). Hashed names are found among given names only.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::network::MACHINE_HOST;
use ring::hmac;
use std::collections::BTreeSet;

/// Largest file that is read, in bytes.
pub const MAX_KNOWN_HOSTS_FILE: u64 = 1024 * 1024;

/// Maximum number of hashes that are computed for the files of one process.
const MAX_HASHES: usize = 200_000;

/// Hosts whose lines every session sees: hosts of repositories for everyone, so that their names tell a session nothing,
/// and this machine.
pub const COMMON_HOSTS: [&str; 8] = [
    "github.com",
    "[ssh.github.com]:443",
    "gitlab.com",
    "[altssh.gitlab.com]:443",
    "bitbucket.org",
    "codeberg.org",
    "git.sr.ht",
    MACHINE_HOST,
];

/// One line with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHostLine<'a> {
    /// `@revoked` or `@cert-authority`. Empty for most lines.
    pub marker: &'a str,
    /// Names and patterns with commas between them, or one hashed name.
    pub names: &'a str,
    /// Type of the key, the key in base64, and a comment.
    pub key: &'a str,
}

impl<'a> KnownHostLine<'a> {
    /// Parses a line. `None` for a comment, and for a line without a key.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let (first, rest) = split_word(line.trim_ascii())?;
        let (marker, names, key) = if first.starts_with('@') {
            let (names, key) = split_word(rest)?;
            (first, names, key)
        } else {
            ("", first, rest)
        };
        (!first.starts_with('#')).then_some(Self { marker, names, key })
    }
}

fn split_word(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once([' ', '\t'])?;
    Some((word, rest.trim_ascii_start()))
}

/// Splits a name, `host` or `[host]:port`, into host and port.
#[must_use]
pub fn split_port(name: &str) -> (&str, Option<&str>) {
    let parts = name.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    parts.map_or((name, None), |(host, port)| (host, Some(port)))
}

/// Set of names of hosts, and the number of hashes that may still be computed to find them.
#[derive(Debug)]
pub struct HostNames<'a> {
    names: BTreeSet<&'a str>,
    hashes_left: usize,
}

impl<'a> HostNames<'a> {
    /// Creates the set of these names, which have lower case.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self { names: names.into_iter().collect(), hashes_left: MAX_HASHES }
    }

    /// Returns true if this plain name is in the set. Ignores the case of its letters.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name.to_ascii_lowercase().as_str())
    }

    /// Returns the name of a hashed one, `|1|SALT|HASH`. `None` for plain names, for names that are not in the set, and
    /// after 200,000 hashes: a long file and many names would otherwise delay the start of a worker by seconds.
    pub fn find_hashed(&mut self, hashed: &str) -> Option<&'a str> {
        let (salt, hash) = hashed.strip_prefix("|1|")?.split_once('|')?;
        let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
        self.hashes_left = self.hashes_left.checked_sub(self.names.len())?;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
        let mut names = self.names.iter().copied();
        names.find(|name| hmac::verify(&key, name.as_bytes(), &hash).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `github.com` and `[build.example]:2222`, hashed by OpenSSH 9.2 (`ssh-keygen -H`).
    const HASHED: [&str; 2] = [
        "|1|4VA1dUvd7DEpSjG7vljTBs+YRcE=|AC4wUjYeu4Gyfanu7H//53uPILc=",
        "|1|yNA3BhKKgf1wiYL9kJEVIiIg04I=|E/CJuwTVxmIp4GsXNwWhXPcK7Y0=",
    ];

    #[test]
    fn a_line_has_names_and_a_key() {
        let line = |marker, names, key| Some(KnownHostLine { marker, names, key });
        for (text, expected) in [
            ("a,b ssh-rsa AAAA me@b", line("", "a,b", "ssh-rsa AAAA me@b")),
            (" a\t ssh-rsa AAAA\r", line("", "a", "ssh-rsa AAAA")),
            ("@revoked \t* ssh-rsa AAAA", line("@revoked", "*", "ssh-rsa AAAA")),
            ("# a ssh-rsa AAAA", None),
            ("#a ssh-rsa AAAA", None),
            ("@revoked a", None),
            ("a ", None),
            ("", None),
        ] {
            assert_eq!(KnownHostLine::parse(text), expected, "{text:?}");
        }
        assert_eq!(split_port("[2001:db8::1]:2222"), ("2001:db8::1", Some("2222")));
        assert_eq!(split_port("a.example"), ("a.example", None));
    }

    #[test]
    fn hashed_names_are_found_among_the_given_ones() {
        let mut names = HostNames::new(["a.example", "github.com", "[build.example]:2222"]);
        let found = HASHED.map(|hashed| names.find_hashed(hashed));
        assert_eq!(found, [Some("github.com"), Some("[build.example]:2222")]);
        let mut others = HostNames::new(["build.example", "a.example"]);
        for hashed in [HASHED[0], HASHED[1], "github.com", "|1|x|y", "|1|", "|2|a=|a="] {
            assert_eq!(others.find_hashed(hashed), None, "{hashed}");
        }
        assert!(names.contains("GitHub.com") && !names.contains("build.example"));
    }

    #[test]
    fn the_number_of_hashes_is_limited() {
        let mut names = HostNames::new(["a.example", "github.com"]);
        names.hashes_left = 3;
        assert_eq!(names.find_hashed(HASHED[1]), None);
        assert_eq!(names.find_hashed(HASHED[0]), None, "it would be the fourth hash");
    }
}
