//! A cache of token reviews.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::caller::Caller;

/// Time for which an accepted token stays accepted, even if its account is deleted.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);
/// Time for which a refused token stays refused: its account may have just been added to a list.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Maximum number of cached reviews. When it is reached, expired ones are removed, and all if that is not enough.
const MAX_CACHED_REVIEWS: usize = 10_000;

/// Results of reviews by the hash of the token: the key cannot be used as a token.
#[derive(Default)]
pub(super) struct ReviewCache {
    known: HashMap<[u8; 32], (Option<Caller>, Instant)>,
}

impl ReviewCache {
    /// Returns the cached result; the inner `None` stands for a refused token.
    pub fn recall(&self, token: &str, now: Instant) -> Option<Option<Caller>> {
        self.known.get(&hash(token)).filter(|(_, until)| now < *until).map(|(caller, _)| caller.clone())
    }

    pub fn remember(&mut self, token: &str, caller: Option<Caller>, now: Instant) {
        if self.known.len() >= MAX_CACHED_REVIEWS {
            self.known.retain(|_, (_, until)| now < *until);
        }
        if self.known.len() >= MAX_CACHED_REVIEWS {
            self.known.clear();
        }
        let until = now + if caller.is_some() { CACHE_LIFETIME } else { UNKNOWN };
        self.known.insert(hash(token), (caller, until));
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use torc_api::token::Grant;

    use super::*;

    #[test]
    fn cached_reviews_expire() {
        let now = Instant::now();
        let caller = Caller { grant: Grant::Pool, name: "torc/runner".to_owned() };
        let mut cache = ReviewCache::default();
        assert_eq!(cache.recall("a", now), None);
        cache.remember("a", Some(caller.clone()), now);
        cache.remember("b", None, now);
        assert_eq!(cache.recall("a", now + Duration::from_secs(59)), Some(Some(caller)));
        assert_eq!(cache.recall("a", now + Duration::from_secs(60)), None);
        assert_eq!(cache.recall("b", now + Duration::from_secs(9)), Some(None));
        assert_eq!(cache.recall("b", now + Duration::from_secs(10)), None);
    }

    #[test]
    fn many_tokens_do_not_fill_the_memory() {
        let now = Instant::now();
        let mut cache = ReviewCache::default();
        for number in 0..=MAX_CACHED_REVIEWS {
            cache.remember(&number.to_string(), None, now);
        }
        assert!(cache.known.len() <= MAX_CACHED_REVIEWS);
        // Expired entries are removed first, so that valid ones stay.
        let later = now + UNKNOWN;
        let mut cache = ReviewCache::default();
        for number in 0..MAX_CACHED_REVIEWS - 1 {
            cache.remember(&number.to_string(), None, now);
        }
        let caller = Caller { grant: Grant::Pool, name: "torc/runner".to_owned() };
        cache.remember("runner", Some(caller.clone()), now);
        cache.remember("another", None, later);
        assert_eq!(cache.recall("runner", later), Some(Some(caller)));
        assert_eq!(cache.known.len(), 2);
    }
}
