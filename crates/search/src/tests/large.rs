//! Tests of large files, which several threads read in blocks.

use super::*;
use proptest::prelude::*;
use quackd_testkit::Random;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a block.
const BLOCK: usize = 1024 * 1024;

/// Creates at least `n_bytes` of lines. Stretches without, with few and with many matches take turns.
fn text(numbers: &mut Random, n_bytes: usize, newline: &str) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < n_bytes {
        let permille = [0, 1, 500][usize::try_from(numbers.below(3)).unwrap()];
        let end = text.len() + usize::try_from(numbers.below(600_000)).unwrap();
        while text.len() < end {
            let n = match numbers.below(1000) {
                0 => numbers.below(90_000),
                1..100 => 0,
                _ => 40 + numbers.below(60),
            };
            text.resize(text.len() + usize::try_from(n).unwrap(), b'a');
            if numbers.below(1000) < permille {
                text.extend_from_slice(b" needle needle");
            }
            text.extend_from_slice(newline.as_bytes());
        }
    }
    text
}

/// Follows the cursors of a search, and returns all pages without the fields that depend on time.
fn pages(tree: &Files, mut request: Search) -> Vec<SearchOutcome> {
    let mut pages = Vec::new();
    loop {
        let mut outcome = run(tree, &request);
        outcome.elapsed = Duration::ZERO;
        let cursor = outcome.cursor.take();
        pages.push(outcome);
        // Enough pages to begin in the middle of the file.
        if cursor.is_none() || 3 < pages.len() {
            return pages;
        }
        request.cursor = cursor;
    }
}

/// Asserts that a search gives the same answer as the search of the same bytes with a named encoding, which
/// reads each file in order.
#[track_caller]
fn assert_as_in_order(tree: &Files, request: &Search) {
    let raw = Search { encoding: Encoding::None, ..request.clone() };
    let named = Search { encoding: Encoding::Label("utf-8".to_owned()), ..request.clone() };
    let (raw, named) = (pages(tree, raw), pages(tree, named));
    for (raw, named) in raw.iter().zip(&named) {
        let rows = |page: &SearchOutcome| -> Vec<Row> {
            page.files.iter().flat_map(|file| file.rows.clone()).collect()
        };
        let differing = rows(raw).into_iter().zip(rows(named)).find(|(raw, named)| raw != named);
        assert_eq!(differing, None);
        let bare = |page: &SearchOutcome| {
            let mut page = page.clone();
            page.files.iter_mut().for_each(|file| file.rows.clear());
            page
        };
        assert_eq!(bare(raw), bare(named));
        assert!(raw == named);
    }
    assert_eq!(raw.len(), named.len());
}

const OUTPUTS: [OutputMode; 6] = [
    OutputMode::Lines,
    OutputMode::OnlyMatching,
    OutputMode::Files,
    OutputMode::FilesWithout,
    OutputMode::CountLines,
    OutputMode::CountMatches,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_file_read_in_blocks_has_the_rows_of_a_file_read_in_order(
        seed in any::<u64>(),
        n_bytes in BLOCK / 2..4 * BLOCK,
        newline in prop_oneof![Just("\n"), Just("\r\n")],
        pattern in prop_oneof![
            4 => Just("needle"),
            1 => Just(r"needle(?:\r)?$"),
            1 => Just("needle|absent"),
            1 => Just(r"\w+ needle\b"),
            1 => Just("absent"),
            1 => Just("^$"),
        ],
        output in 0..2 * OUTPUTS.len(),
        (before, after) in prop_oneof![Just((0, 0)), (0..4_usize, 0..4_usize), Just((200, 200))],
        max_per_file in prop_oneof![3 => Just(None), 1 => (1..2000_u64).prop_map(Some)],
        limit in prop_oneof![Just(0_usize), 1..3000_usize],
        offset in prop_oneof![3 => Just(0_u64), 1 => 0..3000_u64],
        max_bytes in prop_oneof![Just(100_000_usize), Just(30_000_000)],
        (is_binary, binary) in prop_oneof![
            2 => Just((false, Binary::Skip)),
            1 => Just((true, Binary::Skip)),
            1 => Just((true, Binary::Text)),
            1 => Just((true, Binary::Report)),
        ],
    ) {
        let mut numbers = Random::from_seed(seed);
        let mut content = text(&mut numbers, n_bytes, newline);
        if is_binary {
            let at = usize::try_from(numbers.below(n_bytes as u64)).unwrap();
            content[at] = 0;
        }
        if numbers.below(2) == 0 {
            content.extend_from_slice(b"needle without an end");
        }
        let tree = Files::new(&[("a", b"needle\n"), ("large", &content), ("z", b"needle\n")]);
        let mut request = request(pattern);
        request.output = *OUTPUTS.get(output).unwrap_or(&OutputMode::Lines);
        (request.before, request.after, request.max_per_file) = (before, after, max_per_file);
        (request.limit, request.offset, request.max_bytes) = (limit, offset, max_bytes);
        request.binary = binary;
        request.count_total = is_binary || numbers.below(2) == 0;
        if is_binary {
            // A search that ends early may end before or after it reads the NUL byte.
            request.max_per_file = None;
            if matches!(request.output, OutputMode::Files | OutputMode::FilesWithout) {
                request.output = OutputMode::CountLines;
            }
        }
        assert_as_in_order(&tree, &request);
    }
}

#[test]
fn lines_at_the_borders_of_blocks_are_found_once() {
    for shift in [0, 1, 2, 3, 7] {
        let mut content = Vec::new();
        for border in 1..4 {
            // Lines of eight bytes up to the border, one of which crosses it if `shift` is not 0.
            content.resize(border * BLOCK - 64 - shift, b'.');
            content.extend_from_slice(b"\n");
            for _ in 0..16 {
                content.extend_from_slice(b"needle!\n");
            }
        }
        let tree = Files::new(&[("large", &content)]);
        for (before, after) in [(0, 0), (2, 2)] {
            let mut request = request("needle");
            (request.before, request.after, request.max_bytes) = (before, after, 10_000_000);
            assert_eq!(run(&tree, &request).shown, 48);
            assert_as_in_order(&tree, &request);
        }
    }
}

/// Returns lines with their own numbers, of 16 bytes each. Every fourth line is a match.
fn numbered(from: usize, n: usize) -> Vec<u8> {
    (from..from + n).flat_map(|n| numbered_line(n).into_bytes()).collect()
}

fn numbered_line(n: usize) -> String {
    format!("{} {n:>8}\n", if n.is_multiple_of(1000) { "needle" } else { "nothin" })
}

/// Asserts that each row is a line of the file with the correct number, at least as many as `at_least`. Only
/// the last line may be incomplete.
#[track_caller]
fn assert_numbered(outcome: &SearchOutcome, at_least: usize) {
    let rows: Vec<&Row> = outcome.files.iter().flat_map(|file| &file.rows).collect();
    for (n, row) in rows.iter().enumerate() {
        let number = (n + 1) * 1000;
        assert_eq!(usize::try_from(row.line).unwrap(), number);
        let whole = numbered_line(number);
        let is_last = n + 1 == rows.len();
        let text = String::from_utf8_lossy(&row.text);
        assert!(text == whole.trim_end() || is_last && whole.starts_with(&*text), "{text}");
    }
    assert!(at_least <= rows.len(), "{} of {at_least}", rows.len());
    assert_eq!(outcome.skipped, Skipped::default());
}

#[test]
fn a_file_that_shrinks_while_it_is_read_has_the_rows_that_stay() {
    // Numbered from 0, so that line 1,000 of the file has the number 1,000.
    let content = numbered(1, 2_000_000);
    for n_kept in [1_000_000, 10_000, 0] {
        let tree = Files::new(&[("large", &content)]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // Shrinks by whole pages, because the kernel may show zeros in the rest of a page.
                let file = File::options().write(true).open(tree.at("large")).unwrap();
                let mut len = content.len() as u64;
                while !is_over.load(Ordering::Relaxed) {
                    len = len.saturating_sub(1 << 20).max(n_kept * 16 / 4096 * 4096);
                    file.set_len(len).unwrap();
                    std::thread::yield_now();
                }
            });
            let mut request = request("needle");
            request.binary = Binary::Text;
            let outcome = run(&tree, &request);
            is_over.store(true, Ordering::Relaxed);
            let n_certain = usize::try_from(n_kept * 16 / 4096 * 4096 / 16 / 1000).unwrap();
            assert_numbered(&outcome, n_certain);
        });
    }
}

#[test]
fn a_file_that_grows_while_it_is_read_has_its_rows_in_order() {
    let tree = Files::new(&[("large", &numbered(1, 500_000))]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut file = File::options().append(true).open(tree.at("large")).unwrap();
            for n in (500_001..4_000_000).step_by(1000) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all(&numbered(n, 1000)).unwrap();
            }
        });
        let outcome = run(&tree, &request("needle"));
        is_over.store(true, Ordering::Relaxed);
        assert_numbered(&outcome, 500);
    });
}
