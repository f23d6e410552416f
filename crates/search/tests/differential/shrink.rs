//! Shrinks a case to the smallest one that still shows the difference: removes files, then lines, then pieces
//! of the request.

use crate::tree::Files;

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
        let mut is_better = false;
        for candidate in candidates(&best.0, &best.1) {
            if n_left == 0 {
                return (best.0, best.1, shown);
            }
            n_left -= 1;
            if let Some(difference) = differs(&candidate.0, &candidate.1) {
                shown = difference;
                best = candidate;
                is_better = true;
                break;
            }
        }
        if !is_better {
            return (best.0, best.1, shown);
        }
    }
}

fn candidates<Q: Smaller>(files: &Files, query: &Q) -> Vec<(Files, Q)> {
    let mut candidates = Vec::new();
    let n = files.0.len();
    // Half of the files, a quarter and so on, then one.
    let mut chunk = n / 2;
    while 1 < chunk {
        for start in (0..n).step_by(chunk) {
            let mut fewer = files.clone();
            fewer.0.drain(start..(start + chunk).min(n));
            candidates.push((fewer, query.clone()));
        }
        chunk /= 2;
    }
    for i in 0..n {
        let mut fewer = files.clone();
        fewer.0.remove(i);
        candidates.push((fewer, query.clone()));
    }
    candidates.extend(query.smaller().into_iter().map(|smaller| (files.clone(), smaller)));
    // Files in `.git` stay complete, or the directory is not a repository.
    for i in (0..n).filter(|i| !files.0[*i].0.contains(".git/")) {
        for content in shorter(&files.0[i].1) {
            let mut fewer = files.clone();
            fewer.0[i].1 = content;
            candidates.push((fewer, query.clone()));
        }
    }
    candidates
}

/// Returns variants of a text without one of its lines, or without one byte if it has only a few.
fn shorter(text: &[u8]) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let mut shorter = Vec::new();
    if 1 < lines.len() {
        for i in 0..lines.len() {
            let kept = lines.iter().enumerate().filter(|(j, _)| *j != i);
            shorter.push(kept.flat_map(|(_, line)| line.to_vec()).collect());
        }
    }
    if text.len() <= 80 {
        for i in 0..text.len() {
            let mut fewer = text.to_vec();
            fewer.remove(i);
            shorter.push(fewer);
        }
    }
    shorter
}
