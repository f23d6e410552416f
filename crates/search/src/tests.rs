//! What a search promises, on small trees.

use super::*;
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn tree(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn request(pattern: &str) -> Request {
    Request {
        pattern: pattern.into(),
        dialect: Dialect::Rust,
        retry_as_basic: true,
        start: PathBuf::new(),
        include: None,
        exclude_dirs: Vec::new(),
        respect_ignore_files: false,
        max_bytes: 100_000,
        deadline: Instant::now() + Duration::from_secs(60),
        cancelled: Arc::new(AtomicBool::new(false)),
    }
}

fn run(dir: &TempDir, request: &Request) -> Result<Outcome, SearchError> {
    let open = |relative: &Path| File::open(dir.path().join(relative));
    search(request, dir.path(), &open)
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let line = |row: &Row| {
        format!("{}:{}:{}", row.path.display(), row.line, String::from_utf8_lossy(&row.text))
    };
    outcome.rows.iter().map(line).collect()
}

fn found(dir: &TempDir, request: &Request) -> Vec<String> {
    lines(&run(dir, request).unwrap())
}

#[test]
fn rows_come_in_byte_order_of_the_whole_path() {
    let dir = tree(&[
        ("b", b"x"),
        ("a/z", b"x"),
        ("a-b", b"x"),
        ("a.b", b"x"),
        ("a/b/c", b"x\nno\nx\n"),
        ("Z", b"x"),
    ]);
    let expected = ["Z:1:x", "a-b:1:x", "a.b:1:x", "a/b/c:1:x", "a/b/c:3:x", "a/z:1:x", "b:1:x"];
    assert_eq!(found(&dir, &request("x")), expected);
}

#[test]
fn hidden_and_ignored_files_are_searched_and_excluded_directories_are_not() {
    let dir = tree(&[
        (".hidden", b"x"),
        (".gitignore", b"ignored\n"),
        ("ignored", b"x"),
        (".git/config", b"x"),
        ("deep/node_modules/a", b"x"),
        ("deep/b", b"x"),
        ("node_modules", b"x"),
    ]);
    let mut request = request("x");
    request.exclude_dirs = vec![".git".into(), "node_modules".into()];
    assert_eq!(
        found(&dir, &request),
        [".hidden:1:x", "deep/b:1:x", "ignored:1:x", "node_modules:1:x"]
    );
    // Who names an excluded directory wants it.
    request.start = "deep/node_modules".into();
    assert_eq!(found(&dir, &request), ["deep/node_modules/a:1:x"]);
}

#[test]
fn symlinks_are_never_followed_and_special_files_never_opened() {
    let dir = tree(&[("d/a", b"x")]);
    symlink("d", dir.path().join("to-d")).unwrap();
    symlink("..", dir.path().join("d/up")).unwrap();
    symlink("a", dir.path().join("d/to-a")).unwrap();
    std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    assert_eq!(found(&dir, &request("x")), ["d/a:1:x"]);
}

#[test]
fn a_file_may_be_the_start_and_a_missing_start_is_an_error() {
    let dir = tree(&[("d/a", b"x\ny\n"), ("d/b", b"x")]);
    let mut request = request("x");
    request.start = "d/a".into();
    assert_eq!(found(&dir, &request), ["d/a:1:x"]);
    request.include = Some("*.rs".into());
    assert_eq!(found(&dir, &request), [""; 0]);
    request.start = "d/missing".into();
    assert_eq!(run(&dir, &request), Err(SearchError::StartNotFound));
}

#[test]
fn lines_are_what_is_between_newlines() {
    let dir = tree(&[("a", b"one\r\ntwo \xff three\n\nlast")]);
    assert_eq!(found(&dir, &request("^")).len(), 4);
    let outcome = run(&dir, &request("^one|two|^last$")).unwrap();
    let texts: Vec<&[u8]> = outcome.rows.iter().map(|row| row.text.as_slice()).collect();
    assert_eq!(texts, [b"one\r".as_slice(), b"two \xff three", b"last"]);
}

#[test]
fn lines_of_the_pattern_are_alternatives() {
    let dir = tree(&[("a", b"one\ntwo\nthree\n")]);
    assert_eq!(found(&dir, &request("one\ntwo")), ["a:1:one", "a:2:two"]);
    assert_eq!(found(&dir, &request("one\n")), ["a:1:one"]);
}

#[test]
fn a_basic_pattern_that_finds_nothing_is_read_as_one() {
    let dir = tree(&[("a", b"foo\nbar\nf|b\n")]);
    let cases = [
        (r"foo\|bar", vec!["a:1:foo", "a:2:bar"], Dialect::Basic),
        // As a Rust pattern this cannot even be read.
        (r"\(foo\)\|bar(", vec!["a:1:foo"], Dialect::Basic),
        // The Rust reading wins when it finds something.
        (r"f\|b", vec!["a:3:f|b"], Dialect::Rust),
        (r"nothing\|none", vec![], Dialect::Rust),
    ];
    for (pattern, rows, dialect) in cases {
        let outcome = run(&dir, &request(pattern)).unwrap();
        assert_eq!(
            (lines(&outcome), outcome.dialect_used),
            (rows.iter().map(|row| (*row).to_owned()).collect(), dialect),
            "{pattern}"
        );
    }
    let mut basic = request("f|b");
    basic.dialect = Dialect::Basic;
    assert_eq!(found(&dir, &basic), ["a:3:f|b"]);
    let mut plain = request(r"foo\|bar");
    plain.retry_as_basic = false;
    assert_eq!(found(&dir, &plain), [""; 0]);
}

#[test]
fn a_binary_file_is_skipped_also_when_its_first_rows_look_like_text() {
    let mut late = b"x\n".repeat(50_000);
    late.extend_from_slice(b"\0x\n");
    let dir = tree(&[("a-early", b"x\0x\n"), ("b-late", &late), ("c", b"x\n")]);
    let mut request = request("x");
    request.max_bytes = 10_000_000;
    let outcome = run(&dir, &request).unwrap();
    let skipped = Skipped { binary: 2, ..Skipped::default() };
    assert_eq!((lines(&outcome), outcome.skipped), (vec!["c:1:x".to_owned()], skipped));
}

#[test]
fn a_line_without_end_is_skipped_and_counted() {
    let mut long = b"x\n".to_vec();
    long.resize(9 * 1024 * 1024, b'x');
    let dir = tree(&[("a", &long), ("b", b"x\n")]);
    let outcome = run(&dir, &request("^x$")).unwrap();
    let skipped = Skipped { too_long: 1, ..Skipped::default() };
    assert_eq!(
        (lines(&outcome), outcome.skipped),
        (vec!["a:1:x".to_owned(), "b:1:x".to_owned()], skipped)
    );
}

#[test]
fn what_cannot_be_opened_is_counted_and_what_vanished_is_not() {
    let dir = tree(&[("denied", b"x"), ("gone", b"x"), ("a", b"x")]);
    let open = |relative: &Path| match relative.to_str() {
        Some("denied") => Err(io::ErrorKind::PermissionDenied.into()),
        Some("gone") => Err(io::ErrorKind::NotFound.into()),
        _ => File::open(dir.path().join(relative)),
    };
    let outcome = search(&request("x"), dir.path(), &open).unwrap();
    let expected = Skipped { unreadable: 1, ..Skipped::default() };
    assert_eq!((lines(&outcome), outcome.skipped), (vec!["a:1:x".to_owned()], expected));
}

#[test]
fn a_directory_that_cannot_be_read_is_counted() {
    let dir = tree(&[("a/x", b"x"), ("b/x", b"x")]);
    fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(dir.path().join("a")).is_ok() {
        // Root reads everything: nothing to see here.
        return;
    }
    let outcome = run(&dir, &request("x")).unwrap();
    assert_eq!((lines(&outcome), outcome.skipped.unreadable), (vec!["b/x:1:x".to_owned()], 1));
}

#[test]
fn the_cut_is_on_a_row_boundary_and_only_when_more_exists() {
    let dir = tree(&[("a", b"x1\nx2\n"), ("b", b"x3\n")]);
    // Each row is `a:1:x1` and a newline: seven bytes.
    let cases = [(21, 3, false), (20, 2, true), (14, 2, true), (13, 1, true), (7, 1, true)];
    for (max_bytes, n_rows, truncated) in cases {
        let mut request = request("x");
        request.max_bytes = max_bytes;
        let outcome = run(&dir, &request).unwrap();
        assert_eq!((outcome.rows.len(), outcome.truncated), (n_rows, truncated), "{max_bytes}");
    }
    let mut tiny = request("x");
    tiny.max_bytes = 1;
    let outcome = run(&dir, &tiny).unwrap();
    assert_eq!((lines(&outcome), outcome.truncated), (vec!["a:1:x".to_owned()], true));
}

#[test]
fn the_deadline_keeps_what_was_found_and_cancelling_keeps_nothing() {
    let dir = tree(&[("a", b"x\n"), ("b", b"x\n")]);
    let mut late = request("x");
    late.deadline = Instant::now();
    let outcome = run(&dir, &late).unwrap();
    assert_eq!((outcome.rows.len(), outcome.timed_out), (0, true));

    let request = request("x");
    let cancel_at_b = |relative: &Path| {
        if relative == Path::new("b") {
            request.cancelled.store(true, Ordering::Relaxed);
        }
        File::open(dir.path().join(relative))
    };
    assert_eq!(search(&request, dir.path(), &cancel_at_b), Err(SearchError::Cancelled));
}

#[test]
fn a_file_without_end_or_match_does_not_outlast_the_deadline() {
    let dir = tree(&[("endless", b"")]);
    let (reader, mut writer) = io::pipe().unwrap();
    let feeder = std::thread::spawn(move || while writer.write_all(b"some text\n").is_ok() {});
    let endless = |_: &Path| Ok(File::from(OwnedFd::from(reader.try_clone()?)));
    let mut request = request("another");
    request.deadline = Instant::now() + Duration::from_millis(100);
    let outcome = search(&request, dir.path(), &endless).unwrap();
    assert_eq!((outcome.timed_out, outcome.skipped), (true, Skipped::default()));
    drop(reader);
    feeder.join().unwrap();
}

#[test]
fn a_pattern_or_glob_that_is_wrong_is_an_error() {
    let dir = tree(&[("a", b"x")]);
    let too_long = "x".repeat(64 * 1024 + 1);
    let limit = SearchError::PatternTooLong { max: 64 * 1024 };
    assert_eq!(run(&dir, &request(&too_long)), Err(limit));
    assert!(matches!(run(&dir, &request("x(")), Err(SearchError::BadPattern { .. })));
    let mut bad_glob = request("x");
    bad_glob.include = Some("[".into());
    assert!(matches!(run(&dir, &bad_glob), Err(SearchError::BadInclude { .. })));
}
