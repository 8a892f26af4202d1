//! The event queue: earliest first, and in the order of insertion at the same time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::time::Time;

/// Future events by their time.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    inserted: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), inserted: 0 }
    }

    pub fn push(&mut self, at: Time, event: E) {
        self.inserted += 1;
        self.heap.push(Reverse(Entry { at, number: self.inserted, event }));
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// Returns the time of the next event.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Entry<E> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_at_one_time_keep_their_order() {
        let mut queue = EventQueue::new();
        for (at, name) in [(2, "c"), (1, "a"), (2, "d"), (1, "b")] {
            queue.push(Time(at), name);
        }
        assert_eq!(queue.next_time(), Some(Time(1)));
        let order: Vec<&str> = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
