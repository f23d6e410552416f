//! The address, the key and the headers of one provider, and the check that both may be sent there.
//!
//! Built by the catalog, used by each request.

use crate::Key;
use crate::endpoint::Connection;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::model::ModelApi;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use std::fmt;
use url::{Host, Url};

/// Version of Anthropic's API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Headers that belong to the connection, so that a configuration must not set them.
const RESERVED: [&str; 9] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Parts of the names of headers that carry secrets.
const SECRET_PARTS: [&str; 5] = ["auth", "key", "token", "secret", "cookie"];

/// Shortest word of such a header that is masked, in bytes: not `Bearer`.
const MIN_SECRET: usize = 8;

/// Settings of a [`Route`].
#[derive(Default)]
pub struct RouteSettings {
    /// The base URL, with or without a trailing slash.
    pub base_url: String,
    /// API of the list of models.
    pub api: Option<ModelApi>,
    /// The key; `None` for a server that needs none.
    pub key: Option<Key>,
    /// Whether the key is also sent as a bearer token if the API has another header.
    pub with_bearer: bool,
    /// Further headers. They may contain secrets.
    pub headers: Vec<(String, String)>,
}

/// Error of a [`RouteSettings`]. No text contains a key, or more of the address than its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The base URL is not a URL.
    #[error("its base URL is not a URL: {0}")]
    NotAUrl(url::ParseError),
    /// The base URL has another scheme than http and https.
    #[error("its base URL must begin with https:// or http://, not {0}:")]
    Scheme(String),
    /// A header cannot be sent.
    #[error("its header {0} cannot be sent")]
    Header(String),
}

/// Address, key and headers of a provider.
pub struct Route {
    base: Url,
    api: ModelApi,
    key: Option<Key>,
    with_bearer: bool,
    headers: HeaderMap,
    /// Words of headers that are probably secret.
    header_secrets: Vec<Key>,
    has_secret_header: bool,
}

impl Route {
    /// Checks the settings.
    ///
    /// # Errors
    /// The base URL or a header is not usable.
    pub fn new(settings: RouteSettings) -> Result<Self, RouteError> {
        let mut base = Url::parse(settings.base_url.trim()).map_err(RouteError::NotAUrl)?;
        if !["http", "https"].contains(&base.scheme()) {
            return Err(RouteError::Scheme(base.scheme().chars().take(20).collect()));
        }
        base.set_fragment(None);

        let mut headers = HeaderMap::new();
        let mut has_secret_header = false;
        let mut header_secrets = Vec::new();
        for (name, value) in settings.headers {
            let shown = stripped_line(&name, 60);
            let error = || RouteError::Header(shown.clone());
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| error())?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| error())?;

            if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
                return Err(error());
            }

            if SECRET_PARTS.iter().any(|part| name.as_str().contains(part)) {
                has_secret_header = true;
                // The header was checked just now, so its words can be sent.
                let words = value.to_str().unwrap_or_default().split_whitespace();
                let secrets = words.filter(|word| MIN_SECRET <= word.len());
                header_secrets.extend(secrets.filter_map(|word| Key::parse(word).ok().flatten()));
            }

            // Debug texts then do not show it.
            value.set_sensitive(true);
            headers.insert(name, value);
        }

        let api = settings.api.unwrap_or(ModelApi::OpenAiCompletions);
        let (key, with_bearer) = (settings.key, settings.with_bearer);
        Ok(Self { base, api, key, with_bearer, headers, header_secrets, has_secret_header })
    }

    /// Returns the base URL without user, password and query.
    #[must_use]
    pub fn shown_base(&self) -> String {
        let mut url = self.base.clone();
        url.set_query(None);
        // Both succeed for URLs with a host, and http and https URLs have one.
        url.set_username("").ok();
        url.set_password(None).ok();
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// Returns the host, for display.
    #[must_use]
    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Whether the address is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self.base.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// Whether the connection uses TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.base.scheme() == "https"
    }

    /// Whether requests carry a key, a password or a header that is probably secret.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        let has_user = !self.base.username().is_empty() || self.base.password().is_some();
        self.key.is_some() || self.has_secret_header || has_user
    }

    /// Returns the reason why egress sends nothing there: the network could read the key.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let is_readable = !self.is_encrypted() && !self.is_local() && self.has_secret();
        is_readable.then(|| {
            let host = self.host();
            format!(
                "plain http would send the key to {host} unencrypted: use https, or remove the key if the server \
                 needs none"
            )
        })
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection { is_local: self.is_local(), is_encrypted: self.is_encrypted() }
    }

    pub(crate) fn api(&self) -> ModelApi {
        self.api
    }

    /// Returns text of the provider without the key and the secret headers, which some providers repeat. Also masks a
    /// part of them at the end.
    pub(crate) fn masked(&self, text: Vec<u8>) -> Vec<u8> {
        self.key.iter().chain(&self.header_secrets).fold(text, |text, key| key.masked_at_cut(&text))
    }

    /// Returns the URL for requests of an API.
    pub(crate) fn url(&self, api: ModelApi) -> Url {
        self.join(
            match api {
                ModelApi::OpenAiCompletions => "chat/completions",
                ModelApi::OpenAiResponses => "responses",
                ModelApi::AnthropicMessages => "messages",
            },
            api,
        )
    }

    /// Returns the URL of the list of models.
    pub(crate) fn models_url(&self) -> Url {
        self.join("models", self.api)
    }

    /// Returns a URL of Ollama's own API, which is outside of its OpenAI API: `show` describes a model, `ps` lists the loaded
    /// ones.
    pub(crate) fn ollama_url(&self, name: &str) -> Url {
        let mut url = self.base.clone();
        let base = self.base_path();
        let base = base.strip_suffix("/v1").unwrap_or(base);
        url.set_path(&format!("{base}/api/{name}"));
        url
    }

    /// Returns the path of the base URL. Some people write the address of one API, such as `/v1/chat/completions`.
    fn base_path(&self) -> &str {
        let path = self.base.path().trim_end_matches('/');
        let ends = ["/chat/completions", "/responses", "/messages"];
        let base = ends.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
        base.trim_end_matches('/')
    }

    fn join(&self, rest: &str, api: ModelApi) -> Url {
        let mut url = self.base.clone();
        let base = self.base_path();
        // Anthropic's base URLs are usually written without the version, and those of local servers often are.
        let has_no_version = match api {
            ModelApi::AnthropicMessages => !base.ends_with("/v1"),
            _ => base.is_empty() && !self.is_encrypted(),
        };
        let version = if has_no_version { "/v1" } else { "" };
        url.set_path(&format!("{base}{version}/{rest}"));
        url
    }

    /// Returns the headers of a request.
    pub(crate) fn headers(&self, api: ModelApi, betas: &[String]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));

        let is_anthropic = api == ModelApi::AnthropicMessages;
        if is_anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
            if let Ok(betas) = HeaderValue::from_str(&betas.join(","))
                && !betas.is_empty()
            {
                headers.insert("anthropic-beta", betas);
            }
        }

        if let Some(key) = &self.key {
            if is_anthropic && let Some(key) = key.header() {
                headers.insert("x-api-key", key);
            }
            if (!is_anthropic || self.with_bearer)
                && let Some(bearer) = key.bearer()
            {
                headers.insert(AUTHORIZATION, bearer);
            }
        }

        // Configured headers replace those of the API.
        headers.extend(self.headers.clone());
        headers
    }
}

/// Shows only the host: everything else may contain secrets.
impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Route").field(&self.host()).finish()
    }
}

/// Shows only whether there is a key.
impl fmt::Debug for RouteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteSettings")
            .field("has_key", &self.key.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(base_url: &str, key: &str) -> Route {
        let key = Key::parse(key).unwrap();
        Route::new(RouteSettings { base_url: base_url.into(), key, ..RouteSettings::default() })
            .unwrap()
    }

    #[test]
    fn the_path_comes_from_the_base_and_the_api() {
        use ModelApi::{AnthropicMessages, OpenAiCompletions, OpenAiResponses};
        for (base, api, url) in [
            ("https://a/v1", OpenAiCompletions, "https://a/v1/chat/completions"),
            ("https://a/v1/", OpenAiResponses, "https://a/v1/responses"),
            ("https://a", OpenAiCompletions, "https://a/chat/completions"),
            (
                "http://127.0.0.1:11434",
                OpenAiCompletions,
                "http://127.0.0.1:11434/v1/chat/completions",
            ),
            // The address of one API in place of the base.
            ("https://a/v1/chat/completions", OpenAiCompletions, "https://a/v1/chat/completions"),
            (
                "http://127.0.0.1:1/v1/responses/",
                OpenAiResponses,
                "http://127.0.0.1:1/v1/responses",
            ),
            ("https://a/v1/messages", AnthropicMessages, "https://a/v1/messages"),
            ("https://a", AnthropicMessages, "https://a/v1/messages"),
            ("https://a/v1/", AnthropicMessages, "https://a/v1/messages"),
            ("https://a/anthropic", AnthropicMessages, "https://a/anthropic/v1/messages"),
            (
                "https://a/x?api-version=2#f",
                OpenAiCompletions,
                "https://a/x/chat/completions?api-version=2",
            ),
        ] {
            assert_eq!(route(base, "").url(api).as_str(), url);
        }
    }

    #[test]
    fn a_key_is_sent_encrypted_or_to_this_machine() {
        for base in ["https://a/v1", "http://127.0.0.1:1/v1", "http://localhost/", "http://[::1]/"]
        {
            assert_eq!(route(base, "k").refusal(), None, "{base}");
        }
        assert_eq!(route("http://192.168.1.5:8080/v1", "").refusal(), None);
        assert!(
            route("http://192.168.1.5:8080/v1", "k").refusal().unwrap().contains("192.168.1.5")
        );
        assert!(route("http://user:pw@192.168.1.5/v1", "").refusal().is_some());
        let headers = vec![("X-Api-Token".to_owned(), "t".to_owned())];
        let settings = RouteSettings {
            base_url: "http://10.0.0.1".into(),
            headers,
            ..RouteSettings::default()
        };
        assert!(Route::new(settings).unwrap().refusal().is_some());
    }

    #[test]
    fn each_api_gets_the_key_in_its_header() {
        let route = route("https://a", "hush");
        let headers = route.headers(ModelApi::OpenAiCompletions, &[]);
        assert_eq!(headers.get(AUTHORIZATION).unwrap(), "Bearer hush");
        assert!(headers.get("x-api-key").is_none());
        let betas = ["a-1".to_owned(), "b".to_owned()];
        let headers = route.headers(ModelApi::AnthropicMessages, &betas);
        assert_eq!(headers.get("x-api-key").unwrap(), "hush");
        assert_eq!(headers.get("anthropic-beta").unwrap(), "a-1,b");
        assert!(headers.get(AUTHORIZATION).is_none() && headers.contains_key("anthropic-version"));
        assert!(!format!("{headers:?}").contains("hush"));
    }

    #[test]
    fn secrets_are_masked_also_in_headers_and_at_a_cut() {
        let headers = [("X-Api-Token", "Bearer topsecret-1"), ("X-Title", "a usual title")];
        let route = Route::new(RouteSettings {
            base_url: "https://a".into(),
            key: Key::parse("sk-0123456789").unwrap(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..RouteSettings::default()
        })
        .unwrap();
        let text = "Bearer topsecret-1, a usual title, sk-0123456789: sk-01234";
        let masked = String::from_utf8(route.masked(text.into())).unwrap();
        assert_eq!(masked, "Bearer ***********, a usual title, *************: ********");
    }

    #[test]
    fn nothing_but_the_host_is_shown() {
        let route = route("https://user:pass@host/path?token=x", "hush");
        assert_eq!(format!("{route:?}"), r#"Route("host")"#);
        assert_eq!(route.shown_base(), "https://host/path");
    }

    #[test]
    fn an_unusable_address_or_header_is_refused() {
        let of = |base: &str, name: &str, value: &str| {
            let headers = vec![(name.to_owned(), value.to_owned())];
            let settings =
                RouteSettings { base_url: base.into(), headers, ..RouteSettings::default() };
            Route::new(settings).err()
        };
        assert_eq!(of("ftp://a", "x", ""), Some(RouteError::Scheme("ftp".into())));
        assert!(matches!(of("a", "x", ""), Some(RouteError::NotAUrl(_))));
        for (name, value) in [("Host", "b"), ("content-length", "1"), ("a b", ""), ("x", "a\nb")] {
            assert_eq!(of("https://a", name, value), Some(RouteError::Header(name.into())));
        }
        assert_eq!(of("https://a", "x-title", "duck"), None);
    }
}
