//! Signed tokens with limited rights.
//!
//! A token is `torc1.CLAIMS.SIGNATURE`: the claims as JSON, and HMAC-SHA-256 over everything before it, both in
//! base64 for URLs. The bearer can read the claims and cannot change them. The server stores no token; a new key
//! revokes all of them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use torc_api::token::Claims;

/// The prefix of every signed token. It distinguishes signed tokens from the administrator's token and from other
/// versions.
const PREFIX: &str = "torc1.";
/// Minimum length of a key in bytes. A shorter key could be guessed.
const KEY_BYTES: usize = 32;

/// The key that signs tokens.
#[derive(Clone)]
pub struct TokenKey(Vec<u8>);

/// A key that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key for tokens must have at least {KEY_BYTES} bytes")]
pub struct ShortKey;

/// The reason why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not a signed token of this version.
    #[error("it is not a token of Torc")]
    Malformed,
    /// This key has not signed it.
    #[error("this server did not sign it, or the server's key has changed")]
    Forged,
    /// It has expired according to its claims.
    #[error("it has expired")]
    Expired,
}

impl TokenKey {
    /// Creates a key from secret bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, ShortKey> {
        if bytes.len() < KEY_BYTES { Err(ShortKey) } else { Ok(Self(bytes.to_owned())) }
    }

    /// Returns a token with these claims.
    pub fn sign(&self, statement: &Claims) -> String {
        // Claims are a map with text as keys, which can always be written.
        let json = serde_json::to_vec(statement).unwrap_or_default();
        let signed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json));
        let signature = URL_SAFE_NO_PAD.encode(self.mac(&signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    /// Returns the claims of a token that this key has signed and that has not expired.
    pub fn verify(&self, token: &str, now_seconds: i64) -> Result<Claims, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        // Compares in constant time.
        self.mac(signed).verify_slice(&signature).map_err(|_| TokenError::Forged)?;
        let statement = read(token)?;
        match statement.expires {
            Some(end) if end <= now_seconds => Err(TokenError::Expired),
            _ => Ok(statement),
        }
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!("any length is a key"));
        mac.update(signed.as_bytes());
        mac
    }
}

/// Returns the claims of a token without a check of the signature, which only its server can do.
pub fn read(token: &str) -> Result<Claims, TokenError> {
    let (json, _) = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')).ok_or(TokenError::Malformed)?;
    let json = URL_SAFE_NO_PAD.decode(json).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)
}

/// Returns whether a token is a signed one and not the administrator's.
pub fn is_signed(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// Compares two secrets in a time that does not reveal how many bytes are equal.
pub fn constant_time_eq(given: &[u8], wanted: &[u8]) -> bool {
    let different = given.iter().zip(wanted).fold(0u8, |sum, (a, b)| sum | (a ^ b));
    given.len() == wanted.len() && !wanted.is_empty() && different == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use torc_api::token::Grant;

    use super::*;

    fn key(byte: u8) -> TokenKey {
        TokenKey::new(&[byte; KEY_BYTES]).unwrap()
    }

    fn statement(expires: Option<i64>) -> Claims {
        Claims { grant: Grant::Runner { workflow: 3 }, issuer: "ada".to_owned(), issued: 100, expires }
    }

    #[test]
    fn a_token_says_what_was_signed_until_its_time_is_over() {
        let token = key(1).sign(&statement(Some(200)));
        for (now, expected) in [(0, true), (199, true), (200, false), (i64::MAX, false)] {
            let wanted = if expected { Ok(statement(Some(200))) } else { Err(TokenError::Expired) };
            assert_eq!(key(1).verify(&token, now), wanted, "at {now}");
        }
        assert_eq!(key(1).verify(&key(1).sign(&statement(None)), i64::MAX), Ok(statement(None)));
        assert_eq!(read(&token), Ok(statement(Some(200))));
        assert!(is_signed(&token) && !is_signed("0123abcd"));
    }

    #[test]
    fn another_key_a_changed_statement_and_nonsense_are_refused() {
        let token = key(1).sign(&statement(None));
        assert_eq!(key(2).verify(&token, 0), Err(TokenError::Forged));
        let (_, signature) = token.rsplit_once('.').unwrap();
        let wider = Claims { grant: Grant::Admin, ..statement(None) };
        let body = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wider).unwrap());
        assert_eq!(key(1).verify(&format!("{PREFIX}{body}.{signature}"), 0), Err(TokenError::Forged));
        assert_eq!(key(1).verify(&format!("{PREFIX}{body}."), 0), Err(TokenError::Forged));
        for nonsense in ["", "torc1", "torc1.", "abcd", "torc1..", "torc1.%.%", "torc1.e30.é"] {
            assert!(key(1).verify(nonsense, 0).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn keys_that_could_be_guessed_are_refused() {
        assert_eq!(TokenKey::new(&[0; KEY_BYTES - 1]).err(), Some(ShortKey));
    }

    #[test]
    fn words_are_the_same_or_not() {
        for (given, wanted, expected) in
            [("abc", "abc", true), ("abc", "abd", false), ("ab", "abc", false), ("abcd", "abc", false), ("", "", false)]
        {
            assert_eq!(constant_time_eq(given.as_bytes(), wanted.as_bytes()), expected, "{given} {wanted}");
        }
    }

    proptest! {
        /// No single changed byte leaves a token valid.
        #[test]
        fn tampering_is_noticed(at in 0usize..200, byte in 33u8..127) {
            let token = key(1).sign(&statement(Some(200)));
            let mut bytes = token.clone().into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            let changed = String::from_utf8(bytes).unwrap();
            prop_assert!(key(1).verify(&changed, 0).is_err(), "{}", changed);
        }
    }
}
