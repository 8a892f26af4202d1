//! Reasons why a server's certificate was not accepted, with advice.

use rustls::{CertificateError, Error, InvalidMessage, OtherError};
use torc_api::token::Fingerprint;

/// A server has another certificate than the one that it was to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its certificate is {found}, and should be {wanted}")]
pub struct FingerprintMismatch {
    pub wanted: Fingerprint,
    pub found: Fingerprint,
}

/// Why a server was not trusted, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustError {
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub advice: &'static str,
}

impl TrustError {
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
        CertificateError::Other(OtherError(other)) if other.is::<FingerprintMismatch>() => (
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

    use std::sync::Arc;

    use super::*;

    #[test]
    fn reasons_are_found_inside_other_errors() {
        let (wanted, found) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        let other = CertificateError::Other(OtherError(Arc::new(FingerprintMismatch { wanted, found })));
        for (error, words) in [
            (Error::InvalidCertificate(other), "should be 0101"),
            (Error::InvalidCertificate(CertificateError::Expired), "has expired"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "not for this name"),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), "nobody that is trusted"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "speaks http, not https"),
        ] {
            let wrapped = std::io::Error::other(std::io::Error::other(error));
            let distrust = TrustError::of(&wrapped).unwrap();
            assert!(distrust.reason.contains(words), "{distrust:?}");
        }
        assert_eq!(TrustError::of(&std::io::Error::other("refused")), None);
    }
}
