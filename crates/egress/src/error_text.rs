//! Error texts of failed searches, without the key and without any part of an address.
//!
//! This module chooses the text by the kind of the error. The libraries' own texts contain addresses, and a worker must
//! not see them.

use std::error::Error;
use std::{io, iter};

/// Returns the text for an error of a request or of creating a client.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let all = || causes(error);
    if let Some(tls) = all().find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        return tls_reason(tls).to_owned();
    }

    // These two errors have no public type. The tests check that their texts stay the same.
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
    // The innermost error names the cause.
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

/// Whether the certificate of the server is not valid, or this machine has none to check it with.
pub(crate) fn is_untrusted(error: &reqwest::Error) -> bool {
    use rustls::Error::{General, InvalidCertificate};
    let tls = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(tls, Some(InvalidCertificate(_) | General(_)))
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

/// Returns an error and its sources.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    iter::successors(Some(first), |error| cause(*error))
}

/// Includes an error wrapped in an I/O error, which `source` would skip.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
