//! Output on the disks of runners that nobody else sees: who wants which piece of it, and who brings it.
//!
//! Nothing of it is kept: whoever asks waits, and whoever has given up is forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use torc_api::logs::{LogPiece, WantedPiece};
use torc_api::wire::LONG_POLL_SECONDS;

/// A runner that is there answers at once; one that is slow has so long.
const PATIENCE: Duration = Duration::from_secs(15);
/// So many may be wanted at once; whoever comes later is told to come back.
const MOST: usize = 1_000;

/// The desk at which wishes lie. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Pieces {
    wishes: Arc<Mutex<Wishes>>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct Wishes {
    last: i64,
    /// What has not been taken yet, with the host that has it.
    open: Vec<(String, WantedPiece)>,
    /// Who waits for a piece.
    waiting: HashMap<i64, oneshot::Sender<LogPiece>>,
}

impl Pieces {
    /// A piece of a file on a host's disk; nothing if its runner does not bring it in time.
    pub async fn ask(&self, host: &str, path: &str, offset: i64, lines: Option<i64>) -> Option<LogPiece> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut wishes = self.lock();
            if wishes.waiting.len() >= MOST {
                return None;
            }
            wishes.last += 1;
            let id = wishes.last;
            wishes.open.push((host.to_owned(), WantedPiece { id, path: path.to_owned(), offset, lines }));
            wishes.waiting.insert(id, sender);
            id
        };
        self.news.notify_waiters();
        // Whoever stops waiting, for whatever reason, leaves nothing behind.
        let _forget = Forget { pieces: self, id };
        tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok()
    }

    /// What is wanted of a host; nothing after a while.
    pub async fn wanted(&self, host: &str) -> Vec<WantedPiece> {
        let until = tokio::time::Instant::now() + Duration::from_secs(LONG_POLL_SECONDS);
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // From here on no news is missed.
            news.as_mut().enable();
            let found = self.take(host);
            if !found.is_empty() || tokio::time::timeout_at(until, news).await.is_err() {
                return found;
            }
        }
    }

    /// Hands over what a runner has brought.
    pub fn bring(&self, pieces: Vec<LogPiece>) {
        let mut wishes = self.lock();
        for piece in pieces {
            if let Some(waiting) = wishes.waiting.remove(&piece.id) {
                // Whoever has just gone does not need it.
                let _ = waiting.send(piece);
            }
        }
    }

    fn take(&self, host: &str) -> Vec<WantedPiece> {
        let mut wishes = self.lock();
        let (its, others) = std::mem::take(&mut wishes.open).into_iter().partition(|(of, _)| of == host);
        wishes.open = others;
        Vec::into_iter(its).map(|(_, piece)| piece).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Forget<'a> {
    pieces: &'a Pieces,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut wishes = self.pieces.lock();
        wishes.waiting.remove(&self.id);
        wishes.open.retain(|(_, piece)| piece.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many wishes have not been taken, and how many people wait.
    fn left(pieces: &Pieces) -> (usize, usize) {
        let wishes = pieces.lock();
        (wishes.open.len(), wishes.waiting.len())
    }

    #[tokio::test]
    async fn a_piece_goes_from_the_host_that_has_it_to_who_wants_it() {
        let pieces = Pieces::default();
        let runner = async {
            let wanted = pieces.wanted("a").await;
            assert_eq!(wanted.iter().map(|piece| piece.path.as_str()).collect::<Vec<_>>(), ["/x"]);
            pieces.bring(vec![LogPiece::new(99, 0, b"nobody's"), LogPiece::new(wanted[0].id, 0, b"text")]);
        };
        let nobodys = pieces.ask("b", "/y", 0, None);
        tokio::pin!(nobodys);
        tokio::select! {
            biased;
            _ = &mut nobodys => panic!("no runner lives there"),
            (mine, ()) = async { tokio::join!(pieces.ask("a", "/x", 0, None), runner) } => {
                assert_eq!(mine.map(|piece| piece.bytes()), Some(b"text".to_vec()));
            }
        }
        assert_eq!(left(&pieces), (1, 1));
    }

    #[tokio::test]
    async fn whoever_has_given_up_is_forgotten() {
        let pieces = Pieces::default();
        let asked = tokio::time::timeout(Duration::from_millis(1), pieces.ask("b", "/y", 0, None)).await;
        assert!(asked.is_err());
        assert_eq!(left(&pieces), (0, 0));
        assert_eq!(pieces.take("b"), []);
    }

    #[tokio::test]
    async fn a_wish_says_which_part_of_which_file() {
        let pieces = Pieces::default();
        let runner = async {
            let wanted = pieces.wanted("a").await.remove(0);
            assert_eq!((wanted.path.as_str(), wanted.offset, wanted.lines), ("/x", 17, Some(19)));
            assert_eq!(pieces.take("a"), [], "it is taken once");
            pieces.bring(vec![LogPiece::new(wanted.id, 17, b"text")]);
        };
        let (piece, ()) = tokio::join!(pieces.ask("a", "/x", 17, Some(19)), runner);
        assert_eq!(piece.map(|piece| (piece.offset, piece.bytes())), Some((17, b"text".to_vec())));
        assert_eq!(left(&pieces), (0, 0));
    }

    #[tokio::test]
    async fn a_thousand_wishes_are_enough() {
        let pieces = Pieces::default();
        let mut asked: Vec<_> = (0..MOST).map(|_| Box::pin(pieces.ask("b", "/y", 0, None))).collect();
        for one in &mut asked {
            assert!(futures::poll!(one.as_mut()).is_pending());
        }
        assert_eq!((left(&pieces), MOST), ((1_000, 1_000), 1_000));
        assert_eq!(pieces.ask("b", "/y", 0, None).await, None, "whoever comes later is told at once");
        drop(asked);
        assert_eq!(left(&pieces), (0, 0));
    }

    #[test]
    fn a_runner_has_fifteen_seconds_to_bring_a_piece() {
        assert_eq!(PATIENCE, Duration::from_secs(15));
    }
}
