//! Reasons why a server's certificate was not accepted, with advice.

use rustls::{CertificateError, Error, InvalidMessage, OtherError};
use torc_api::token::Fingerprint;

/// A certificate that does not match the expected fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its certificate has the fingerprint {found}, expected {wanted}")]
pub struct FingerprintMismatch {
    pub wanted: Fingerprint,
    pub found: Fingerprint,
}

/// The reason why a server was not trusted, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustError {
    pub reason: String,
    pub hint: &'static str,
}

impl TrustError {
    /// Returns the TLS error that made a request fail, if there is one.
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
        let (reason, hint) = match error {
            Error::InvalidCertificate(certificate) => explain_certificate(certificate),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                ("it speaks HTTP, not HTTPS".to_owned(), "use http:// in its URL")
            }
            other => (other.to_string(), "check whether there is a proxy between this machine and the server"),
        };
        Some(Self { reason, hint })
    }
}

fn explain_certificate(error: &CertificateError) -> (String, &'static str) {
    match error {
        CertificateError::Other(OtherError(other)) if other.is::<FingerprintMismatch>() => (
            other.to_string(),
            "it may be another server, or the connection may be intercepted: copy its token file again over a channel that you trust",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("its certificate has expired".to_owned(), "renew it on the server, which reloads it")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("its certificate is not valid yet".to_owned(), "compare the clocks of this machine and the server")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "its certificate is not valid for this host name".to_owned(),
            "use a host name of the certificate in the URL, or pin the certificate with --certificate-sha256",
        ),
        CertificateError::UnknownIssuer => (
            "the issuer of its certificate is not trusted".to_owned(),
            "name the CA certificate with --ca-cert, or use the server's token file, which pins its certificate",
        ),
        other => (format!("its certificate cannot be used: {other}"), "show it with `openssl x509 -text`"),
    }
}

/// Finds a TLS error inside nested I/O errors, which do not return it from `source()`.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let inside = || error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.downcast_ref().or_else(|| tls_error(inside()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;

    #[test]
    fn reasons_are_found_inside_other_errors() {
        let (wanted, found) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        let other = CertificateError::Other(OtherError(Arc::new(FingerprintMismatch { wanted, found })));
        for (error, words) in [
            (Error::InvalidCertificate(other), "expected 0101"),
            (Error::InvalidCertificate(CertificateError::Expired), "has expired"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "not valid for this host name"),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), "issuer of its certificate is not trusted"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "speaks HTTP, not HTTPS"),
        ] {
            let wrapped = std::io::Error::other(std::io::Error::other(error));
            let found = TrustError::of(&wrapped).unwrap();
            assert!(found.reason.contains(words), "{found:?}");
        }
        assert_eq!(TrustError::of(&std::io::Error::other("refused")), None);
    }
}
