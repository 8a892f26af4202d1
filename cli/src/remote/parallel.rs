//! Runs an operation on many workers with limited concurrency.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Runs `work` on each item, at most `max_concurrent` at a time, and calls `done` with the number of finished items and each result.
/// Returns the results in the order of the items.
pub async fn for_each<T, R, F>(
    items: Vec<T>,
    max_concurrent: usize,
    work: impl Fn(T) -> F,
    mut done: impl FnMut(usize, &R),
) -> Vec<R>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(max_concurrent.max(1)));
    let mut tasks = JoinSet::new();
    for (index, item) in items.into_iter().enumerate() {
        let (permits, task) = (Arc::clone(&permits), work(item));
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await;
            (index, task.await)
        });
    }
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        // Only a task that panicked has no result.
        let Ok((index, result)) = ended else { continue };
        done(results.len() + 1, &result);
        results.push((index, result));
    }
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn never_more_max_concurrent_than_asked_and_results_in_order() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = |item: usize| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                item * 2
            }
        };
        let mut numbers = Vec::new();
        let results = for_each((0..20).collect(), 3, work, |number, _| numbers.push(number)).await;
        assert_eq!(results, (0..20).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    }
}
