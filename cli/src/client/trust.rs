//! Which certificate a server must have before it is told a token.

mod handed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use torc_api::token::Fingerprint;
use torc_controller::tls;

use super::ClientError;
use handed::CertificateFile;

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
    Handed(PathBuf),
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
            Some(Self::Handed(path)) => {
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

/// A server has another certificate than the one that it was to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its certificate is {found}, and should be {wanted}")]
pub struct AnotherCertificate {
    wanted: Fingerprint,
    found: Fingerprint,
}

fn compare(wanted: Fingerprint, end_entity: &CertificateDer<'_>) -> Result<ServerCertVerified, Error> {
    let found = tls::fingerprint(end_entity);
    if wanted == found {
        return Ok(ServerCertVerified::assertion());
    }
    let other = OtherError(Arc::new(AnotherCertificate { wanted, found }));
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

/// Why a server was not trusted, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distrust {
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub advice: &'static str,
}

impl Distrust {
    /// The reason that a request failed, if it is one of TLS.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(present) = cause {
            if let Some(error) = tls_error(present) {
                return Self::explain(error);
            }
            cause = present.source();
        }
        None
    }

    fn explain(error: &Error) -> Option<Self> {
        let (reason, advice) = match error {
            Error::InvalidCertificate(certificate) => explain_certificate(certificate),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                ("it speaks http, not https".to_owned(), "write http:// in its URL")
            }
            other => (other.to_string(), "is there a proxy in between?"),
        };
        Some(Self { reason, advice })
    }
}

fn explain_certificate(error: &CertificateError) -> (String, &'static str) {
    match error {
        CertificateError::Other(OtherError(other)) if other.is::<AnotherCertificate>() => (
            other.to_string(),
            "somebody may be in between, or it is another server: get its token file again over a way that you trust",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("its certificate has expired".to_owned(), "renew it on the server; it is read again by itself")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("its certificate is not valid yet".to_owned(), "compare the clocks of both machines")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "its certificate is not for this name".to_owned(),
            "write the name in the URL that is in the certificate, or pin it with --certificate-sha256",
        ),
        CertificateError::UnknownIssuer => (
            "its certificate was issued by nobody that is trusted here".to_owned(),
            "name the issuer's certificate with --ca-cert, or use the server's token file, which pins its own",
        ),
        other => (format!("its certificate cannot be used: {other}"), "look at it with `openssl x509 -text`"),
    }
}

/// Errors of TLS travel inside errors of I/O, one in the other, which do not name them as their source.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let inside = || error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.downcast_ref().or_else(|| tls_error(inside()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn reasons_are_found_inside_other_errors() {
        let (wanted, found) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        let other = CertificateError::Other(OtherError(Arc::new(AnotherCertificate { wanted, found })));
        for (error, words) in [
            (Error::InvalidCertificate(other), "should be 0101"),
            (Error::InvalidCertificate(CertificateError::Expired), "has expired"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "not for this name"),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), "nobody that is trusted"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "speaks http, not https"),
        ] {
            let wrapped = std::io::Error::other(std::io::Error::other(error));
            let distrust = Distrust::of(&wrapped).unwrap();
            assert!(distrust.reason.contains(words), "{distrust:?}");
        }
        assert_eq!(Distrust::of(&std::io::Error::other("refused")), None);
    }

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
