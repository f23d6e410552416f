//! The address of the search provider, and the check that a key may be sent there.

use crate::EgressError;
use std::fmt;
use url::{Host, Url};

/// Kind of a connection. Each kind has its own client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    /// To this machine.
    pub(crate) is_local: bool,
    /// With TLS.
    pub(crate) is_encrypted: bool,
}

/// Address of the search provider: `https`, or a server of this machine.
pub(crate) struct Endpoint {
    url: Url,
    is_local: bool,
}

impl Endpoint {
    /// Parses an endpoint. Accepts `https` to any host, and `http` only to this machine.
    pub(crate) fn parse(text: &str) -> Result<Self, EgressError> {
        let url = Url::parse(text.trim()).map_err(EgressError::NotAUrl)?;
        let is_local = is_local(&url);
        match url.scheme() {
            "https" => Ok(Self { url, is_local }),
            "http" if is_local => Ok(Self { url, is_local }),
            "http" => {
                let host = url.host_str().unwrap_or_default().to_owned();
                Err(EgressError::InTheClear { host })
            }
            other => Err(EgressError::NotHttps(other.to_owned())),
        }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection { is_local: self.is_local, is_encrypted: self.url.scheme() == "https" }
    }
}

/// Whether a URL is one of this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Shows only the host: the rest of the URL may contain secrets.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.url.host_str()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_encrypted_or_to_this_machine() {
        let good = [
            "https://api.exa.ai/search",
            "https://user:pass@proxy.example:8443/exa?token=x",
            "https://10.0.0.1/",
            "http://127.0.0.1:1234/search",
            "http://127.255.0.9",
            "http://[::1]:80/",
            "http://LOCALHOST:1/",
            " http://localhost/ ",
        ];
        for text in good {
            assert!(Endpoint::parse(text).is_ok(), "{text}");
        }
        let in_the_clear = |host: &str| EgressError::InTheClear { host: host.to_owned() };
        let not_https = |scheme: &str| EgressError::NotHttps(scheme.to_owned());
        let bad = [
            ("http://api.exa.ai/search", in_the_clear("api.exa.ai")),
            ("http://u:p@192.168.0.1/", in_the_clear("192.168.0.1")),
            ("http://0.0.0.0/", in_the_clear("0.0.0.0")),
            ("http://localhost.example.com/", in_the_clear("localhost.example.com")),
            ("http://127.0.0.1.example.com/", in_the_clear("127.0.0.1.example.com")),
            ("http://localhost@example.com/", in_the_clear("example.com")),
            ("ftp://127.0.0.1/", not_https("ftp")),
            ("file:///etc/passwd", not_https("file")),
            ("localhost:80", not_https("localhost")),
            ("api.exa.ai/search", EgressError::NotAUrl(url::ParseError::RelativeUrlWithoutBase)),
            ("https://", EgressError::NotAUrl(url::ParseError::EmptyHost)),
            ("", EgressError::NotAUrl(url::ParseError::RelativeUrlWithoutBase)),
        ];
        for (text, error) in bad {
            assert_eq!(Endpoint::parse(text).err(), Some(error), "{text}");
        }
    }

    #[test]
    fn nothing_but_the_host_is_shown() {
        let endpoint = Endpoint::parse("https://user:pass@host/path?token=x").unwrap();
        assert_eq!(format!("{endpoint:?}"), r#"Endpoint(Some("host"))"#);
        let refused = Endpoint::parse("http://user:pass@host/path?token=x").unwrap_err();
        let told = format!("{refused} {refused:?}");
        assert!(
            ["user", "pass", "path", "token"].iter().all(|word| !told.contains(word)),
            "{told}"
        );
    }
}
