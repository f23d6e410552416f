//! The server and the repository that a request means.

use crate::relay::TLS;
use hyper::header::HeaderValue;
use hyper::{Method, Uri};
use quackd_policy::hosts::Host;
use quackd_protocol::credentials::{GIT_GATEWAY_PREFIX, Repository};

/// Purpose of a request of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Fetch,
    Push,
}

/// Target of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) repository: Repository,
    /// Path and query for the server.
    pub(super) path: String,
    /// `None` if it gets no credential: for another port than 443, and for Git LFS, because some servers return the
    /// credential in their answer.
    pub(super) service: Option<Service>,
}

impl Target {
    /// Reads a request. Leaves out the name of a user. `None` for one that is neither of git nor of Git LFS, and for an
    /// address with a password.
    pub(super) fn new(method: &Method, uri: &Uri) -> Option<Self> {
        let (address, path) = uri.path().strip_prefix(GIT_GATEWAY_PREFIX)?.split_once('/')?;
        let (place, service) = service(method, path, uri.query())?;
        let address = match address.split_once('@') {
            Some((user, _)) if user.contains(':') => return None,
            Some((_, address)) => address,
            None => address,
        };
        let (host, port) = match address.split_once(':') {
            Some((host, port)) => (host, port.parse::<u16>().ok().filter(|port| *port != 0)?),
            None => (address, TLS),
        };
        let repository = Repository::new(host, place)?;
        // The server gets the path as it is, so it must be that of the repository.
        let end = place.strip_prefix(repository.path.as_str())?;
        if !matches!(end, "" | ".git") {
            return None;
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let (host, path) = (Host::read(&repository.host).ok()?, format!("/{path}{query}"));
        let service = service.filter(|_| port == TLS);
        Some(Self { host, port, repository, path, service })
    }

    /// The host, with the port if it is not 443.
    pub(super) fn place(&self) -> String {
        let host = &self.repository.host;
        if self.port == TLS { host.clone() } else { format!("{host}:{}", self.port) }
    }
}

/// Returns the address for a request of git with a password in it, which needs no credential of the user. Git connects to it
/// by the other rules of the proxy.
pub(super) fn own_address(method: &Method, uri: &Uri) -> Option<HeaderValue> {
    let whole = uri.path().strip_prefix(GIT_GATEWAY_PREFIX)?;
    let (address, path) = whole.split_once('/')?;
    let (user, _) = address.split_once('@')?;
    service(method, path, uri.query())?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    HeaderValue::try_from(format!("https://{whole}{query}")).ok().filter(|_| user.contains(':'))
}

/// Returns the path of the repository and what the request wants.
fn service<'a>(
    method: &Method,
    path: &'a str,
    query: Option<&str>,
) -> Option<(&'a str, Option<Service>)> {
    let (is_get, is_post) = (method == Method::GET, method == Method::POST);
    if let Some(place) = path.strip_suffix("/info/refs").filter(|_| is_get) {
        return match query? {
            "service=git-upload-pack" => Some((place, Some(Service::Fetch))),
            "service=git-receive-pack" => Some((place, Some(Service::Push))),
            _ => None,
        };
    }
    if let Some((place, of_lfs)) = path.split_once("/info/lfs/") {
        let is_plain =
            of_lfs.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte));
        let is_locks = of_lfs == "locks" || of_lfs.starts_with("locks/");
        let is_known = is_post && of_lfs == "objects/batch" || is_locks && (is_get || is_post);
        return (is_plain && is_known).then_some((place, None));
    }

    let (place, last) = path.rsplit_once('/')?;
    match last {
        _ if !is_post || query.is_some() => None,
        "git-upload-pack" => Some((place, Some(Service::Fetch))),
        "git-receive-pack" => Some((place, Some(Service::Push))),
        _ => None,
    }
}

/// Returns the address inside of the session for the address to which `server`, a host with its port, redirects. `None` for
/// one that is not https, or at another port than 443 and that of the server.
pub(super) fn location_inside(location: &str, server: &str) -> Option<String> {
    let (place, path) = match location.strip_prefix("https://") {
        Some(rest) => {
            let (place, path) = rest.split_once('/')?;
            (place.strip_suffix(":443").unwrap_or(place), path)
        }
        // Two slashes begin another host.
        None => (server, location.strip_prefix('/').filter(|path| !path.starts_with('/'))?),
    };
    let is_host = !place.is_empty() && !place.contains([':', '@', '?', '#', '\\']);
    (is_host || place == server).then(|| format!("{GIT_GATEWAY_PREFIX}{place}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &Method, uri: &str) -> Option<(String, String, Option<Service>)> {
        let target = Target::new(method, &uri.parse().unwrap())?;
        let Repository { host, path } = target.repository;
        Some((format!("{host} {path}"), target.path, target.service))
    }

    #[test]
    fn requests_of_git_name_a_repository() {
        let (get, post) = (Method::GET, Method::POST);
        for (method, uri, name, service) in [
            (&get, "/me/app.git/info/refs?service=git-upload-pack", "me/app", Some(Service::Fetch)),
            (&get, "/me/app/info/refs?service=git-receive-pack", "me/app", Some(Service::Push)),
            (&post, "/a/b/c.git/git-upload-pack", "a/b/c", Some(Service::Fetch)),
            (&post, "/me/app.git/git-receive-pack", "me/app", Some(Service::Push)),
            (&post, "/me/app.git/info/lfs/objects/batch", "me/app", None),
            (&get, "/me/app.git/info/lfs/locks?limit=1", "me/app", None),
            (&post, "/me/app.git/info/lfs/locks/verify", "me/app", None),
        ] {
            let expected = (format!("git.example {name}"), uri.to_owned(), service);
            assert_eq!(read(method, &format!("/https/Git.example{uri}")), Some(expected), "{uri}");
        }
    }

    #[test]
    fn other_requests_are_refused() {
        let (get, post) = (Method::GET, Method::POST);
        for (method, uri) in [
            (&get, "/https/git.example/me/app.git/HEAD"),
            (&get, "/https/git.example/me/app.git/info/refs"),
            (&get, "/https/git.example/me/app.git/info/refs?service=git-upload-pack&x=1"),
            (&post, "/https/git.example/me/app.git/info/refs?service=git-upload-pack"),
            (&get, "/https/git.example/me/app.git/git-upload-pack"),
            (&post, "/https/git.example/me/app.git/git-upload-pack?x"),
            (&post, "/https/git.example//me/app.git/git-upload-pack"),
            (&post, "/https/git.example/me/app.git//git-upload-pack"),
            (&post, "/https/git.example/me/../you/app.git/git-upload-pack"),
            (&post, "/https/git.example/me%2f../app.git/git-upload-pack"),
            (&post, "/https/git.example/git-upload-pack"),
            (&post, "/https/git.example:0/me/app.git/git-upload-pack"),
            (&post, "/https/git.example:x/me/app.git/git-upload-pack"),
            (&post, "/https/git.example:443:443/me/app.git/git-upload-pack"),
            (&post, "/https/me:secret@git.example/me/app.git/git-upload-pack"),
            (&post, "/https/a@b@git.example/me/app.git/git-upload-pack"),
            (&post, "/https/me@/me/app.git/git-upload-pack"),
            (&post, "/https//me/app.git/git-upload-pack"),
            (&post, "/http/git.example/me/app.git/git-upload-pack"),
            (&get, "/https/git.example/me/app.git/info/lfs/../../info/refs"),
            (&get, "/https/git.example/me/app.git/info/lfs/objects/batch"),
            (&get, "/https/git.example/user/repos"),
        ] {
            assert_eq!(read(method, uri), None, "{method} {uri}");
        }
    }

    #[test]
    fn the_user_is_left_out_and_another_port_gets_no_credential() {
        for (place, port, service) in [
            ("git.example:443", 443, Some(Service::Push)),
            ("me@git.example", 443, Some(Service::Push)),
            ("me@git.example:8443", 8443, None),
        ] {
            let uri = format!("/https/{place}/me/app.git/git-receive-pack").parse().unwrap();
            let target = Target::new(&Method::POST, &uri).unwrap();
            assert_eq!((target.port, target.service), (port, service), "{place}");
            assert_eq!(target.repository, Repository::new("git.example", "me/app").unwrap());
            let shown = if port == 443 { "git.example" } else { "git.example:8443" };
            assert_eq!((&*target.place(), &*target.path), (shown, "/me/app.git/git-receive-pack"));
        }
        for (to, inside) in [
            ("/x", Some("/https/a.example:8443/x")),
            ("https://a.example:8443/x", Some("/https/a.example:8443/x")),
            ("https://b.example:8443/x", None),
        ] {
            assert_eq!(location_inside(to, "a.example:8443").as_deref(), inside, "{to}");
        }
    }

    #[test]
    fn an_address_with_a_password_leads_past_the_gateway() {
        let own = |uri: &str| {
            let address = own_address(&Method::GET, &uri.parse().unwrap())?;
            Some(address.to_str().unwrap().to_owned())
        };
        let refs = "a.example/me/app.git/info/refs?service=git-upload-pack";
        for (address, expected) in [
            (format!("/https/me:token@{refs}"), Some(format!("https://me:token@{refs}"))),
            (format!("/https/me@{refs}"), None),
            (format!("/https/{refs}"), None),
            ("/https/me:token@a.example/user/repos".to_owned(), None),
        ] {
            assert_eq!(own(&address), expected, "{address}");
        }
    }

    #[test]
    fn redirects_stay_inside() {
        for (location, inside) in [
            ("https://b.example/x.git/info/refs?a", Some("/https/b.example/x.git/info/refs?a")),
            ("https://b.example:443/x", Some("/https/b.example/x")),
            ("/x/y", Some("/https/a.example/x/y")),
            ("//b.example/x", None),
            ("http://b.example/x", None),
            ("https://b.example:444/x", None),
            ("https://me@b.example/x", None),
            ("https://b.example", None),
            ("x", None),
        ] {
            assert_eq!(location_inside(location, "a.example").as_deref(), inside, "{location}");
        }
    }
}
