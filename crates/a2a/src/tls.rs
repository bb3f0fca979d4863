//! TLS of the server, with a certificate that an operator can replace while the server runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::bounded_file;

/// Protocols above TLS, in the order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Certificate and key of a server. Clones share both.
#[derive(Clone)]
pub struct ServerTls {
    inner: Arc<TlsInner>,
}

struct TlsInner {
    certificate: PathBuf,
    key: PathBuf,
    acceptor: RwLock<Option<TlsAcceptor>>,
    /// Content of both files at the last read, so that a broken pair is tried and reported only once.
    last_read: Mutex<Option<PemPair>>,
}

#[derive(PartialEq, Eq)]
struct PemPair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Reason why a certificate or a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFilesError {
    /// A file cannot be read.
    #[error("{} cannot be read", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// The file contains no certificate in PEM.
    #[error("{} has no certificate: it must be PEM with `BEGIN CERTIFICATE`", .0.display())]
    NoCertificate(PathBuf),
    /// A certificate in the file is broken.
    #[error("a certificate in {} is broken", .0.display())]
    Certificate(PathBuf, #[source] pem::Error),
    /// The file contains no private key in PEM.
    #[error("{} has no private key: it must be PEM with `BEGIN PRIVATE KEY`, and not encrypted", .0.display())]
    Key(PathBuf, #[source] pem::Error),
    /// The key does not belong to the certificate.
    #[error("the key in {} does not match the certificate in {}", .key.display(), .certificate.display())]
    Mismatch {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// The TLS library refuses the pair.
    #[error("the certificate in {} cannot be used", .0.display())]
    Refused(PathBuf, #[source] rustls::Error),
}

impl ServerTls {
    /// Reads a certificate with its chain, and its private key, both in PEM. Reads from disk, so call it on a thread
    /// that may block.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the two cannot be used together.
    pub fn open(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, TlsFilesError> {
        let tls = Self {
            inner: Arc::new(TlsInner {
                certificate: certificate.into(),
                key: key.into(),
                acceptor: RwLock::default(),
                last_read: Mutex::default(),
            }),
        };
        tls.reload()?;
        Ok(tls)
    }

    /// Reads the files again, and uses them for new connections if they have changed. Returns true if the files had
    /// changed. After an error, the server keeps its certificate. Reads from disk, so call it on a thread that may
    /// block.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the two have changed and cannot be used together.
    pub fn reload(&self) -> Result<bool, TlsFilesError> {
        let inner = &*self.inner;
        let pair = PemPair {
            certificate: read(&inner.certificate)?,
            key: read(&inner.key)?,
        };
        let mut last_read = inner.last_read.lock();
        if last_read.as_ref() == Some(&pair) {
            return Ok(false);
        }
        let config = inner.config(&pair);
        *last_read = Some(pair);
        *inner.acceptor.write() = Some(TlsAcceptor::from(Arc::new(config?)));
        Ok(true)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let acceptor = self.inner.acceptor.read().clone();
        acceptor.expect("`open` has read the files, and a failed `reload` keeps what they were")
    }
}

impl TlsInner {
    fn config(&self, pair: &PemPair) -> Result<ServerConfig, TlsFilesError> {
        let chain = CertificateDer::pem_slice_iter(&pair.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| TlsFilesError::Certificate(self.certificate.clone(), error))?;
        if chain.is_empty() {
            return Err(TlsFilesError::NoCertificate(self.certificate.clone()));
        }
        let key = PrivateKeyDer::from_pem_slice(&pair.key)
            .map_err(|error| TlsFilesError::Key(self.key.clone(), error))?;
        let refused = |error| match error {
            rustls::Error::InconsistentKeys(_) => TlsFilesError::Mismatch {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
            },
            error => TlsFilesError::Refused(self.certificate.clone(), error),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(refused)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    bounded_file::read(path).map_err(|error| TlsFilesError::Read(path.to_owned(), error))
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("certificate", &self.inner.certificate)
            .finish_non_exhaustive()
    }
}
