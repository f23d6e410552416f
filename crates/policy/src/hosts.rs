//! Rules of the hosts that commands may reach: their grammar, their comparison with a host, and the addresses that no
//! name may lead to.
//!
//! ```text
//! RULE   = ["!"] TARGET [":" PORTS] ["/raw"] | "@" PRESET      PORTS = 443 | 80,443 | "*", default 80,443
//! TARGET = name | "*." name | IPv4 | "[" IPv6 "]" | CIDR | "machine"
//! ```
//!
//! Pure functions without system calls. Used by the configuration, the supervisor and the proxy.

mod address;
pub mod presets;
mod rule;

pub use address::{is_refused, local_refusal};
pub use rule::{HostRule, HostTarget, Ports, Rule, RuleError};

use quackd_protocol::network::{MACHINE_HOST, RuleText};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Longest name, in bytes (RFC 1035).
const MAX_NAME: usize = 253;

/// Longest label of a name, in bytes.
const MAX_LABEL: usize = 63;

/// A host that a command asks for: an address, or a name in lower-case ASCII without the final dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address. An IPv4 address inside IPv6 is an IPv4 address.
    Address(IpAddr),
}

/// Reason why a text is not a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It is empty or too long, or has a label that is.
    #[error("has an empty or too long part")]
    Length,
    /// A character that no name has.
    #[error("has a character that no host name has")]
    Character,
    /// A number that some programs read as an address and others as a name.
    #[error("is a number but no usual address")]
    Number,
}

impl Host {
    /// Reads a host as a command or a user writes it: in any case, with or without brackets around IPv6 and a final dot.
    /// A name with other characters than ASCII is converted (IDNA).
    ///
    /// # Errors
    /// See [`HostError`]. Numbers such as `2130706433`, `0x7f.1` and `127.1`, which resolvers take for addresses, are
    /// refused.
    pub fn read(text: &str) -> Result<Self, HostError> {
        if text.len() > 4 * MAX_NAME {
            return Err(HostError::Length);
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        if bare.is_some() {
            return Err(HostError::Number);
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        let name = match text.is_ascii() {
            true => text.to_ascii_lowercase(),
            false => idna::domain_to_ascii(text).map_err(|_error| HostError::Character)?,
        };
        check_name(&name)?;
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_hex =
            last.strip_prefix("0x").is_some_and(|hex| hex.chars().all(|c| c.is_ascii_hexdigit()));
        if is_hex || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return match name.parse::<Ipv4Addr>() {
                Ok(address) => Ok(Self::Address(address.into())),
                Err(_) => Err(HostError::Number),
            };
        }
        Ok(Self::Name(name))
    }
}

/// Returns true if the name is a registered domain or below one, by the list of public suffixes.
#[must_use]
pub fn is_registered(name: &str) -> bool {
    psl::domain(name.as_bytes()).is_some_and(|domain| domain.suffix().is_known())
}

fn check_name(name: &str) -> Result<(), HostError> {
    if name.len() > MAX_NAME
        || name.split('.').any(|label| label.is_empty() || label.len() > MAX_LABEL)
    {
        return Err(HostError::Length);
    }
    let is_usual =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if name.bytes().all(is_usual) { Ok(()) } else { Err(HostError::Character) }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Rules of a session in force, with their origins.
#[derive(Debug, Clone, Default)]
pub struct HostRules {
    deny: Vec<OriginRule>,
    allow: Vec<OriginRule>,
}

/// A rule and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRule {
    /// The rule.
    pub rule: HostRule,
    /// Origin, for display.
    pub origin: String,
}

impl fmt::Display for OriginRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.rule, self.origin)
    }
}

/// Decision of the rules about a host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// This rule allows it.
    Allowed(&'a OriginRule),
    /// This rule denies it.
    Denied(&'a OriginRule),
    /// No rule names it.
    NotListed,
}

impl HostRules {
    /// Parses rules. Presets must have been replaced by their hosts.
    ///
    /// # Errors
    /// The first rule that cannot be parsed.
    pub fn parse(rules: &[RuleText]) -> Result<Self, RuleError> {
        let mut all = Self::default();
        for RuleText { rule, origin } in rules {
            match rule.parse()? {
                Rule::Preset { .. } => return Err(RuleError::Preset(rule.clone())),
                Rule::Host(rule) => {
                    let list = if rule.denies { &mut all.deny } else { &mut all.allow };
                    list.push(OriginRule { rule, origin: origin.clone() });
                }
            }
        }
        Ok(all)
    }

    /// Returns the decision of the rules. A rule that denies wins. Port 0 stands for any port that a rule allows, for a query of
    /// the resolver: then only a rule that denies all ports denies.
    #[must_use]
    pub fn decide(&self, host: &Host, port: u16) -> Decision<'_> {
        let denies = |one: &&OriginRule| match port {
            0 => one.rule.ports == Ports::All && one.rule.target.covers(host),
            port => one.rule.covers(host, port),
        };
        if let Some(denied) = self.deny.iter().find(denies) {
            return Decision::Denied(denied);
        }
        let allows = |one: &&OriginRule| match port {
            0 => one.rule.target.covers(host),
            port => one.rule.covers(host, port),
        };
        self.allow.iter().find(allows).map_or(Decision::NotListed, Decision::Allowed)
    }

    /// Returns why a connection to `address` is refused that `host` led to, or `None` if it may be dialled. Addresses of
    /// this machine and of local networks need a rule that names the address; a rule for a name never allows one.
    /// `is_own` tells whether an address belongs to this machine.
    #[must_use]
    pub fn refuses_address(
        &self,
        address: IpAddr,
        port: u16,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> bool {
        let address = address.to_canonical();
        let as_host = Host::Address(address);
        if self.deny.iter().any(|one| one.rule.covers(&as_host, port)) {
            return true;
        }
        let is_named = self.allow.iter().any(|one| one.rule.covers(&as_host, port));
        !is_named && (is_refused(address) || is_own(address))
    }

    /// Returns true if a rule allows to connect to this port on the loopback of this machine as [`MACHINE_HOST`].
    #[must_use]
    pub fn allows_machine(&self, port: u16) -> bool {
        matches!(self.decide(&Host::Name(MACHINE_HOST.to_owned()), port), Decision::Allowed(_))
    }

    /// Returns the single ports of the rules that allow, in order and without repetition.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let lists = self.allow.iter().filter_map(|one| match &one.rule.ports {
            Ports::All => None,
            Ports::List(ports) => Some(ports.iter().copied()),
        });
        let mut ports: Vec<u16> = lists.flatten().collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> HostRules {
        let texts: Vec<_> = texts
            .iter()
            .map(|rule| RuleText { rule: (*rule).to_owned(), origin: "session".into() })
            .collect();
        HostRules::parse(&texts).unwrap()
    }

    fn host(text: &str) -> Host {
        Host::read(text).unwrap()
    }

    fn decided(rules: &HostRules, text: &str, port: u16) -> &'static str {
        match rules.decide(&host(text), port) {
            Decision::Allowed(_) => "allowed",
            Decision::Denied(_) => "denied",
            Decision::NotListed => "not listed",
        }
    }

    #[test]
    fn hosts_have_one_form() {
        assert_eq!(host("Example.ORG."), Host::Name("example.org".into()));
        assert_eq!(host("Bücher.example"), Host::Name("xn--bcher-kva.example".into()));
        assert_eq!(host("[::ffff:10.0.0.1]"), Host::Address("10.0.0.1".parse().unwrap()));
        assert_eq!(host("127.0.0.1"), Host::Address("127.0.0.1".parse().unwrap()));
        for (text, expected) in [
            ("", HostError::Length),
            ("a..b", HostError::Length),
            (".", HostError::Length),
            ("2130706433", HostError::Number),
            ("0x7f000001", HostError::Number),
            ("0x7f.1", HostError::Number),
            ("127.1", HostError::Number),
            ("0177.0.0.1", HostError::Number),
            ("127.0.0.1.", HostError::Number),
            ("[example.org]", HostError::Number),
            ("a\0b", HostError::Character),
            ("a\r\nb", HostError::Character),
            ("user@host", HostError::Character),
            ("a b", HostError::Character),
            ("fe80::1%eth0", HostError::Character),
        ] {
            let read = Host::read(text);
            // A final dot after an address is the only difference that a resolver would ignore.
            if text == "127.0.0.1." {
                assert_eq!(read, Ok(Host::Address("127.0.0.1".parse().unwrap())), "{text:?}");
                continue;
            }
            assert_eq!(read, Err(expected), "{text:?}");
        }
        assert_eq!(Host::read(&"a".repeat(64)), Err(HostError::Length));
        assert_eq!(Host::read(&"a.".repeat(40_000)), Err(HostError::Length));
    }

    #[test]
    fn a_rule_covers_its_host_and_ports_only() {
        let rules = rules(&[
            "a.example",
            "*.b.example:443",
            "!deep.b.example:*",
            "10.0.0.0/8:5432",
            "c.example:22",
        ]);
        for (text, port, expected) in [
            ("a.example", 80, "allowed"),
            ("A.Example.", 443, "allowed"),
            ("a.example", 22, "not listed"),
            ("a.example.evil", 443, "not listed"),
            ("xa.example", 443, "not listed"),
            ("sub.a.example", 443, "not listed"),
            ("b.example", 443, "not listed"),
            ("x.b.example", 443, "allowed"),
            ("x.y.b.example", 443, "allowed"),
            ("deep.b.example", 443, "denied"),
            ("10.1.2.3", 5432, "allowed"),
            ("11.1.2.3", 5432, "not listed"),
            ("c.example", 0, "allowed"),
            ("deep.b.example", 0, "denied"),
            ("d.example", 0, "not listed"),
        ] {
            assert_eq!(decided(&rules, text, port), expected, "{text}:{port}");
        }
        assert_eq!(rules.ports(), [22, 80, 443, 5432]);
    }

    #[test]
    fn a_name_never_leads_to_a_private_address() {
        let rules = rules(&["a.example", "*.example.org:*", "10.0.0.7:443", "[fd00::1]:443"]);
        let own: IpAddr = "203.0.114.9".parse().unwrap();
        let refused = |address: &str, port| {
            rules.refuses_address(address.parse().unwrap(), port, |address| address == own)
        };
        for address in [
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "::ffff:10.0.0.1",
            "fd00:ec2::254",
            "203.0.114.9",
        ] {
            assert!(refused(address, 443), "{address}");
        }
        assert!(!refused("10.0.0.7", 443));
        assert!(!refused("::ffff:10.0.0.7", 443));
        assert!(refused("10.0.0.7", 80));
        assert!(!refused("fd00::1", 443));
        assert!(!refused("93.184.216.34", 443));
    }

    #[test]
    fn services_of_this_machine_have_their_own_target() {
        let rules = rules(&["machine:5432"]);
        assert!(rules.allows_machine(5432) && !rules.allows_machine(5433));
        assert_eq!(decided(&rules, MACHINE_HOST, 5432), "allowed");
        assert_eq!(decided(&rules, "127.0.0.1", 5432), "not listed");
    }
}
