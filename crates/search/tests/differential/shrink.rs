//! Shrinks a case to the smallest one that still shows the difference: removes files, then lines, then pieces
//! of the request.

use crate::tree::Files;
use std::iter::successors;

/// Maximum number of comparisons for shrinking one case.
const MAX_TRIALS: usize = 600;

/// A request that can be simplified.
pub(crate) trait Smaller: Clone + PartialEq {
    /// Returns the requests that are simpler by one piece.
    fn smaller(&self) -> Vec<Self>;
}

/// Returns the smallest case found, and its difference.
pub(crate) fn shrink<Q: Smaller>(
    files: &Files,
    query: &Q,
    differs: &dyn Fn(&Files, &Q) -> Option<String>,
) -> (Files, Q, String) {
    let mut best = (files.clone(), query.clone());
    let mut shown = differs(files, query).unwrap_or_else(|| "it was not shown again".to_owned());
    let mut n_left = MAX_TRIALS;
    loop {
        let better = candidates(&best.0, &best.1).take(n_left).find_map(|candidate| {
            n_left -= 1;
            let difference = differs(&candidate.0, &candidate.1)?;
            Some((candidate, difference))
        });
        match better {
            Some((candidate, difference)) => (best, shown) = (candidate, difference),
            None => return (best.0, best.1, shown),
        }
    }
}

/// Returns the cases that are smaller by one step. Each is made when it is tried: all copies of a large tree would not fit
/// into memory.
fn candidates<'a, Q: Smaller>(
    files: &'a Files,
    query: &'a Q,
) -> impl Iterator<Item = (Files, Q)> + 'a {
    let n = files.0.len();
    // Half of the files, a quarter and so on, then one.
    let chunks = successors(Some(n / 2), |chunk| Some(chunk / 2)).take_while(|chunk| 1 < *chunk);
    let starts = move |chunk: usize| (0..n).step_by(chunk).map(move |start| (start, chunk));
    let fewer = chunks.chain([1]).flat_map(starts).map(move |(start, chunk)| {
        let mut fewer = files.clone();
        fewer.0.drain(start..(start + chunk).min(n));
        (fewer, query.clone())
    });
    let simpler = query.smaller().into_iter().map(move |simpler| (files.clone(), simpler));
    // Files in `.git` stay complete, or the directory is not a repository.
    let changed = (0..n).filter(move |i| !files.0[*i].0.contains(".git/"));
    let shorter = changed.flat_map(move |i| {
        shorter(&files.0[i].1).map(move |content| {
            let mut shorter = files.clone();
            shorter.0[i].1 = content;
            (shorter, query.clone())
        })
    });
    fewer.chain(simpler).chain(shorter)
}

/// Returns variants of a text without one of its lines, or without one byte if it has only a few.
fn shorter(text: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let n_lines = if lines.len() < 2 { 0 } else { lines.len() };
    let without_line =
        (0..n_lines).map(move |i| [lines[..i].concat(), lines[i + 1..].concat()].concat());
    let n_bytes = if text.len() <= 80 { text.len() } else { 0 };
    let without_byte = (0..n_bytes).map(|i| [&text[..i], &text[i + 1..]].concat());
    without_line.chain(without_byte)
}
