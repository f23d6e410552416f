//! Encrypted connections to servers of git.

use quackd_protocol::credentials::GitGateway;
use rustls_native_certs::{load_certs_from_paths, load_native_certs};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Reads the certificates of authorities. Called before the confinement, which hides the files.
///
/// # Errors
/// No certificate can be read.
pub(crate) fn connector_blocking(settings: &GitGateway) -> io::Result<TlsConnector> {
    // The environment of this process is empty, so no variable names other certificates.
    let found = match &settings.certificates {
        Some(file) => load_certs_from_paths(Some(Path::new(file)), None),
        None => load_native_certs(),
    };
    let mut roots = RootCertStore::empty();
    let (added, _unusable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(io::Error::other("no certificates of authorities can be read"));
    }
    connector(roots)
}

pub(crate) fn connector(roots: RootCertStore) -> io::Result<TlsConnector> {
    // Explicit, so that no provider of the whole process is needed.
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
