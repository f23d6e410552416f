//! What find promises, on small trees.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

fn tree(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    dir
}

fn request(pattern: &str) -> FindRequest {
    FindRequest {
        pattern: pattern.into(),
        start: PathBuf::new(),
        include_hidden: false,
        include_directories: false,
        exclude_names: vec![".git".into(), "node_modules".into()],
        max_paths: 200,
        deadline: Instant::now() + Duration::from_secs(60),
        cancelled: Arc::new(AtomicBool::new(false)),
    }
}

fn run(dir: &TempDir, request: &FindRequest) -> Result<Found, FindError> {
    find(request, &|relative: &Path| File::open(dir.path().join(relative)))
}

fn found(dir: &TempDir, request: &FindRequest) -> Vec<String> {
    let paths = run(dir, request).unwrap().paths;
    paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
}

#[test]
fn paths_come_in_byte_order_of_the_whole_path() {
    let dir = tree(&["b", "a/z", "a-b", "a.b", "a/b/c", "a/b.c", "Z", "é"]);
    let all = ["Z", "a-b", "a.b", "a/b.c", "a/b/c", "a/z", "b", "é"];
    assert_eq!(found(&dir, &request("**/*")), all);
    let mut request = request("**");
    request.include_directories = true;
    let all = ["Z", "a", "a-b", "a.b", "a/b", "a/b.c", "a/b/c", "a/z", "b", "é"];
    assert_eq!(found(&dir, &request), all);
    // The cut comes after the order, and is told only if something was cut.
    for max_paths in 0..=all.len() {
        request.max_paths = max_paths;
        let outcome = run(&dir, &request).unwrap();
        assert_eq!(outcome.truncated, max_paths != all.len(), "{max_paths}");
        assert_eq!(found(&dir, &request), &all[..max_paths]);
    }
}

#[test]
fn hidden_names_need_to_be_asked_for_and_excluded_ones_are_never_given() {
    let dir = tree(&[
        ".env",
        ".github/ci.yml",
        ".git/config",
        "a/.git",
        "a/node_modules/x",
        "a/b",
        "c/node_modules",
    ]);
    assert_eq!(found(&dir, &request("**/*")), ["a/b"]);
    assert_eq!(found(&dir, &request(".*")), [""; 0]);
    let mut request = request("**/*");
    request.include_hidden = true;
    request.include_directories = true;
    assert_eq!(found(&dir, &request), [".env", ".github", ".github/ci.yml", "a", "a/b", "c"]);
    // Who names an excluded or hidden directory wants it.
    request.include_hidden = false;
    for (start, expected) in [("a/node_modules", "a/node_modules/x"), (".github", ".github/ci.yml")]
    {
        request.start = start.into();
        assert_eq!(found(&dir, &request), [expected]);
    }
}

#[test]
fn a_pattern_is_compared_with_five_spellings_of_a_path() {
    let dir = tree(&["src/a.ts", "src/deep/a.ts", "a.ts"]);
    let cases: &[(&str, &str, &[&str])] = &[
        ("a.TS", "", &["a.ts", "src/a.ts", "src/deep/a.ts"]),
        ("/a.ts", "", &["a.ts"]),
        ("/a.ts", "src", &["src/a.ts"]),
        ("src/*.ts", "src", &["src/a.ts"]),
        ("/src/*.ts", "src", &["src/a.ts"]),
        ("deep/*", "src", &["src/deep/a.ts"]),
        ("/deep/*", "src", &["src/deep/a.ts"]),
        ("deep/*", "", &[]),
        ("./a.ts", "", &[]),
        ("src\\*", "", &["src/a.ts"]),
        ("!*.ts", "", &[]),
        ("src/**", "", &["src/a.ts", "src/deep/a.ts"]),
    ];
    for (pattern, start, expected) in cases {
        let mut request = request(pattern);
        request.start = start.into();
        assert_eq!(found(&dir, &request), *expected, "{pattern} in {start:?}");
    }
}

#[test]
fn symlinks_are_entries_and_are_not_followed_and_special_files_are_nothing() {
    let dir = tree(&["d/a"]);
    for (target, link) in [("d", "to-d"), ("..", "d/up"), ("/", "root"), ("nowhere", "dangling")] {
        symlink(target, dir.path().join(link)).unwrap();
    }
    std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    assert_eq!(found(&dir, &request("**/*")), ["d/a", "d/up", "dangling", "root", "to-d"]);
}

#[test]
fn what_cannot_be_read_is_a_warning_and_what_vanished_is_not() {
    let dir = tree(&["a/x", "b/x", "c/x", "gone/x", "d/x", "e/x", "f/x", "g/x"]);
    let open = |relative: &Path| match relative.to_str() {
        Some("gone") => Err(io::ErrorKind::NotFound.into()),
        Some("" | "g") => File::open(dir.path().join(relative)),
        _ => Err(io::Error::from_raw_os_error(13)),
    };
    let outcome = find(&request("**/*"), &open).unwrap();
    let warning =
        |path: &str| Warning { path: path.into(), reason: "Permission denied".to_owned() };
    let expected = Found {
        paths: vec!["g/x".into()],
        unreadable: 6,
        warnings: ["a", "b", "c", "d", "e"].map(warning).into(),
        ..Found::default()
    };
    assert_eq!(outcome, expected);
    let refused = find(&request("**/*"), &|_: &Path| Err(io::Error::from_raw_os_error(13)));
    assert_eq!(refused.unwrap().warnings, [warning(".")]);
}

#[test]
fn the_deadline_keeps_what_was_found_and_cancelling_keeps_nothing() {
    let dir = tree(&["a", "b/x", "c/x"]);
    let request = request("**/*");
    let mut late = request.clone();
    late.deadline = Instant::now() + Duration::from_millis(100);
    let slow = |relative: &Path| {
        while relative == Path::new("b") && Instant::now() < late.deadline {
            std::thread::yield_now();
        }
        File::open(dir.path().join(relative))
    };
    let outcome = find(&late, &slow).unwrap();
    assert_eq!((outcome.paths, outcome.timed_out), (vec!["a".into()], true));

    let cancel_at_b = |relative: &Path| {
        request.cancelled.store(relative == Path::new("b"), Ordering::Relaxed);
        File::open(dir.path().join(relative))
    };
    assert_eq!(find(&request, &cancel_at_b), Err(FindError::Cancelled));
}

#[test]
fn a_start_that_is_missing_and_a_pattern_that_is_too_large_are_errors() {
    let dir = tree(&["a"]);
    let mut missing = request("*");
    missing.start = "none".into();
    assert_eq!(run(&dir, &missing), Err(FindError::StartNotFound));
    let error = run(&dir, &request(&"x".repeat(5000))).unwrap_err();
    assert_eq!(error.to_string(), "pattern is longer than 4096 bytes");
}
