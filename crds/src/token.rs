//! Tokens, their rights, and the certificate of the server that they belong to.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rights of a token's bearer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "scope", rename_all = "lowercase")]
pub enum Grant {
    /// Every request, for every user and workflow.
    Admin,
    /// Requests about the workflows of one user.
    Owner {
        /// The name of the user who owns the workflows.
        user: String,
    },
    /// Read requests about the workflows of one namespace.
    Viewer {
        /// The namespace of the workflows.
        namespace: String,
    },
    /// Requests about the workflows of one namespace, except creating new ones.
    Editor {
        /// The namespace of the workflows.
        namespace: String,
    },
    /// Requests that the runners and jobs of one workflow need.
    Runner {
        /// The workflow's number, unique in the store.
        workflow: i64,
    },
    /// Requests that the runners and jobs of every workflow need: for a pool of runners.
    Pool,
    /// Requests for the server's metrics, and no others.
    Metrics,
}

impl Grant {
    /// Returns the scope without its parameters.
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Admin => Scope::Admin,
            Self::Owner { .. } => Scope::Owner,
            Self::Viewer { .. } => Scope::Viewer,
            Self::Editor { .. } => Scope::Editor,
            Self::Runner { .. } => Scope::Runner,
            Self::Pool => Scope::Pool,
            Self::Metrics => Scope::Metrics,
        }
    }
}

/// The scope of a token, without the user, namespace or workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Every request, for every user and workflow.
    Admin,
    /// Requests about the workflows of one user.
    Owner,
    /// Reading a namespace's workflows.
    Viewer,
    /// Requests about the workflows of one namespace, except creating new ones.
    Editor,
    /// Requests that the runners and jobs of one workflow need.
    Runner,
    /// Requests that the runners and jobs of every workflow need.
    Pool,
    /// Requests for the server's metrics, and no others.
    Metrics,
}

impl Scope {
    /// Returns the name in tokens and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Owner => "owner",
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Runner => "runner",
            Self::Pool => "pool",
            Self::Metrics => "metrics",
        }
    }
}

/// The claims of a signed token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    /// The rights of its bearer.
    #[serde(flatten)]
    pub grant: Grant,
    /// The user who created it.
    pub issuer: String,
    /// The time at which it was created, in seconds since 1970.
    pub issued: i64,
    /// The time at which it expires, in seconds since 1970; absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
}

/// `POST /v1/tokens`: create a token with fewer rights than the caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenRequest {
    /// The scope of the token.
    pub scope: Scope,
    /// The workflow of a `runner` token, by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The namespace of that workflow, or of a `viewer` or `editor` token; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The user of an `owner` token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Seconds after which it expires (never when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<i64>,
}

/// A token that the server created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenResponse {
    /// The token. It includes the fingerprint of the server's certificate if the server created its own.
    pub token: String,
    /// The claims that the server signed.
    pub statement: Claims,
}

/// The SHA-256 hash of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error for a text that is not a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a SHA-256 fingerprint, which has 64 hexadecimal digits")]
pub struct ParseFingerprintError;

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    /// Parses hexadecimal digits, also in pairs with colons as `openssl x509 -fingerprint` prints them.
    fn from_str(text: &str) -> Result<Self, ParseFingerprintError> {
        let text = text.trim();
        let digits: Vec<u8> = text.strip_prefix("sha256:").unwrap_or(text).bytes().filter(|c| *c != b':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return Err(ParseFingerprintError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or(ParseFingerprintError);
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).map_err(|_| ParseFingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format!("'{text}' {error}")))
    }
}

/// A token as users pass it on, in one word: `TOKEN`, or `TOKEN~FINGERPRINT` if the server created its own certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The part that is sent to the server.
    pub token: String,
    /// The certificate of the only server that may receive the token; none for any trusted one.
    pub certificate: Option<Fingerprint>,
}

impl Credential {
    /// Splits a word into token and fingerprint. An invalid fingerprint is an error, because ignoring it would disable
    /// the pin.
    pub fn parse(word: &str) -> Result<Self, ParseFingerprintError> {
        let word = word.trim();
        match word.split_once(FINGERPRINT_SEPARATOR) {
            None => Ok(Self { token: word.to_owned(), certificate: None }),
            Some((token, pin)) => Ok(Self { token: token.to_owned(), certificate: Some(pin.parse()?) }),
        }
    }

    /// Returns the token in a word, without the fingerprint.
    pub fn token_of(word: &str) -> &str {
        word.split_once(FINGERPRINT_SEPARATOR).map_or(word, |(token, _)| token)
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.token)?;
        match self.certificate {
            Some(pin) => write!(f, "{FINGERPRINT_SEPARATOR}{pin}"),
            None => Ok(()),
        }
    }
}

/// The separator between a token and a fingerprint. It is valid in HTTP headers and occurs in no token of Torc.
const FINGERPRINT_SEPARATOR: char = '~';

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn fingerprints_in_every_usual_spelling() {
        let plain = "00ff10abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123";
        let fingerprint: Fingerprint = plain.parse().unwrap();
        assert_eq!(fingerprint.to_string(), plain);
        let pairs: Vec<&str> = (0..32).map(|at| &plain[2 * at..2 * at + 2]).collect();
        for same in [pairs.join(":").to_uppercase(), format!("sha256:{plain}"), format!(" {plain}\n")] {
            assert_eq!(same.parse(), Ok(fingerprint), "{same}");
        }
        for wrong in ["", "ff", &plain[1..], &plain.replace('f', "g"), &format!("{plain}00"), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(ParseFingerprintError), "{wrong}");
        }
        let json = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), fingerprint);
    }

    #[test]
    fn a_token_and_its_certificate_are_one_word() {
        let pin = Fingerprint([7; 32]);
        for credential in [
            Credential { token: "abc".to_owned(), certificate: None },
            Credential { token: "torc1.a-b_.c".to_owned(), certificate: Some(pin) },
        ] {
            let word = credential.to_string();
            assert!(!word.contains(char::is_whitespace));
            assert_eq!(Credential::parse(&format!("{word}\n")).unwrap(), credential);
            assert_eq!(Credential::token_of(&word), credential.token);
        }
        assert_eq!(Credential::parse("abc~1234"), Err(ParseFingerprintError));
    }

    #[test]
    fn a_grant_is_written_with_its_scope() {
        let json = serde_json::to_value(Grant::Runner { workflow: 3 }).unwrap();
        assert_eq!(json, serde_json::json!({ "scope": "runner", "workflow": 3 }));
        for grant in [
            Grant::Admin,
            Grant::Owner { user: "ada".to_owned() },
            Grant::Viewer { namespace: "lab".to_owned() },
            Grant::Editor { namespace: "lab".to_owned() },
            Grant::Runner { workflow: 1 },
            Grant::Pool,
            Grant::Metrics,
        ] {
            let json = serde_json::to_value(&grant).unwrap();
            assert_eq!(json["scope"], grant.scope().name());
            assert_eq!(serde_json::from_value::<Grant>(json).unwrap(), grant);
        }
    }
}
