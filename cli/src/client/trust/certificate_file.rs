//! Verifies a server by a certificate file that the server keeps up to date for its runners. A certificate is accepted in three cases:
//!
//! * The file contains it. Its names and validity do not matter: login nodes have many names, and clocks of nodes may be wrong.
//! * A certificate of the file signed it, as after a renewal.
//! * The machine trusts it, as with a proxy in front of the server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier as _};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{Error, RootCertStore};

/// The certificates of a file, read again for each connection.
#[derive(Debug)]
pub(super) struct CertificateFile {
    file: PathBuf,
    /// The last content. The server removes the file when the allocation ends, while the runner still has to deregister.
    known: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
    /// `None` on a machine without CA certificates.
    machine: Option<rustls_platform_verifier::Verifier>,
}

impl CertificateFile {
    pub fn new(file: &Path, provider: Arc<CryptoProvider>) -> Self {
        let machine = rustls_platform_verifier::Verifier::new(Arc::clone(&provider)).ok();
        Self { file: file.to_owned(), known: Mutex::default(), provider, machine }
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let read = std::fs::read(&self.file).ok();
        let read = read.and_then(|text| CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().ok());
        if let Some(certificates) = read.filter(|certificates| !certificates.is_empty()) {
            *known = certificates;
        }
        known.clone()
    }

    /// Returns a verifier with the certificates of the file as CAs; `None` if none of them can be a CA.
    fn authority(&self, certificates: &[CertificateDer<'static>]) -> Option<Arc<WebPkiServerVerifier>> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates.iter().cloned());
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&self.provider)).build().ok()
    }

    /// Verifies a server's certificate.
    pub fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificates = self.certificates();
        if certificates.iter().any(|known| known.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        let by_machine = || {
            let unreadable = Error::General(format!("{} cannot be read", self.file.display()));
            self.machine.as_ref().ok_or(unreadable)?.verify_server_cert(end_entity, others, name, ocsp, now)
        };
        match self.authority(&certificates) {
            // The error of the file's CAs is more useful than that of the machine's.
            Some(authority) => authority
                .verify_server_cert(end_entity, others, name, ocsp, now)
                .or_else(|reason| by_machine().map_err(|_| reason)),
            None => by_machine(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::CertificateError;

    use super::*;

    struct Authority {
        certificate: Certificate,
        issuer: Issuer<'static, KeyPair>,
    }

    fn authority(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut wanted = CertificateParams::new(Vec::new()).unwrap();
        wanted.distinguished_name.push(DnType::CommonName, name);
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = wanted.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(wanted, key) }
    }

    fn issue(authority: &Authority, name: &str) -> Certificate {
        let wanted = CertificateParams::new(vec![name.to_owned()]).unwrap();
        wanted.signed_by(&KeyPair::generate().unwrap(), &authority.issuer).unwrap()
    }

    #[test]
    fn certificates_in_the_file_and_signed_by_it_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.crt");
        let verifier = CertificateFile::new(&file, super::super::cryptography());
        let (ours, strange) = (authority("ours"), authority("strange"));
        let (first, renewed, foreign) = (issue(&ours, "login1"), issue(&ours, "login1"), issue(&strange, "login1"));
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let accepts = |certificate: &Certificate, name: &str, now: UnixTime| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            verifier.verify(certificate.der(), &[], &name, &[], now).map(drop)
        };
        let write = |text: &[&Certificate]| {
            let text: String = text.iter().map(|certificate| certificate.pem()).collect();
            std::fs::write(&file, text).unwrap();
        };
        assert!(accepts(&first, "login1", now).is_err(), "the file does not exist");
        write(&[&first]);
        accepts(&first, "login1", now).unwrap();
        accepts(&first, "another-name", UnixTime::since_unix_epoch(Duration::ZERO)).unwrap();
        assert!(accepts(&renewed, "login1", now).is_err(), "the file has no CA for it");
        // The file is read again for every connection.
        write(&[&renewed]);
        accepts(&renewed, "login1", now).unwrap();
        assert!(accepts(&first, "login1", now).is_err());
        write(&[&first, &ours.certificate]);
        accepts(&renewed, "login1", now).unwrap();
        let wrong_name = accepts(&renewed, "another-name", now).unwrap_err();
        assert!(matches!(
            wrong_name,
            Error::InvalidCertificate(
                CertificateError::NotValidForNameContext { .. } | CertificateError::NotValidForName
            )
        ));
        assert_eq!(
            accepts(&foreign, "login1", now).unwrap_err(),
            Error::InvalidCertificate(CertificateError::UnknownIssuer)
        );
        // An incomplete or missing file keeps the last content.
        std::fs::write(&file, "-----BEGIN").unwrap();
        accepts(&first, "login1", now).unwrap();
        std::fs::remove_file(&file).unwrap();
        accepts(&renewed, "login1", now).unwrap();
    }
}
