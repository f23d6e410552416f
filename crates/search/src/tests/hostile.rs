//! Tests with hostile trees, files and patterns: nothing may hang, exhaust memory, or hide the other results.

use super::*;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A tree that runs a function before it opens a file.
struct Odd<'t, F>(&'t Files, F);

impl<F: Fn(&OsStr) -> Option<io::Result<File>> + Sync> Tree for Odd<'_, F> {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.0.open_file(relative)
    }
    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.1(relative.as_os_str()).unwrap_or_else(|| self.0.open_directory(relative))
    }
    fn open_directory_in(&self, directory: &File, name: &OsStr) -> io::Result<File> {
        self.1(name).unwrap_or_else(|| self.0.open_directory_in(directory, name))
    }
    fn open_in(&self, directory: &File, name: &OsStr) -> io::Result<File> {
        self.1(name).unwrap_or_else(|| self.0.open_in(directory, name))
    }
}

#[test]
fn what_cannot_be_opened_is_a_warning_and_what_vanished_is_nothing() {
    let tree = Files::new(&[("a", b"x"), ("denied", b"x"), ("gone", b"x"), ("no-dir/b", b"x")]);
    let odd = Odd(&tree, |name: &OsStr| match name.to_str() {
        Some("denied" | "no-dir") => Some(Err(io::Error::from_raw_os_error(13))),
        Some("gone") => Some(Err(io::ErrorKind::NotFound.into())),
        _ => None,
    });
    let outcome = run(&odd, &request("x"));
    assert_eq!(lines(&outcome), ["a:1:x"]);
    assert_eq!(outcome.skipped, Skipped { unreadable: 2, ..Skipped::default() });
    let denied = |path: &str| Warning { path: path.into(), reason: "Permission denied".into() };
    assert_eq!(outcome.warnings, [denied("no-dir"), denied("denied")]);
}

#[test]
fn a_directory_that_may_not_be_read_is_counted() {
    let tree = Files::new(&[("a/x", b"x"), ("b/x", b"x")]);
    fs::set_permissions(tree.at("a"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(tree.at("a")).is_ok() {
        // Root can read every file, so the test is skipped.
        return;
    }
    let outcome = run(&tree, &request("x"));
    fs::set_permissions(tree.at("a"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((lines(&outcome), outcome.skipped.unreadable), (vec!["b/x:1:x".to_owned()], 1));
}

#[test]
fn special_files_are_never_waited_for() {
    let tree = Files::new(&[("a", b"x")]);
    let fifo =
        |name: &str| nix::unistd::mkfifo(&tree.at(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The name may also be that of an ignore file.
    for name in ["fifo", ".gitignore", ".ignore", ".git"] {
        fifo(name);
    }
    let mut request = request("x");
    request.scope.ignore = Ignore::All;
    assert_eq!(found(&tree, &request), ["a:1:x"]);
    // The file is exchanged after the listing.
    let odd = Odd(&tree, |name: &OsStr| {
        let fifo = || open(&tree.at("fifo"), rustix::fs::OFlags::empty());
        (name == "a").then(fifo)
    });
    assert_eq!(found(&odd, &request), [""; 0]);
}

#[test]
fn names_are_bytes() {
    let names: [&[u8]; 4] = [b"a\nb", b"\xff\xfe", b"-", b" "];
    let tree = Files::new(&[]);
    for name in names {
        fs::write(tree.0.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let outcome = run(&tree, &request("x"));
    let found: Vec<_> = outcome.files.iter().map(|file| file.path.as_os_str().as_bytes()).collect();
    assert_eq!(found, [b" ".as_slice(), b"-", b"a\nb", b"\xff\xfe"]);
}

#[test]
fn a_deep_directory_is_searched_to_its_end() {
    // The path is longer than the kernel accepts in one call.
    let tree = Files::new(&[]);
    let mut here = tree.open_directory(Path::new("")).unwrap();
    let name = "directory";
    for _ in 0..1000 {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        mkdirat(&here, name, Mode::RWXU).unwrap();
        here =
            openat(&here, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    let file = rustix::fs::openat(
        &here,
        "leaf",
        rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
        rustix::fs::Mode::RWXU,
    );
    io::Write::write_all(&mut File::from(file.unwrap()), b"x\n").unwrap();
    let outcome = run(&tree, &request("x"));
    assert_eq!((outcome.shown, outcome.skipped.unreadable), (1, 0));
    assert_eq!(outcome.files[0].path.components().count(), 1001);
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_counted() {
    let mut long = b"x\n".to_vec();
    long.resize(17 * 1024 * 1024, b'x');
    let tree = Files::new(&[("a", &long), ("b", b"x\n")]);
    let outcome = run(&tree, &request("^x$"));
    assert_eq!(lines(&outcome), ["a:1:x", "b:1:x"]);
    assert_eq!(outcome.skipped, Skipped { too_long: 1, ..Skipped::default() });
    let reasons = |outcome: &SearchOutcome| -> Vec<String> {
        let of = |it: &Warning| format!("{}: {}", it.path.display(), it.reason);
        outcome.unfinished.iter().map(of).collect()
    };
    assert_eq!(reasons(&outcome), ["a: a line is longer than 8 MiB; searched only up to it"]);
    // The file is too large to be read as a whole.
    let outcome = run(&tree, &request(r"x\n"));
    assert_eq!(outcome.skipped, Skipped { too_large: 1, ..Skipped::default() });
    let reason = "a: larger than 16 MiB, too large for matches across lines; not searched";
    assert_eq!((reasons(&outcome), outcome.n_unfinished), (vec![reason.to_owned()], 1));
    assert_eq!(lines(&outcome), ["b:1:x"]);
}

#[test]
fn a_file_without_end_or_match_does_not_outlast_the_deadline() {
    let tree = Files::new(&[("endless", b"")]);
    let (reader, mut writer) = io::pipe().unwrap();
    let feeder =
        std::thread::spawn(
            move || while io::Write::write_all(&mut writer, b"some text\n").is_ok() {},
        );
    let odd = Odd(&tree, |name: &OsStr| {
        let reader = || reader.try_clone().map(|reader| File::from(OwnedFd::from(reader)));
        (name == "endless").then(reader)
    });
    for pattern in ["another", r"another\nline"] {
        let mut request = request(pattern);
        request.stop.deadline = Instant::now() + Duration::from_millis(100);
        let outcome = run(&odd, &request);
        let is_cut = outcome.timed_out || outcome.skipped.too_large == 1;
        assert!(is_cut, "{pattern}: {outcome:?}");
    }
    drop(reader);
    feeder.join().unwrap();
}

#[test]
fn the_deadline_keeps_what_was_found_and_cancelling_keeps_nothing() {
    let tree = Files::new(&[("a", b"x\n"), ("b", b"x\n"), ("c/d", b"x\n")]);
    let mut late = request("x");
    late.stop.deadline = Instant::now();
    let outcome = run(&tree, &late);
    assert_eq!((outcome.shown, outcome.timed_out, outcome.total.is_exact), (0, true, false));

    let in_time = |time: Duration| {
        let mut late = request("x");
        late.stop.deadline = Instant::now() + time;
        let slow = Odd(&tree, |name: &OsStr| {
            while name == "b" && Instant::now() < late.stop.deadline {
                std::thread::yield_now();
            }
            None
        });
        run(&slow, &late)
    };
    // The longer times are for a machine that is too slow to begin within the first one.
    let mut outcomes = [100, 1000, 10_000].map(Duration::from_millis).into_iter().map(in_time);
    let outcome = outcomes.find(|outcome| outcome.shown != 0).unwrap();
    // Another thread may search the last file before the deadline.
    let mut found = lines(&outcome);
    found.retain(|line| line != "c/d:1:x");
    assert_eq!((found, outcome.timed_out), (vec!["a:1:x".to_owned()], true));

    for place in ["a", "c"] {
        let request = request("x");
        let cancel = Odd(&tree, |name: &OsStr| {
            request.stop.cancelled.fetch_or(name == place, Ordering::Relaxed);
            None
        });
        assert_eq!(search(&request, &cancel).unwrap_err(), SearchError::Cancelled, "{place}");
    }
}

#[test]
fn patterns_and_globs_that_are_too_much_are_refused() {
    let tree = Files::new(&[("a", &b"a".repeat(60_000))]);
    let too_long = request(&"x".repeat(64 * 1024 + 1));
    let limit = SearchError::PatternTooLong { max: 64 * 1024 };
    assert_eq!(search(&too_long, &tree).unwrap_err(), limit);
    for pattern in [r"(\w{100}){100}{100}", &"(".repeat(1000)] {
        let error = search(&request(pattern), &tree).unwrap_err();
        assert!(matches!(error, SearchError::BadPattern { .. }), "{error}");
    }
    // Each pattern must finish quickly.
    for pattern in ["(a*)*b", "(a|a)*b", "(.*)(.*)(.*)(.*)b", "(a?){200}a{200}b"] {
        assert_eq!(found(&tree, &request(pattern)), [""; 0], "{pattern}");
    }
    let glob = |glob: String| {
        let mut request = request("x");
        request.scope.include = vec![glob];
        search(&request, &tree)
    };
    let braces = "{a,b}".repeat(40);
    assert!(glob(braces).is_ok());
    let nested = "{".repeat(2000) + &"}".repeat(2000);
    assert!(matches!(glob("x".repeat(5000)), Err(SearchError::BadGlob { .. })));
    drop(glob(nested));
}

#[test]
fn a_pattern_that_defeats_the_engine_does_not_outlast_the_deadline_for_long() {
    // Random text creates new automaton states constantly. Each byte takes 500 steps.
    let mut state = 1_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { b'a' } else { b'b' }
    };
    let text: Vec<u8> = (0..2_000_000).map(|_| random()).collect();
    let mut short = text.clone();
    short.iter_mut().step_by(100).for_each(|byte| *byte = b'\n');
    let tree = Files::new(&[("long", &text), ("short", &short)]);
    let mut request = request("a[ab]{500}[cd]");
    request.stop.deadline = Instant::now() + Duration::from_millis(50);
    let began = Instant::now();
    let outcome = run(&tree, &request);
    // Without pieces, this takes minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(outcome.timed_out || outcome.skipped.too_long == 1, "{outcome:?}");
}

#[test]
fn a_file_that_shrinks_or_goes_while_it_is_read_harms_nobody() {
    let content = b"x\n".repeat(100_000);
    let tree = Files::new(&[("a", &content), ("b", b"x\n")]);
    let odd = Odd(&tree, |name: &OsStr| {
        let shrunk = || {
            let file = File::open(tree.at("a"))?;
            File::options().write(true).open(tree.at("a"))?.set_len(10)?;
            Ok(file)
        };
        (name == "a").then(shrunk)
    });
    let mut request = request("x");
    request.count_total = true;
    assert_eq!(run(&odd, &request).total.count, 6);
}

#[test]
fn a_rule_file_of_megabytes_is_read_in_part() {
    let mut rules = b"ignored\n".to_vec();
    rules.extend(b"# nothing\n".repeat(300_000));
    rules.extend(b"kept\n");
    let tree = Files::new(&[(".ignore", &rules), ("ignored", b"x"), ("kept", b"x")]);
    let mut request = request("^x");
    request.scope.ignore = Ignore::All;
    assert_eq!(found(&tree, &request), ["kept:1:x"]);
}

#[test]
fn an_empty_answer_is_explained_without_opening_a_file_again() {
    let mut large = b"Foo.\n".repeat(100_000);
    large.extend_from_slice(b"FOO.\n");
    let tree = Files::new(&[("a", b"Foo\n"), ("b", b"foo[.]\nFOO[.]\n"), ("large", &large)]);
    let n_opened = AtomicUsize::new(0);
    let counting = Odd(&tree, |name: &OsStr| {
        n_opened.fetch_add(usize::from(tree.at("").join(name).is_file()), Ordering::Relaxed);
        None
    });
    let notes = |pattern: &str| {
        let mut request = request(pattern);
        request.explain_empty = true;
        n_opened.store(0, Ordering::Relaxed);
        let outcome = run(&counting, &request);
        assert_eq!((outcome.shown, n_opened.load(Ordering::Relaxed)), (0, 3), "{pattern}");
        outcome.notes
    };
    // Of the large file, the lines that end in the first 256 KiB count.
    let n_large = u64::try_from(256 * 1024 / b"Foo.\n".len()).unwrap();
    let is_exact = false;
    let any_case = |count| Note::OtherCaseMatches { count, is_exact };
    assert_eq!(notes("fOO"), [any_case(3 + n_large)]);
    assert_eq!(notes("fO[^x]$"), [any_case(1)]);
    assert_eq!(notes("fOO.$"), [any_case(n_large)]);
    let literal = Note::LiteralOccurs { count: 1, is_exact };
    assert_eq!(notes("foo[.]"), [literal, any_case(n_large)]);
}

#[test]
fn a_search_that_would_explain_itself_finds_what_only_matches_with_case() {
    let tree = Files::new(&[("a", b"fooA\nfoob\n")]);
    for (pattern, n) in [("foo[^a]$", 2), ("foo[A]", 1), (r"foo\P{Ll}", 1), ("foo[a-z--b]", 0)] {
        let mut request = request(pattern);
        request.explain_empty = true;
        assert_eq!(run(&tree, &request).shown, n, "{pattern}");
    }
}
