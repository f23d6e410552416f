//! The certificate and its key, from two PEM files to what accepts connections.

use crate::settings::TlsPaths;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Largest PEM file that is read, in bytes.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's refusal.
        source: io::Error,
    },
    /// A file holds no such thing.
    #[error("{path} holds no {what} in PEM form")]
    NotPem {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// They do not fit together, or are of a kind that cannot be used.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Reads both files.
///
/// # Errors
/// See [`TlsError`].
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
    // Named, since the process has no provider of its own: nothing here depends on who sets one first.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read_blocking(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    // What is no file, a FIFO, say, could make us wait for ever.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("not a file")));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_PEM_BYTES).read_to_end(&mut bytes))
        .map_err(failed)?;
    Ok(bytes)
}
