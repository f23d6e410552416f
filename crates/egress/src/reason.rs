//! Why no answer came, in words that hold neither the key nor any part of an address.
//!
//! The words are chosen here by the kind of the error. What the libraries say themselves names addresses, and
//! goes to a worker, which is to know none.

use std::error::Error;
use std::{io, iter};

/// Words an error of a request, or of making a client.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let all = || causes(error);
    if let Some(tls) = all().find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        return tls_reason(tls).to_owned();
    }
    // These two have no type that could be asked for; the tests hold the words.
    if all().any(|cause| cause.to_string() == "dns error") {
        return "the provider's name was not found".to_owned();
    }
    if all().any(|cause| cause.to_string().starts_with("tunnel error")) {
        return "the proxy did not let it through".to_owned();
    }
    let step = if error.is_connect() { "no connection" } else { "the connection was lost" };
    if error.is_timeout() {
        return format!("{step}: it took too long");
    }
    let system = all().filter_map(|cause| cause.downcast_ref::<io::Error>());
    if let Some(code) = system.filter_map(io::Error::raw_os_error).last() {
        return format!("{step}: {}", io::Error::from_raw_os_error(code));
    }
    let http = all().filter_map(|cause| cause.downcast_ref::<hyper::Error>()).next();
    match http {
        Some(http) if http.is_parse() => "the answer is not HTTP".to_owned(),
        Some(_) => "the connection was closed before the answer was complete".to_owned(),
        None if error.is_body() || error.is_decode() => {
            "the connection was closed before the answer was complete".to_owned()
        }
        None => step.to_owned(),
    }
}

fn tls_reason(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match error {
        rustls::Error::InvalidCertificate(problem) => match problem {
            UnknownIssuer => "the provider's certificate is not trusted on this machine",
            Expired | ExpiredContext { .. } => "the provider's certificate has expired",
            NotValidYet | NotValidYetContext { .. } => {
                "the provider's certificate is not valid yet"
            }
            NotValidForName | NotValidForNameContext { .. } => {
                "the provider's certificate is for another name"
            }
            _ => "the provider's certificate is not valid",
        },
        rustls::Error::General(_) => "this machine has no trusted certificates",
        _ => "no encrypted connection",
    }
}

/// An error and what it came from.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    iter::successors(Some(first), |error| cause(*error))
}

/// What an I/O error wraps is a cause too, which `source` would pass over.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
