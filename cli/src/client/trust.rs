//! Which certificate a server must have before it is told a token.

mod certificate_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use torc_api::token::Fingerprint;
use torc_controller::tls;

use super::error::ClientError;
use super::trust_error::FingerprintMismatch;
use certificate_file::CertificateFile;

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Whoever the machine trusts.
    #[default]
    System,
    /// Whoever the certificates of a file vouch for, and nobody else.
    Authority(PathBuf),
    /// The bearer of a certificate for this name that those of a file vouch for: it is reached by another name.
    Named {
        /// The file.
        authority: PathBuf,
        /// The name in the certificate.
        name: String,
    },
    /// The bearer of one certificate, whatever its names and its time.
    Certificate(Fingerprint),
    /// The bearer of the certificate that is in a file at present: it may be replaced while we are connected.
    SameAs(PathBuf),
    /// The bearer of a certificate in a file that the server keeps up to date, whoever those in it vouch for, and whoever the machine
    /// trusts.
    CertificateFile(PathBuf),
}

impl Trust {
    /// How to speak TLS with a server of this trust; `None` for one that speaks plain HTTP, and then nobody is trusted.
    pub fn client_config(trust: Option<&Self>) -> Result<ClientConfig, ClientError> {
        let provider = cryptography();
        let failed = |error: Error| ClientError::Trust { reason: error.to_string() };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
        let by = |check| Arc::new(Verifier { check, algorithms: provider.signature_verification_algorithms });
        let builder = match trust {
            None => builder.with_root_certificates(RootCertStore::empty()),
            Some(Self::System) => builder.with_platform_verifier().map_err(failed)?,
            Some(Self::Authority(path)) => builder.with_root_certificates(authorities(path)?),
            Some(Self::Named { authority, name }) => {
                let wrong = |reason: String| ClientError::Trust { reason };
                let inner = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(authorities(authority)?),
                    Arc::clone(&provider),
                );
                let inner = inner.build().map_err(|error| wrong(error.to_string()))?;
                let name = ServerName::try_from(name.clone()).map_err(|error| wrong(error.to_string()))?;
                builder.dangerous().with_custom_certificate_verifier(by(Check::FixedName { inner, name }))
            }
            Some(Self::Certificate(fingerprint)) => {
                builder.dangerous().with_custom_certificate_verifier(by(Check::Certificate(*fingerprint)))
            }
            Some(Self::SameAs(path)) => {
                builder.dangerous().with_custom_certificate_verifier(by(Check::SameAs(path.clone())))
            }
            Some(Self::CertificateFile(path)) => {
                let file = CertificateFile::new(path, Arc::clone(&provider));
                builder.dangerous().with_custom_certificate_verifier(by(Check::File(file)))
            }
        };
        Ok(builder.with_no_client_auth())
    }
}

fn cryptography() -> Arc<CryptoProvider> {
    tls::install_cryptography();
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

fn authorities(path: &Path) -> Result<RootCertStore, ClientError> {
    let wrong = |reason: String| ClientError::Trust { reason: format!("{}: {reason}", path.display()) };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|_| wrong("it is no certificate in PEM".to_owned()))?;
        store.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if store.is_empty() { Err(wrong("it holds no certificate in PEM".to_owned())) } else { Ok(store) }
}

/// Verifies a server's certificate by one of several checks.
#[derive(Debug)]
struct Verifier {
    check: Check,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Decides which certificates are accepted.
#[derive(Debug)]
enum Check {
    /// Those for this name, under whatever name the server is called.
    FixedName { inner: Arc<WebPkiServerVerifier>, name: ServerName<'static> },
    /// Only this one.
    Certificate(Fingerprint),
    /// Only the one that is in a file at present.
    SameAs(PathBuf),
    /// Those that a file says or vouches for.
    File(CertificateFile),
}

fn compare(wanted: Fingerprint, end_entity: &CertificateDer<'_>) -> Result<ServerCertVerified, Error> {
    let found = tls::fingerprint(end_entity);
    if wanted == found {
        return Ok(ServerCertVerified::assertion());
    }
    let other = OtherError(Arc::new(FingerprintMismatch { wanted, found }));
    Err(Error::InvalidCertificate(CertificateError::Other(other)))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        called: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.check {
            Check::FixedName { inner, name } => inner.verify_server_cert(end_entity, others, name, ocsp, now),
            Check::Certificate(fingerprint) => compare(*fingerprint, end_entity),
            Check::SameAs(path) => {
                let wanted = tls::fingerprint_of(path).map_err(|error| Error::General(error.to_string()))?;
                compare(wanted, end_entity)
            }
            Check::File(file) => file.verify(end_entity, others, called, ocsp, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_of_authorities_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let config = || Trust::client_config(Some(&Trust::Authority(path.clone())));
        assert!(matches!(config(), Err(ClientError::Trust { .. })), "absent");
        std::fs::write(&path, "hello").unwrap();
        assert!(matches!(config(), Err(ClientError::Trust { .. })), "no certificate");
        std::fs::write(&path, tls::make_certificate(vec!["n1".to_owned()]).unwrap().0).unwrap();
        config().unwrap();
    }
}
