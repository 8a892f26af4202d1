//! Credentials of runners in allocations: the server's address, a token for one workflow, and the certificates to trust. They
//! are files that only their owner can read, never arguments of a command. The controller renews them while there are
//! allocations, because an allocation may wait for months and certificates expire meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use torc_api::causes::error_chain;
use torc_api::token::{Claims, Credential, Grant};
use torc_core::ids::WorkflowId;

use crate::issuer::Issuer;
use crate::tls::{Certificates, certificates_of};

/// Credentials of the runners of a workflow.
#[derive(Clone, PartialEq, Eq)]
pub struct RunnerCredentials {
    /// The address of the server.
    pub url: String,
    /// A token for the runners and jobs of one workflow.
    pub token: String,
    /// The fingerprint of the server's self-signed certificate.
    pub certificate_sha256: Option<String>,
    /// The configured certificate and its authority, in PEM.
    pub certificates: Option<String>,
    /// The time at which the token must be replaced, in seconds since 1970: long before it expires.
    renew_at: i64,
}

impl std::fmt::Debug for RunnerCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunnerCredentials").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Paths of the credential files, as Slurm's commands and the runners see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CredentialPaths {
    /// The environment file, which a shell reads.
    pub environment: String,
    /// The token file. A runner reads it again when its token is refused.
    pub token: String,
    /// The file of certificates. A runner reads it again for every connection.
    pub certificates: String,
}

impl CredentialPaths {
    /// Returns the paths for a workflow. `name` must be unique among the stores that share the folder.
    pub fn of(folder: &str, name: &str) -> Self {
        let path = |ending: &str| format!("{}/{name}.{ending}", folder.trim_end_matches('/'));
        Self { environment: path("env"), token: path("token"), certificates: path("crt") }
    }

    pub fn all(&self) -> [&str; 3] {
        [&self.environment, &self.token, &self.certificates]
    }
}

impl RunnerCredentials {
    /// Returns the variables of the environment file. The token is not one of them: a running process cannot get a new variable.
    pub(crate) fn variables(&self, files: &CredentialPaths) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::from([
            ("TORC_API_URL".to_owned(), self.url.clone()),
            ("TORC_TOKEN_FILE".to_owned(), files.token.clone()),
        ]);
        let pin = self.certificate_sha256.iter().map(|pin| ("TORC_CERTIFICATE_SHA256".to_owned(), pin.clone()));
        variables.extend(pin);
        let file = self.certificates.iter().map(|_| files.certificates.clone());
        variables.extend(file.map(|file| ("TORC_SERVER_CERTIFICATES".to_owned(), file)));
        variables
    }

    /// Returns whether these credentials equal newly made ones, apart from a token that need not be renewed yet.
    fn is_like(&self, now: &Self, now_seconds: i64) -> bool {
        let words = |one: &Self| (one.url.clone(), one.certificate_sha256.clone(), one.certificates.clone());
        words(self) == words(now) && now_seconds < self.renew_at
    }
}

/// Makes credentials for the runners of a server.
#[derive(Clone)]
pub struct CredentialIssuer {
    url: String,
    issuer: Issuer,
    lifetime: Duration,
    trust: ServerTrust,
}

/// Certificates that vouch for a server whose certificate is not self-signed.
#[derive(Clone, Default)]
pub(crate) struct ServerTrust {
    /// The configured certificate of the server.
    pub shown: Option<Arc<Certificates>>,
    /// A file with the certificate authority of the server, or of a proxy in front of it.
    pub authority: Option<PathBuf>,
}

impl ServerTrust {
    /// Returns all certificates in PEM. An unreadable authority is left out: the server's own certificate suffices until renewal.
    fn certificates(&self) -> Option<String> {
        let authority = self.authority.as_deref().and_then(|path| {
            certificates_of(path)
                .map_err(|error| {
                    tracing::warn!(error = error_chain(&error), "certificate authority for runners cannot be read")
                })
                .ok()
        });
        let all: Vec<String> = self.shown.iter().map(|shown| shown.chain()).chain(authority).collect();
        (!all.is_empty()).then(|| all.concat())
    }
}

impl CredentialIssuer {
    pub(crate) fn new(url: String, issuer: Issuer, lifetime: Duration, trust: ServerTrust) -> Self {
        Self { url, issuer, lifetime, trust }
    }

    /// Returns the address at which others reach the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns credentials for the runners of a workflow. The token ends early if the workflow is deleted or the key changes.
    pub fn to_workflow(&self, workflow: WorkflowId, now_seconds: i64) -> RunnerCredentials {
        let lifetime = i64::try_from(self.lifetime.as_secs()).unwrap_or(i64::MAX);
        let statement = Claims {
            grant: Grant::Runner { workflow: workflow.0 },
            issuer: "server".to_owned(),
            issued: now_seconds,
            expires: Some(now_seconds.saturating_add(lifetime)),
        };
        let word = self.issuer.issue(&statement);
        let pin = self.issuer.pin();
        RunnerCredentials {
            url: self.url.clone(),
            token: Credential::token_of(&word).to_owned(),
            certificate_sha256: pin.map(|pin| pin.to_string()),
            certificates: if pin.is_none() { self.trust.certificates() } else { None },
            renew_at: now_seconds.saturating_add(lifetime / 2),
        }
    }

    /// Returns the credentials that replace `previous`, or `None` if those are still valid.
    pub(crate) fn renewed(
        &self,
        previous: Option<&RunnerCredentials>,
        workflow: WorkflowId,
        now_seconds: i64,
    ) -> Option<RunnerCredentials> {
        let new = self.to_workflow(workflow, now_seconds);
        (!previous.is_some_and(|previous| previous.is_like(&new, now_seconds))).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use torc_api::token::Fingerprint;
    use torc_core::tokens::TokenKey;

    use super::*;
    use crate::tls::{TlsFiles, make_certificate};

    const DAY: i64 = 24 * 3_600;
    const WORKFLOW: WorkflowId = WorkflowId(3);

    fn credentials(pin: Option<Fingerprint>, trust: ServerTrust) -> (TokenKey, CredentialIssuer) {
        let key = TokenKey::new(&[1; 32]).unwrap();
        let issuer = Issuer::new(key.clone(), pin);
        (
            key,
            CredentialIssuer::new(
                "https://login1:7421".to_owned(),
                issuer,
                Duration::from_secs(30 * DAY as u64),
                trust,
            ),
        )
    }

    #[test]
    fn runner_credentials_have_a_token_and_the_certificate() {
        let pin = Fingerprint([2; 32]);
        let (key, credentials) = credentials(Some(pin), ServerTrust::default());
        let credentials = credentials.to_workflow(WORKFLOW, 1_000);
        let statement = key.verify(&credentials.token, 1_000 + 29 * DAY).unwrap();
        assert_eq!(statement.grant, Grant::Runner { workflow: 3 });
        assert_eq!(statement.expires, Some(1_000 + 30 * DAY));
        assert!(!format!("{credentials:?}").contains(&credentials.token), "the debug output has no token");
        let files = CredentialPaths::of("/home/ada/.torc/allocations", "torc-wf3-0a1b");
        let variables = credentials.variables(&files);
        let expected = BTreeMap::from([
            ("TORC_API_URL".to_owned(), "https://login1:7421".to_owned()),
            ("TORC_TOKEN_FILE".to_owned(), "/home/ada/.torc/allocations/torc-wf3-0a1b.token".to_owned()),
            ("TORC_CERTIFICATE_SHA256".to_owned(), pin.to_string()),
        ]);
        assert_eq!(variables, expected, "the token itself is in a file that can be replaced");
    }

    #[test]
    fn what_was_handed_over_is_replaced_when_it_is_out_of_date() {
        let (_, credentials) = credentials(None, ServerTrust::default());
        let first = credentials.renewed(None, WORKFLOW, 0).unwrap();
        assert_eq!(credentials.renewed(Some(&first), WORKFLOW, 15 * DAY - 1), None);
        let second = credentials.renewed(Some(&first), WORKFLOW, 15 * DAY).unwrap();
        assert_ne!(second.token, first.token, "half of its time is over");
        let elsewhere = CredentialIssuer { url: "https://login2:7421".to_owned(), ..credentials };
        assert!(elsewhere.renewed(Some(&first), WORKFLOW, 1).is_some(), "the server is somewhere else");
    }

    #[test]
    fn configured_certificates_are_passed_on_and_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let make = || make_certificate(vec!["login1".to_owned()]).unwrap();
        let (certificate, key) = make();
        std::fs::write(file("tls.crt"), &certificate).unwrap();
        std::fs::write(file("tls.key"), key).unwrap();
        let (authority, other) = (make().0, make().0);
        std::fs::write(file("ca.crt"), &authority).unwrap();
        let text = |parts: [&String; 2]| Some(parts.map(|part| part.replace("\r\n", "\n")).concat());
        let files = TlsFiles { certificate: file("tls.crt"), key: file("tls.key") };
        let shown = Some(Certificates::read(files).unwrap());
        let trust = ServerTrust { shown, authority: Some(file("ca.crt")) };
        let (_, given) = credentials(None, trust.clone());
        let first = given.to_workflow(WORKFLOW, 0);
        assert_eq!(first.certificates, text([&certificate, &authority]));
        let variables = first.variables(&CredentialPaths::of("/f", "w"));
        assert_eq!(variables["TORC_SERVER_CERTIFICATES"], "/f/w.crt");
        assert!(!variables.contains_key("TORC_CERTIFICATE_SHA256"), "it may be renewed");
        std::fs::write(file("ca.crt"), &other).unwrap();
        let second = given.renewed(Some(&first), WORKFLOW, 1).unwrap();
        assert_eq!(second.certificates, text([&certificate, &other]));
        std::fs::remove_file(file("ca.crt")).unwrap();
        let third = given.renewed(Some(&second), WORKFLOW, 1).unwrap();
        assert_eq!(third.certificates, text([&certificate, &String::new()]), "the server's own is enough for now");
        let (_, own) = credentials(Some(Fingerprint([2; 32])), trust);
        assert_eq!(own.to_workflow(WORKFLOW, 0).certificates, None, "one that it has made is the only one");
    }

    #[test]
    fn a_token_is_replaced_at_half_of_its_life() {
        let issuer = Issuer::new(TokenKey::new(&[1; 32]).unwrap(), None);
        for (lifetime, half) in [(1_000, 500), (1_001, 500), (3, 1)] {
            let lifetime = Duration::from_secs(lifetime);
            let credentials = CredentialIssuer::new("u".to_owned(), issuer.clone(), lifetime, ServerTrust::default());
            let first = credentials.to_workflow(WORKFLOW, 10_000);
            for (age, is_replaced) in [(half - 1, false), (half, true), (half + 1, true)] {
                let new = credentials.renewed(Some(&first), WORKFLOW, 10_000 + age);
                assert_eq!(new.is_some(), is_replaced, "{lifetime:?} after {age} s");
            }
        }
    }

    #[test]
    fn another_certificate_takes_the_place_of_what_was_handed_over() {
        let (_, own) = credentials(Some(Fingerprint([2; 32])), ServerTrust::default());
        let first = own.to_workflow(WORKFLOW, 0);
        assert_eq!(own.renewed(Some(&first), WORKFLOW, 1), None);
        let (_, other) = credentials(Some(Fingerprint([3; 32])), ServerTrust::default());
        assert!(other.renewed(Some(&first), WORKFLOW, 1).is_some());
        let files = CredentialPaths::of("/f/", "w");
        assert_eq!(files.all(), ["/f/w.env", "/f/w.token", "/f/w.crt"]);
    }
}
