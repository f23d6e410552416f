//! Loads the certificate and its key from two PEM files.

use crate::settings::TlsPaths;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Maximum size of a PEM file, in bytes.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

/// The certificate or its key is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the certificate or of the key.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// A file does not contain the expected PEM section.
    #[error("{path} contains no {what} in PEM form")]
    NotPem {
        /// Path of the certificate or of the key.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// Certificate and key do not match, or their type is not supported.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Reads both files and creates the acceptor.
///
/// # Errors
/// [`TlsError`] if a file is unreadable or invalid.
pub(crate) fn acceptor_blocking(paths: &TlsPaths) -> Result<TlsAcceptor, TlsError> {
    let not_pem = |path: &Path, what| TlsError::NotPem { path: path.to_owned(), what };

    let pem = read_blocking(&paths.certificate)?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_broken| not_pem(&paths.certificate, "certificate"))?;
    if chain.is_empty() {
        return Err(not_pem(&paths.certificate, "certificate"));
    }

    let key = PrivateKeyDer::from_pem_slice(&read_blocking(&paths.key)?)
        .map_err(|_broken| not_pem(&paths.key, "private key"))?;

    // Explicit, so that no process-wide default provider is needed.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read_blocking(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    // Reading another file type, such as a FIFO, could block forever.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("not a file")));
    }

    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_PEM_BYTES).read_to_end(&mut bytes))
        .map_err(failed)?;
    Ok(bytes)
}
