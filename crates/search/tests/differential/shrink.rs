//! From a case that shows a difference to the smallest one that still does: files go, then lines, then
//! pieces of the request, until nothing more can go.

use crate::tree::Files;

/// Comparisons that one shrinking may cost.
const MAX_TRIALS: usize = 600;

/// A request of which simpler ones can be made.
pub(crate) trait Smaller: Clone + PartialEq {
    /// Requests that are simpler by one piece.
    fn smaller(&self) -> Vec<Self>;
}

/// The smallest case that is found, and what it shows.
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
    // What makes a repository is whole or is none.
    for i in (0..n).filter(|i| !files.0[*i].0.contains(".git/")) {
        for content in shorter(&files.0[i].1) {
            let mut fewer = files.clone();
            fewer.0[i].1 = content;
            candidates.push((fewer, query.clone()));
        }
    }
    candidates
}

/// A text without one of its lines; when it has only a few bytes, without one of these.
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
