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
mod host;
pub mod presets;
mod rule;
mod session_rules;

pub use address::{is_of_local_network, is_refused, local_refusal};
pub use host::{Host, HostError, HostPort};
pub use rule::{HostRule, HostTarget, Ports, Rule, RuleError};
pub use session_rules::SessionRules;

use crate::known_hosts::{COMMON_HOSTS, split_port};
use quackd_protocol::network::{MACHINE_HOST, RuleText};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Returns true if the name is a registered domain or below one, by the list of public suffixes.
#[must_use]
pub fn is_registered(name: &str) -> bool {
    psl::domain(name.as_bytes()).is_some_and(|domain| domain.suffix().is_known())
}

/// Maximum length of the target of a question, in bytes. The user must see all of it.
const MAX_ASKED: usize = 120;

/// Returns the rule that an answer of the user about this host and port would add. `None` if the user is not asked: the
/// rule would mean anything else than this host, such as this machine or a local network, or is too long to be shown.
#[must_use]
pub fn askable(host: &Host, port: u16) -> Option<String> {
    let text = match host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]:{port}"),
        host => format!("{host}:{port}"),
    };

    // The text is parsed again, so that the answer and the question are about the same rule.
    let Ok(Rule::Host(HostRule { denies: false, raw: false, target, .. })) = text.parse() else {
        return None;
    };

    let is_same = match (target, host) {
        (HostTarget::Name(name), Host::Name(requested)) => {
            // The last two lead to this machine (RFC 6761).
            name == *requested && name != "localhost" && !name.ends_with(".localhost")
        }
        (HostTarget::Addresses(net), Host::Address(requested)) => {
            net.addr() == *requested
                && net.prefix_len() == net.max_prefix_len()
                && !is_refused(*requested)
        }
        _ => false,
    };

    (is_same && text.len() <= MAX_ASKED).then_some(text)
}

/// Returns the rule that an answer of the user adds about an address of a local network, to which a
/// name leads. `None` for other addresses.
#[must_use]
pub fn askable_address(address: IpAddr, port: u16) -> Option<String> {
    let address = address.to_canonical();
    is_of_local_network(address).then(|| SocketAddr::new(address, port).to_string())
}

/// Port of ssh.
const SSH_PORT: u16 = 22;

/// Rules of a session in force, with their origins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRules {
    deny: Vec<OriginRule>,
    allow: Vec<OriginRule>,
    unreadable: Vec<RuleError>,
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
    /// Parses rules. Presets must have been replaced by their hosts. Rules were checked when they were set, but another
    /// version of this program may have read them differently. An unreadable rule that allows is skipped. An unreadable rule
    /// that denies makes all hosts denied.
    #[must_use]
    pub fn parse(rules: &[RuleText]) -> Self {
        let mut all = Self::default();
        rules.iter().for_each(|text| all.add(text, text.rule.parse()));
        all
    }

    /// Adds a rule. `parsed` is the result of parsing its text.
    fn add(&mut self, RuleText { rule: text, origin }: &RuleText, parsed: Result<Rule, RuleError>) {
        let error = match parsed {
            Ok(Rule::Host(rule)) => {
                let list = if rule.denies { &mut self.deny } else { &mut self.allow };
                return list.push(OriginRule { rule, origin: origin.clone() });
            }
            Ok(Rule::Preset { .. }) => RuleError::Preset(text.clone()),
            Err(error) => error,
        };
        if text.starts_with('!') {
            let origin = format!("{origin}, instead of the unreadable rule {text}");
            self.deny.push(OriginRule { rule: HostRule::deny_all(), origin });
        }
        self.unreadable.push(error);
    }

    /// Returns the errors of the rules that could not be parsed, for display.
    #[must_use]
    pub fn unreadable(&self) -> &[RuleError] {
        &self.unreadable
    }

    /// Returns the decision of the rules. A rule that denies wins. Of those that allow, one with
    /// `/raw` wins. Port 0 stands for any port that a rule allows, for a query of the resolver:
    /// then only a rule that denies all ports denies.
    #[must_use]
    pub fn decide(&self, host: &Host, port: u16) -> Decision<'_> {
        let denies = |origin_rule: &&OriginRule| match port {
            0 => origin_rule.rule.ports == Ports::All && origin_rule.rule.target.covers(host),
            port => origin_rule.rule.covers(host, port),
        };
        if let Some(denied) = self.deny.iter().find(denies) {
            return Decision::Denied(denied);
        }

        let allows = |origin_rule: &&OriginRule| match port {
            0 => origin_rule.rule.target.covers(host),
            port => origin_rule.rule.covers(host, port),
        };

        let mut allowing = self.allow.iter().filter(allows);
        let first = allowing.next();
        let raw = first.into_iter().chain(allowing).find(|origin_rule| origin_rule.rule.raw);
        raw.or(first).map_or(Decision::NotListed, Decision::Allowed)
    }

    /// Returns true if `address` must not be dialled, whatever name led to it. Addresses of this machine and of local
    /// networks need a rule that names the address or a local network around it. Addresses of this machine and of metadata
    /// services need a rule with exactly the address. `is_own` tells whether an address belongs to this machine.
    #[must_use]
    pub fn refuses_address(
        &self,
        address: IpAddr,
        port: u16,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> bool {
        let address = address.to_canonical();
        let (as_host, in_v4) = (Host::Address(address), Host::Address(address::in_v4(address)));
        // A rule about the IPv4 address also denies the IPv6 address that stands for it.
        let denies =
            |one: &OriginRule| one.rule.covers(&as_host, port) || one.rule.covers(&in_v4, port);
        if self.deny.iter().any(denies) {
            return true;
        }

        let is_own = is_own(address);
        let is_named = |one: &OriginRule| match &one.rule.target {
            HostTarget::Addresses(net) if one.rule.covers(&as_host, port) => {
                address::names_refused(net, address, is_own)
            }
            _ => false,
        };

        (is_own || is_refused(address)) && !self.allow.iter().any(is_named)
    }

    /// Returns true if a rule allows to connect to this port on the loopback of this machine as [`MACHINE_HOST`].
    #[must_use]
    pub fn allows_machine(&self, port: u16) -> bool {
        matches!(self.decide(&Host::Name(MACHINE_HOST.to_owned()), port), Decision::Allowed(_))
    }

    /// Returns the single hosts of the rules that allow, as `known_hosts` of ssh writes them: `github.com`,
    /// `[build.example]:2222`.
    pub fn known_hosts(&self) -> impl Iterator<Item = String> {
        let named = self.allow.iter().filter_map(|OriginRule { rule, .. }| match &rule.target {
            HostTarget::Name(name) => Some((name.clone(), &rule.ports)),
            HostTarget::Addresses(net) if net.prefix_len() == net.max_prefix_len() => {
                Some((net.addr().to_string(), &rule.ports))
            }
            _ => None,
        });
        named.flat_map(|(host, ports)| {
            let ports: &[u16] = match ports {
                Ports::All => &[SSH_PORT],
                Ports::List(ports) => ports,
            };
            ports.iter().map(move |port| match *port {
                SSH_PORT => host.clone(),
                port => format!("[{host}]:{port}"),
            })
        })
    }

    /// Returns true if these rules name a host with port 22 that `old` does not name, and that is not in [`COMMON_HOSTS`].
    #[must_use]
    pub fn adds_ssh_host(&self, old: &Self) -> bool {
        let known: BTreeSet<String> = old.known_hosts().collect();
        self.known_hosts().any(|name| {
            let is_common = COMMON_HOSTS.contains(&name.as_str());
            split_port(&name).1.is_none() && !is_common && !known.contains(&name)
        })
    }

    /// Returns the single ports of the rules that allow, in order and without repetition.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let lists = self.allow.iter().filter_map(|origin_rule| match &origin_rule.rule.ports {
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
        HostRules::parse(&texts)
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
    fn the_user_is_asked_about_exactly_one_host_of_the_internet() {
        let asked = |host: &str| askable(&Host::read(host).unwrap(), 443);
        assert_eq!(asked("a.example").as_deref(), Some("a.example:443"));
        assert_eq!(asked("192.0.1.1").as_deref(), Some("192.0.1.1:443"));
        assert_eq!(asked("[2606:4700::1]").as_deref(), Some("[2606:4700::1]:443"));
        let long = format!("{0}.{0}.{0}.example", "a".repeat(60));
        for host in [
            "machine",
            "MACHINE.",
            MACHINE_HOST,
            "localhost",
            "x.localhost",
            "10.0.0.7",
            "127.0.0.1",
            "169.254.169.254",
            "fd00::1",
            "::1",
            &long,
        ] {
            assert_eq!(asked(host), None, "{host}");
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
    fn single_hosts_are_named_as_ssh_names_them() {
        let rules = rules(&[
            "a.example:22,2222",
            "b.example:*",
            "*.c.example:22",
            "10.0.0.7:22",
            "!d.example",
        ]);
        let expected = ["a.example", "[a.example]:2222", "b.example", "10.0.0.7"];
        assert_eq!(rules.known_hosts().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_host_is_new_to_ssh_by_its_port_unless_every_session_sees_its_key() {
        let old = rules(&["a.example:22", "b.example"]);
        for (added, is_new) in [
            ("a.example:22", false),
            ("b.example:22", true),
            ("c.example:*", true),
            ("10.0.0.7:22", true),
            ("c.example", false),
            ("c.example:2222", false),
            ("*.c.example:22", false),
            ("!c.example", false),
            ("github.com:22", false),
            ("machine:22", false),
        ] {
            assert_eq!(rules(&["a.example:22", added]).adds_ssh_host(&old), is_new, "{added}");
        }
        assert!(!HostRules::default().adds_ssh_host(&old));
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
    fn a_wide_network_opens_no_service_of_this_machine_and_no_metadata() {
        let own: IpAddr = "10.0.0.5".parse().unwrap();
        let refused = |texts: &[&str], address: &str| {
            let is_own = |address| address == own;
            rules(texts).refuses_address(address.parse().unwrap(), 80, is_own)
        };
        let metadata = ["169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"];
        let wide =
            ["0.0.0.0/0:*", "[::/0]:*", "169.254.0.0/16", "[fd00:ec2::/32]", "168.63.0.0/16"];
        for address in
            metadata.iter().chain(&["127.0.0.1", "::1", "10.0.0.5", "10.0.0.7", "192.168.1.1"])
        {
            assert!(refused(&wide, address), "{address}");
            assert!(refused(&["100.64.0.0/10", "127.0.0.0/8", "[64:ff9b::/96]"], address));
            let exact =
                if address.contains(':') { format!("[{address}]") } else { (*address).to_owned() };
            assert!(!refused(&[&exact], address), "{address}");
        }
        assert!(refused(&["[64:ff9b::/96]"], "64:ff9b::a9fe:a9fe"));
        assert!(refused(&["10.0.0.0/8"], "10.0.0.5"), "an own address");
        for (net, address) in
            [("10.0.0.0/8", "10.0.0.7"), ("[fd00::/8]", "fd00::7"), ("[200::/7]", "200::1")]
        {
            assert!(!refused(&[net], address), "{net}");
        }
        assert!(!refused(&["0.0.0.0/0"], "1.1.1.1"));
        assert!(refused(&["!1.2.3.4", "a.example"], "64:ff9b::102:304"));
        assert!(refused(&["a.example"], "200:1234::1"));
    }

    #[test]
    fn an_unreadable_rule_that_allows_is_skipped_and_one_that_denies_denies_all() {
        let allow = rules(&["*.com", "@gone", "a.example", "!*.com"]);
        assert_eq!(allow.unreadable().len(), 2);
        assert_eq!(decided(&allow, "a.example", 443), "allowed");
        assert_eq!(decided(&allow, "x.com", 443), "denied");
        let deny = rules(&["a.example", "!@gone"]);
        for (host, port) in [("a.example", 443), ("a.example", 0), (MACHINE_HOST, 1)] {
            assert_eq!(decided(&deny, host, port), "denied", "{host}");
        }
        let Decision::Denied(by) = deny.decide(&host("a.example"), 443) else { panic!() };
        assert_eq!(by.to_string(), "!* (session, instead of the unreadable rule !@gone)");
    }

    #[test]
    fn a_raw_rule_is_found_behind_a_wider_one() {
        let rules = rules(&["*.github.com", "ssh.github.com:443/raw"]);
        for (name, raw) in [("ssh.github.com", true), ("api.github.com", false)] {
            let Decision::Allowed(by) = rules.decide(&host(name), 443) else { panic!("{name}") };
            assert_eq!(by.rule.raw, raw, "{name}");
        }
    }

    #[test]
    fn services_of_this_machine_have_their_own_target() {
        let rules = rules(&["machine:5432"]);
        assert!(rules.allows_machine(5432) && !rules.allows_machine(5433));
        assert_eq!(decided(&rules, MACHINE_HOST, 5432), "allowed");
        assert_eq!(decided(&rules, "127.0.0.1", 5432), "not listed");
        assert_eq!(decided(&self::rules(&["*.quackd.internal:*"]), MACHINE_HOST, 1), "not listed");
    }
}
