//! One host: a name or an address.

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

/// A host and a port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Reads the target of an answer about a host, such as `a.example:443` or `[::1]:443`. `None` for another text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: Host::read(host).ok()?, port: port.parse().ok()? })
    }
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
        // The conversion of a name takes time in proportion to its length.
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
        let name = if text.is_ascii() {
            text.to_ascii_lowercase()
        } else {
            idna::domain_to_ascii(text).map_err(|_error| HostError::Character)?
        };
        check_name(&name)?;

        // Resolvers read a name whose last label is a number as an address.
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
