//! What a runner was handed of its server's certificate: a file that the server keeps up to date. A server is believed if its
//! certificate is in the file, whatever its names and its time, as those of a login node are many and clocks of nodes may be wrong;
//! or if those in the file vouch for it, as they do after a renewal; or if the machine trusts it, as it does a proxy in front.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier as _};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{Error, RootCertStore};

/// Believes what a file says at the moment of each connection.
#[derive(Debug)]
pub(super) struct CertificateFile {
    file: PathBuf,
    /// What it said the last time: it is removed when the allocation is over, and the runner still has to say goodbye.
    known: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
    /// None where the machine trusts nobody.
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

    /// Checks with those in the file; none where nobody in it can vouch for anybody.
    fn authority(&self, certificates: &[CertificateDer<'static>]) -> Option<Arc<WebPkiServerVerifier>> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates.iter().cloned());
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&self.provider)).build().ok()
    }

    /// Accepts a certificate, or says why not.
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
            let nobody = Error::General(format!("{} cannot be read", self.file.display()));
            self.machine.as_ref().ok_or(nobody)?.verify_server_cert(end_entity, others, name, ocsp, now)
        };
        match self.authority(&certificates) {
            // What those say who should know is the better reason.
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
    fn the_certificate_in_the_file_and_what_those_in_it_vouch_for_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.crt");
        let handed = CertificateFile::new(&file, super::super::cryptography());
        let (ours, strange) = (authority("ours"), authority("strange"));
        let (first, renewed, foreign) = (issue(&ours, "login1"), issue(&ours, "login1"), issue(&strange, "login1"));
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let believes = |certificate: &Certificate, name: &str, now: UnixTime| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            handed.verify(certificate.der(), &[], &name, &[], now).map(drop)
        };
        let write = |text: &[&Certificate]| {
            let text: String = text.iter().map(|certificate| certificate.pem()).collect();
            std::fs::write(&file, text).unwrap();
        };
        assert!(believes(&first, "login1", now).is_err(), "nothing was handed over");
        write(&[&first]);
        believes(&first, "login1", now).unwrap();
        believes(&first, "another-name", UnixTime::since_unix_epoch(Duration::ZERO)).unwrap();
        assert!(believes(&renewed, "login1", now).is_err(), "nobody in the file vouches for it");
        // It is read anew for every connection.
        write(&[&renewed]);
        believes(&renewed, "login1", now).unwrap();
        assert!(believes(&first, "login1", now).is_err());
        write(&[&first, &ours.certificate]);
        believes(&renewed, "login1", now).unwrap();
        let wrong_name = believes(&renewed, "another-name", now).unwrap_err();
        assert!(matches!(
            wrong_name,
            Error::InvalidCertificate(
                CertificateError::NotValidForNameContext { .. } | CertificateError::NotValidForName
            )
        ));
        assert_eq!(
            believes(&foreign, "login1", now).unwrap_err(),
            Error::InvalidCertificate(CertificateError::UnknownIssuer)
        );
        // Half a file, and none, are no reason to forget.
        std::fs::write(&file, "-----BEGIN").unwrap();
        believes(&first, "login1", now).unwrap();
        std::fs::remove_file(&file).unwrap();
        believes(&renewed, "login1", now).unwrap();
    }
}
