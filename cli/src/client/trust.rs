//! The certificates that a server may have. The client sends no token to another server.

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

/// The accepted certificates of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that the machine trusts.
    #[default]
    System,
    /// Only certificates signed by the CAs of a file.
    Authority(PathBuf),
    /// Certificates for a fixed name that are signed by the CAs of a file; the URL has another host.
    Named { authority: PathBuf, name: String },
    /// The certificate with this fingerprint; its names and validity do not matter.
    Certificate(Fingerprint),
    /// The certificate in a file, read for each connection because it may be replaced.
    SameAs(PathBuf),
    /// Certificates in a file that the server keeps up to date, certificates signed by those, and certificates that the machine trusts.
    CertificateFile(PathBuf),
}

impl Trust {
    /// Returns the TLS configuration for a trust. `None` is for plain HTTP and trusts no certificate.
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
        let certificate = certificate.map_err(|_| wrong("it is not a certificate in PEM".to_owned()))?;
        store.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if store.is_empty() { Err(wrong("it contains no certificate in PEM".to_owned())) } else { Ok(store) }
}

/// Verifies a server's certificate by one of several checks.
#[derive(Debug)]
struct Verifier {
    check: Check,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The accepted certificates of a [`Verifier`].
#[derive(Debug)]
enum Check {
    /// Certificates for this name; the host of the URL does not matter.
    FixedName { inner: Arc<WebPkiServerVerifier>, name: ServerName<'static> },
    /// Only the certificate with this fingerprint.
    Certificate(Fingerprint),
    /// Only the certificate in this file.
    SameAs(PathBuf),
    /// Certificates in this file and those signed by them.
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
        requested_name: &ServerName<'_>,
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
            Check::File(file) => file.verify(end_entity, others, requested_name, ocsp, now),
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
    fn a_ca_file_must_contain_certificates() {
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
