//! The server's certificate: created once and kept next to the store, or given as files that may be replaced while the
//! server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use torc_api::causes::error_chain;
use torc_api::token::Fingerprint;

/// Interval between checks of the files. A mounted Secret is replaced as a whole, long before its certificate expires.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Paths of a certificate and its key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A file does not contain what it should.
    #[error("{path} contains no {wanted} in PEM")]
    Content { path: PathBuf, wanted: &'static str },
    /// The certificate and the key do not match.
    #[error("the certificate in {path} does not match its key")]
    Pair {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// A certificate could not be made.
    #[error("a certificate could not be created")]
    Make(#[source] rcgen::Error),
}

/// Installs the cryptography of this process. Later calls change nothing.
pub fn install_cryptography() {
    // It fails only when one is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn cryptography() -> Arc<CryptoProvider> {
    install_cryptography();
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

/// Returns the SHA-256 of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint(Sha256::digest(certificate).into())
}

/// Returns the fingerprint of the first certificate of a file.
pub fn fingerprint_of(path: &Path) -> Result<Fingerprint, TlsError> {
    let chain = read_chain(path)?;
    chain.first().map(fingerprint).ok_or_else(|| no(path, "certificate"))
}

/// Makes a self-signed certificate for these names and addresses and returns it with its key, in PEM. It never expires: clients
/// trust its fingerprint alone.
pub fn make_certificate(names: Vec<String>) -> Result<(String, String), TlsError> {
    let key = rcgen::KeyPair::generate().map_err(TlsError::Make)?;
    let mut wanted = rcgen::CertificateParams::new(names).map_err(TlsError::Make)?;
    wanted.distinguished_name.push(rcgen::DnType::CommonName, "torc server");
    wanted.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = wanted.self_signed(&key).map_err(TlsError::Make)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// The certificate that the server presents, and the files from which it is reloaded.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: TlsFiles,
    present: RwLock<(Option<FileVersions>, Arc<CertifiedKey>)>,
}

/// Inode, modification time and size of both files, which differ when their content does.
type FileVersions = [(u64, Option<SystemTime>, u64); 2];

impl Certificates {
    pub fn read(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let version = version(&files);
        let present = RwLock::new((version, Arc::new(read(&files)?)));
        Ok(Arc::new(Self { files, present }))
    }

    /// Returns a TLS configuration with this certificate.
    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let pair = |source| TlsError::Pair { path: self.files.certificate.clone(), source };
        let builder = ServerConfig::builder_with_provider(cryptography()).with_safe_default_protocol_versions();
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let mut config = builder.map_err(pair)?.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reloads the files until the server stops. Files that do not match leave the old certificate in place.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut warned = None;
        while stop.run_until_cancelled(tokio::time::sleep(CERTIFICATE_CHECK_INTERVAL)).await.is_some() {
            let certificates = Arc::clone(&self);
            let reloaded = tokio::task::spawn_blocking(move || certificates.reload_if_changed()).await;
            match reloaded {
                Ok(Ok(true)) => {
                    tracing::info!(file = %self.files.certificate.display(), "the certificate was replaced")
                }
                Ok(Err(error)) => {
                    let error = error_chain(&error);
                    if warned.as_ref() != Some(&error) {
                        tracing::warn!(error, "a new certificate cannot be used; the old one stays in use");
                        warned = Some(error);
                    }
                    continue;
                }
                Ok(Ok(false)) | Err(_) => {}
            }
            warned = None;
        }
    }

    /// Returns the current certificate and its chain in PEM, without the key, even where one file holds both.
    pub fn chain(&self) -> String {
        to_pem(&self.present.read().unwrap_or_else(PoisonError::into_inner).1.cert)
    }

    /// Reads the files again if they have changed. Returns whether they had.
    fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let version = version(&self.files);
        if self.present.read().unwrap_or_else(PoisonError::into_inner).0 == version {
            return Ok(false);
        }
        let key = Arc::new(read(&self.files)?);
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = (version, key);
        Ok(true)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.present.read().unwrap_or_else(PoisonError::into_inner).1))
    }
}

fn version(files: &TlsFiles) -> Option<FileVersions> {
    use std::os::unix::fs::MetadataExt as _;
    let stat = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.ino(), data.modified().ok(), data.len()))
    };
    Some([stat(&files.certificate)?, stat(&files.key)?])
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let chain = read_chain(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read_file(&files.key)?).map_err(|_| no(&files.key, "private key"))?;
    CertifiedKey::from_der(chain, key, &cryptography())
        .map_err(|source| TlsError::Pair { path: files.certificate.clone(), source })
}

/// Returns the certificates of a file in PEM, without its other content.
pub fn certificates_of(path: &Path) -> Result<String, TlsError> {
    read_chain(path).map(|chain| to_pem(&chain))
}

fn to_pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let word = STANDARD.encode(certificate);
        let mut rest = word.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = more;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read_file(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| no(path, "certificate"))
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn no(path: &Path, wanted: &'static str) -> TlsError {
    TlsError::Content { path: path.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn made(folder: &Path, name: &str) -> TlsFiles {
        let files = TlsFiles { certificate: folder.join(name), key: folder.join(format!("{name}.key")) };
        let (certificate, key) = make_certificate(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }

    fn present(certificates: &Certificates) -> Fingerprint {
        fingerprint(certificates.present.read().unwrap().1.end_entity_cert().unwrap())
    }

    #[test]
    fn a_certificate_that_was_made_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let files = made(folder.path(), "a");
        let certificates = Certificates::read(files.clone()).unwrap();
        assert_eq!(present(&certificates), fingerprint_of(&files.certificate).unwrap());
        certificates.server_config().unwrap();
    }

    #[test]
    fn replaced_files_are_loaded_once_they_match() {
        let folder = tempfile::tempdir().unwrap();
        let files = made(folder.path(), "a");
        let certificates = Certificates::read(files.clone()).unwrap();
        let before = present(&certificates);
        assert!(!certificates.reload_if_changed().unwrap());
        let other = made(folder.path(), "b");
        std::fs::rename(&other.certificate, &files.certificate).unwrap();
        assert!(
            matches!(certificates.reload_if_changed(), Err(TlsError::Pair { .. })),
            "the key is still that of the old one"
        );
        assert_eq!(present(&certificates), before);
        std::fs::rename(&other.key, &files.key).unwrap();
        assert!(certificates.reload_if_changed().unwrap());
        assert_eq!(present(&certificates), fingerprint_of(&files.certificate).unwrap());
        assert_ne!(present(&certificates), before);
        std::fs::remove_file(&files.key).unwrap();
        assert!(matches!(certificates.reload_if_changed(), Err(TlsError::Read { .. })));
    }

    #[test]
    fn certificates_are_read_without_the_key_in_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (made(folder.path(), "a"), made(folder.path(), "b"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap().replace("\r\n", "\n");
        let chain = [read(&one.certificate), read(&other.certificate)].concat();
        std::fs::write(&one.certificate, [read(&one.key), chain.clone()].concat()).unwrap();
        assert_eq!(Certificates::read(one.clone()).unwrap().chain(), chain);
        assert_eq!(certificates_of(&one.certificate).unwrap(), chain);
        assert!(matches!(certificates_of(&one.key), Err(TlsError::Content { .. })));
    }

    #[test]
    fn what_is_wrong_with_files_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let files = made(folder.path(), "a");
        std::fs::write(folder.path().join("text"), "hello").unwrap();
        let text = TlsFiles { certificate: folder.path().join("text"), ..files.clone() };
        assert!(Certificates::read(text).unwrap_err().to_string().ends_with("text contains no certificate in PEM"));
        let swapped = TlsFiles { certificate: files.certificate.clone(), key: files.certificate };
        assert!(Certificates::read(swapped).unwrap_err().to_string().ends_with("a contains no private key in PEM"));
        let absent = TlsFiles { certificate: folder.path().join("none"), key: files.key };
        assert!(matches!(Certificates::read(absent), Err(TlsError::Read { .. })));
    }

    #[test]
    fn a_certificate_that_is_replaced_is_noticed_within_seconds() {
        assert!(CERTIFICATE_CHECK_INTERVAL <= Duration::from_secs(5), "{CERTIFICATE_CHECK_INTERVAL:?}");
    }
}
