//! Waits for several disk operations concurrently: several syncs take about as long as one.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Maximum number of threads.
const MAX_THREADS: usize = 8;

/// Runs `work` for each of `items`. Returns the results in order.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let per_thread =
        NonZeroUsize::new(items.len().div_ceil(MAX_THREADS)).unwrap_or(NonZeroUsize::MIN);
    if items.len() <= 1 {
        return items.iter().map(work).collect();
    }

    let each = &|part: &[T]| part.iter().map(&work).collect::<Vec<R>>();
    scope(|scope| {
        let parts = items.chunks(per_thread.get());
        // All threads must run before the first one is joined.
        let begun: Vec<_> = parts
            .map(|part| Builder::new().spawn_scoped(scope, move || each(part)).map_err(|_| part))
            .collect();

        let ended = begun.into_iter().map(|thread| match thread.map(|thread| thread.join()) {
            Ok(Ok(results)) => results,
            Ok(Err(panic)) => resume_unwind(panic),
            // If no thread can be started, do the work on this thread.
            Err(part) => each(part),
        });
        ended.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for n in [0, 1, 7, 8, 9, 100] {
            let items: Vec<u64> = (0..n).collect();
            let expected: Vec<u64> = items.iter().map(|item| item * 2).collect();
            assert_eq!(in_parallel(&items, |item| item * 2), expected);
        }
    }
}
