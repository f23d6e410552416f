//! Tests that pages, by offset or by cursor, are the complete answer in pieces, and a stream too. The oracle is the library
//! itself without a limit, which the other tests compare with ripgrep.

use crate::content::{Kinds, files, pattern};
use crate::engine_under_test::{self, Plain};
use crate::query::{Boundary, Case, Encoding, Mode, Query};
use crate::random::{Random, cases};
use crate::run::{Kind, Run, Verdict};
use crate::shrink::Smaller;
use crate::tree::Files;
use quackd_search::{FileHits, Row, Search, SearchOutcome, search, search_to};
use std::path::Path;

/// A search in pages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Paged {
    query: Query,
    limit: usize,
    by_cursor: bool,
}

impl Smaller for Paged {
    fn smaller(&self) -> Vec<Self> {
        let queries = self.query.smaller().into_iter();
        let mut smaller: Vec<Self> = queries.map(|query| Self { query, ..self.clone() }).collect();
        if 1 < self.limit {
            smaller.push(Self { limit: self.limit - 1, ..self.clone() });
        }
        smaller
    }
}

/// Rows of files, or files, joined from all pages.
type Pieces = Vec<(Vec<u8>, Option<Row>)>;

fn pieces(files: &[FileHits], mode: Mode) -> Pieces {
    let name = |file: &FileHits| engine_under_test::name(&file.path);
    if matches!(mode, Mode::Lines | Mode::OnlyMatching) {
        let rows = |file: &FileHits| {
            let name = name(file);
            let row = |row: &Row| Row { after_gap: false, ..row.clone() };
            let rows = file.rows.iter().map(|r| (name.clone(), Some(row(r))));
            rows.collect::<Pieces>()
        };
        files.iter().flat_map(rows).collect()
    } else {
        files.iter().map(|file| (name(file), None)).collect()
    }
}

fn page(dir: &Path, request: &Search) -> Result<SearchOutcome, String> {
    search(request, &Plain::new(dir)).map_err(|error| error.to_string())
}

/// Returns all pages, and checks each against the totals of the complete answer.
fn all_pages(dir: &Path, paged: &Paged, n_whole: usize) -> Result<Pieces, String> {
    let Paged { query, limit, by_cursor } = paged;
    let mut request = Search { limit: *limit, ..engine_under_test::request(query) };
    let mut all = Pieces::new();
    loop {
        let outcome = page(dir, &request)?;
        let shown = usize::try_from(outcome.shown).expect("a small number");
        let told = outcome.total.count;
        let is_first = request.cursor.is_none();
        if outcome.total.is_exact && is_first && told != n_whole as u64 {
            return Err(format!("contradicts itself: {told} of {n_whole} told"));
        }
        if *limit < shown || (outcome.truncated && shown == 0) {
            return Err(format!("contradicts itself: {shown} rows of at most {limit}"));
        }
        all.extend(pieces(&outcome.files, query.mode));
        if !outcome.truncated {
            return Ok(all);
        }
        if n_whole < all.len() {
            return Err("contradicts itself: more pages than the whole".to_owned());
        }
        let (Some(offset), Some(cursor)) = (outcome.next_offset, outcome.cursor) else {
            return Err("contradicts itself: a page is cut and there is no next".to_owned());
        };
        if *by_cursor {
            request.cursor = Some(cursor);
        } else {
            request.offset = offset;
        }
    }
}

fn compare(dir: &Path, _: &Files, paged: &Paged) -> Verdict {
    let Ok(whole) = page(dir, &engine_under_test::request(&paged.query)) else {
        return Verdict::Same;
    };
    let whole = pieces(&whole.files, paged.query.mode);
    let mut streamed = Pieces::new();
    let mut take = |file: FileHits| {
        streamed.extend(pieces(&[file], paged.query.mode));
        true
    };
    let request = engine_under_test::request(&paged.query);
    let outcome = search_to(&request, &Plain::new(dir), &mut take);
    if outcome.is_err() || streamed != whole {
        let shown = format!("  whole: {whole:?}\n  streamed: {streamed:?} {outcome:?}\n");
        return Verdict::Differs(Kind::Answer, shown);
    }
    match all_pages(dir, paged, whole.len()) {
        Ok(pages) if pages == whole => Verdict::Same,
        pages => {
            let shown = format!("  whole: {whole:?}\n  pages: {pages:?}\n");
            Verdict::Differs(Kind::Answer, shown)
        }
    }
}

fn random_paged(random: &mut Random) -> Paged {
    let mut query = Query::of(&pattern(random));
    query.mode = [
        Mode::Lines,
        Mode::OnlyMatching,
        Mode::Files,
        Mode::FilesWithout,
        Mode::CountLines,
        Mode::CountMatches,
    ][random.below(6)];
    if random.chance(20) {
        query.case = Case::Insensitive;
    }
    if random.chance(10) {
        query.boundary = Boundary::Word;
    }
    if random.chance(10) {
        query.max_per_file = Some(1 + random.below(3) as u64);
    }
    if random.chance(20) {
        query.encoding = Encoding::Auto;
    }
    query.binary_too = random.chance(70);
    Paged { query, limit: 1 + random.below(4), by_cursor: random.chance(50) }
}

#[test]
fn pages_are_the_whole_in_pieces() {
    let (mut run, mut random) = Run::new("pages_are_the_whole_in_pieces");
    for _ in 0..cases(60) {
        let files = files(&mut random, Kinds::Bytes);
        let dir = files.lay();
        for _ in 0..5 {
            let paged = random_paged(&mut random);
            if !run.case(dir.path(), &files, &paged, &compare) {
                return run.end();
            }
        }
    }
    run.end();
}
