//! Tests of file selection: order, ignore files, hidden names, globs, types, start paths, links.

use super::*;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;

/// Returns the files that are searched with ripgrep's rules in a tree that is a repository.
fn chosen(files: &[&str], rules: &[(&str, &str)], change: impl Fn(&mut Scope)) -> Vec<String> {
    let tree = Files::new(&[]);
    for file in files {
        tree.write(file, b"x\n");
    }
    for (file, text) in rules {
        tree.write(file, text.as_bytes());
    }
    fs::create_dir_all(tree.at(".git")).unwrap();
    let mut request = request("^x$");
    request.scope = Scope::default();
    change(&mut request.scope);
    names(&tree, &request)
}

#[test]
fn files_come_in_byte_order_of_the_whole_path() {
    let files = ["b", "a/z", "a-b", "a.b", "a/b/c", "a/b.c", "Z", "é", "a0"];
    let all = ["Z", "a-b", "a.b", "a/b.c", "a/b/c", "a/z", "a0", "b", "é"];
    assert_eq!(chosen(&files, &[], |_| ()), all);
}

#[test]
fn a_large_tree_has_the_order_and_numbers_of_a_small_one() {
    let tree = Files::new(&[]);
    let mut expected = Vec::new();
    for dir in 0..120 {
        for file in 0..10 {
            let name = format!("d{dir}/e{}/f{file}", dir % 7);
            tree.write(&name, format!("line\nx {dir}\n").as_bytes());
            expected.push(format!("{name}:2:x {dir}"));
        }
    }
    expected.sort();
    let mut request = request("x");
    request.count_total = true;
    let outcome = run(&tree, &request);
    assert_eq!(lines(&outcome), expected);
    assert_eq!(outcome.total, Total { count: 1200, is_exact: true });
    assert_eq!((outcome.files_searched, outcome.files_matched), (1200, 1200));
    request.limit = 7;
    request.offset = 600;
    assert_eq!(found(&tree, &request), &expected[600..607]);
}

#[test]
fn ignore_files_mean_what_they_mean_for_ripgrep() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("ghi/", &["a", "ghi/a", "d/ghi/a"], &["a"]),
        ("/ghi", &["ghi/a", "d/ghi/a"], &["d/ghi/a"]),
        ("d/a", &["a", "d/a", "e/d/a"], &["a", "e/d/a"]),
        ("vendor/**\n!vendor/manifest", &["vendor/manifest", "vendor/x"], &["vendor/manifest"]),
        ("/*\n!/dir", &["a", "dir/a"], &["dir/a"]),
        ("**foo**", &["foo/a", "xfoox", "b"], &["b"]),
        ("!.foo", &[".foo", ".bar", "a"], &[".foo", "a"]),
        ("ö", &["ö", "o"], &["o"]),
        (".*", &["a", ".b"], &["a"]),
        ("a**b", &["afoob", "a/b", "c"], &["a/b", "c"]),
        ("**/**/*", &["a", "d/a"], &[]),
        ("foo\\/", &["foo/a", "b"], &["b"]),
        // The bracket is not closed, so it is text.
        ("[ab", &["[ab", "a"], &["a"]),
        ("\u{feff}a\nb\r\n", &["a", "b", "c"], &["c"]),
        ("#a\n\\#b", &["#a", "#b"], &["#a"]),
    ];
    for (rules, files, expected) in cases {
        assert_eq!(chosen(files, &[(".gitignore", rules)], |_| ()), *expected, "{rules}");
    }
}

#[test]
fn the_nearest_rule_and_the_strongest_kind_of_file_decide() {
    let all = |rules: &[(&str, &str)]| chosen(&["a", "d/a", "d/b"], rules, |_| ());
    assert_eq!(all(&[(".gitignore", "a"), ("d/.gitignore", "!a")]), ["d/a", "d/b"]);
    assert_eq!(all(&[(".gitignore", "a"), (".ignore", "!a")]), ["a", "d/a", "d/b"]);
    assert_eq!(all(&[(".ignore", "!a"), (".rgignore", "a")]), ["d/b"]);
    assert_eq!(all(&[(".git/info/exclude", "b")]), ["a", "d/a"]);
    assert_eq!(all(&[(".git/info/exclude", "b"), (".gitignore", "!b")]), ["a", "d/a", "d/b"]);
    // An inner repository ignores the outer git rules, but not the other rules.
    assert_eq!(all(&[(".gitignore", "a"), ("d/.git/HEAD", "")]), ["d/a", "d/b"]);
    assert_eq!(all(&[(".ignore", "a"), ("d/.git/HEAD", "")]), ["d/b"]);
}

#[test]
fn which_ignore_files_are_read_can_be_chosen() {
    let rules = [(".gitignore", "a"), (".ignore", "b"), (".rgignore", "c")];
    let with = |ignore| chosen(&["a", "b", "c", "d"], &rules, |scope| scope.ignore = ignore);
    assert_eq!(with(Ignore::All), ["d"]);
    assert_eq!(with(Ignore::Git), ["b", "c", "d"]);
    assert_eq!(with(Ignore::None), ["a", "b", "c", "d"]);
}

#[test]
fn rules_of_directories_above_count_within_a_work_tree_only() {
    let outer = Files::new(&[(".gitignore", b"a\n"), ("w/a", b"x"), ("w/b", b"x")]);
    struct Inner<'t>(&'t Files, PathBuf);
    impl Tree for Inner<'_> {
        fn path(&self) -> &Path {
            &self.1
        }
        fn open_file(&self, relative: &Path) -> io::Result<File> {
            self.0.open_file(&Path::new("w").join(relative))
        }
        fn open_directory(&self, relative: &Path) -> io::Result<File> {
            self.0.open_directory(&Path::new("w").join(relative))
        }
    }
    let inner = Inner(&outer, outer.at("w"));
    let mut request = request("x");
    request.scope.ignore = Ignore::All;
    assert_eq!(names(&inner, &request), ["a", "b"]);
    fs::create_dir(outer.at(".git")).unwrap();
    assert_eq!(names(&inner, &request), ["b"]);
    // Without a repository, the root's own `.gitignore` applies.
    fs::remove_dir(outer.at(".git")).unwrap();
    outer.write("w/.gitignore", b"b\n");
    assert_eq!(names(&inner, &request), ["a"]);
}

/// Files of which one name and one directory count as missing.
struct Concealing<'t>(&'t Files);

impl Tree for Concealing<'_> {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn conceals(&self, directory: &Path, name: &OsStr) -> bool {
        let path = directory.join(name);
        path.starts_with("d/keys") || path == Path::new("d/secret")
    }
    fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.0.open_file(relative)
    }
    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.0.open_directory(relative)
    }
}

#[test]
fn names_that_the_tree_conceals_are_not_walked() {
    let all = ["d/a", "d/keys/one", "d/keys/deep/two", "d/secret", "keys/b", "secret"];
    let files = Files::new(&all.map(|name| (name, &b"x"[..])));
    symlink("d/keys", files.at("to-keys")).unwrap();
    symlink("d/secret", files.at("to-secret")).unwrap();
    symlink("d", files.at("to-d")).unwrap();
    let mut request = request("x");
    assert_eq!(names(&files, &request).len(), all.len());
    assert_eq!(names(&Concealing(&files), &request), ["d/a", "keys/b", "secret"]);
    request.scope.follow = true;
    let followed = ["d/a", "keys/b", "secret", "to-d/a"];
    assert_eq!(names(&Concealing(&files), &request), followed);
}

#[test]
fn hidden_names_are_shown_where_they_are_asked_for() {
    let files = [".env", ".github/ci.yml", ".github/.deep/x.yml", "a/.b/c.yml", "d.yml"];
    let all = |change: &dyn Fn(&mut Scope)| chosen(&files, &[], change);
    assert_eq!(all(&|_| ()), ["d.yml"]);
    assert_eq!(
        all(&|scope| scope.hidden = Hidden::Show),
        [".env", ".github/.deep/x.yml", ".github/ci.yml", "a/.b/c.yml", "d.yml"]
    );
    let include = |glob: &str| all(&|scope| scope.include = vec![glob.to_owned()]);
    assert_eq!(include(".github/**"), [".github/.deep/x.yml", ".github/ci.yml"]);
    assert_eq!(include("**/.env"), [".env"]);
    assert_eq!(include(".*"), [".env"]);
    assert_eq!(include("*.yml"), ["d.yml"]);
    assert_eq!(include("{.github,x}/*.yml"), [".github/ci.yml"]);
    assert_eq!(include("a/.b/*"), ["a/.b/c.yml"]);
    let below = |start: &str| all(&|scope| scope.starts = vec![start.into()]);
    assert_eq!(below(".github"), [".github/.deep/x.yml", ".github/ci.yml"]);
    assert_eq!(below("a/.b"), ["a/.b/c.yml"]);
}

#[test]
fn globs_narrow_and_never_bring_back_what_is_ignored() {
    let files = ["a.rs", "b.log", "src/a.rs", "src/deep/b.rs", "src/[id].ts", "target/x.rs"];
    let all = |globs: &[&str]| {
        chosen(&files, &[(".gitignore", "*.log\ntarget/")], |scope| {
            scope.include = globs.iter().map(|glob| (*glob).to_owned()).collect();
        })
    };
    let everything = ["a.rs", "src/[id].ts", "src/a.rs", "src/deep/b.rs"];
    for glob in ["**/*", "*", "**"] {
        assert_eq!(all(&[glob]), everything, "{glob}");
    }
    assert_eq!(all(&["*.log"]), [""; 0]);
    assert_eq!(all(&["*.rs"]), ["a.rs", "src/a.rs", "src/deep/b.rs"]);
    assert_eq!(all(&["src/*.rs"]), ["src/a.rs"]);
    assert_eq!(all(&["src/**"]), ["src/[id].ts", "src/a.rs", "src/deep/b.rs"]);
    assert_eq!(all(&["src/**/*.{rs,{ts,js}}"]), ["src/[id].ts", "src/a.rs", "src/deep/b.rs"]);
    assert_eq!(all(&["./src/a.rs", "a.rs"]), ["a.rs", "src/a.rs"]);
    assert_eq!(all(&["/a.rs"]), ["a.rs"]);
    assert_eq!(all(&["src/"]), ["src/[id].ts", "src/a.rs", "src/deep/b.rs"]);
    assert_eq!(all(&["deep/"]), ["src/deep/b.rs"]);
    assert_eq!(all(&["src/[id].ts"]), ["src/[id].ts"]);
    assert_eq!(all(&["[id].ts"]), ["src/[id].ts"]);
    assert_eq!(all(&["A.rs"]), [""; 0]);
}

#[test]
fn what_is_excluded_is_left_out_with_all_beneath_it() {
    let files = ["a.rs", "a_test.rs", "build/x.rs", "src/build/y.rs", "src/z.rs", "build.d/w.rs"];
    let all = |change: &dyn Fn(&mut Scope)| chosen(&files, &[], change);
    let list = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        all(&|scope| scope.exclude = list(&["*_test.rs", "build"])),
        ["a.rs", "build.d/w.rs", "src/z.rs"]
    );
    assert_eq!(
        all(&|scope| scope.exclude = list(&["src/**"])),
        ["a.rs", "a_test.rs", "build.d/w.rs", "build/x.rs"]
    );
    assert_eq!(
        all(&|scope| scope.exclude_dirs = list(&["build*", "a.rs"])),
        ["a.rs", "a_test.rs", "src/z.rs"]
    );
    assert_eq!(
        all(&|scope| {
            scope.exclude_dirs = list(&["build"]);
            scope.starts = vec!["build".into()];
        }),
        ["build/x.rs"]
    );
    assert_eq!(all(&|scope| scope.max_depth = Some(1)), ["a.rs", "a_test.rs"]);
}

#[test]
fn globs_may_be_absolute_anchored_or_tried_deeper() {
    let tree = Files::new(&[("a.md", b"x"), ("p/a/b/c.md", b"x"), ("p/q.md", b"x")]);
    let with = |glob: String, rule| {
        let mut request = request("x");
        request.scope.include = vec![glob];
        request.scope.globs = rule;
        search(&request, &tree)
    };
    let names = |glob: String, rule| {
        let outcome = with(glob, rule).unwrap();
        let names = outcome.files.iter().map(|file| file.path.display().to_string());
        (names.collect::<Vec<_>>(), outcome.notes)
    };
    let root = tree.path().display().to_string();
    assert_eq!(names(format!("{root}/p/*.md"), GlobRule::Names).0, ["p/q.md"]);
    let outside = with("/nowhere/else/*.md".into(), GlobRule::Names).unwrap_err();
    assert_eq!(outside, SearchError::GlobOutside { glob: "/nowhere/else/*.md".into() });
    let (deeper, notes) = names("a/b/*.md".into(), GlobRule::Names);
    assert_eq!(deeper, ["p/a/b/c.md"]);
    assert_eq!(notes, [Note::GlobRetried { glob: "**/a/b/*.md".into() }]);
    assert_eq!(names("a/b/*.md".into(), GlobRule::Anchored), (vec![], vec![]));
    assert_eq!(names("*.md".into(), GlobRule::Anchored).0, ["a.md"]);
    for glob in ["[a", "{a,b", "a/[z-a]"] {
        let error = with(glob.into(), GlobRule::Names).unwrap_err();
        assert!(matches!(error, SearchError::BadGlob { .. }), "{glob}: {error}");
    }
    tree.write("[a", b"x");
    assert_eq!(names("[a".into(), GlobRule::Names).0, ["[a"]);
}

#[test]
fn types_are_those_of_ripgrep_and_leave_hidden_files_hidden() {
    let files = ["a.rs", "b.py", "c.ts", ".d.rs", "Makefile"];
    let with = |types: &[&str], not: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (types, not): (Vec<_>, Vec<_>) = (list(types), list(not));
        chosen(&files, &[], move |scope| {
            scope.types.clone_from(&types);
            scope.types_not.clone_from(&not);
        })
    };
    assert_eq!(with(&["rust", "py"], &[]), ["a.rs", "b.py"]);
    assert_eq!(with(&[], &["rust"]), ["Makefile", "b.py", "c.ts"]);
    let tree = Files::new(&[]);
    let mut request = request("x");
    request.scope.types = vec!["pyhton".into()];
    let error = search(&request, &tree).unwrap_err();
    assert_eq!(error.to_string(), "unknown file type 'pyhton', did you mean 'python'?");
}

#[test]
fn a_file_that_is_a_start_passes_everything() {
    let rules = [(".gitignore", "d")];
    let pick = |scope: &mut Scope| {
        scope.starts = vec!["d/.b.log".into(), "a".into()];
        scope.include = vec!["*.rs".into()];
        scope.exclude = vec!["*.log".into()];
    };
    assert_eq!(chosen(&["d/.b.log", "a"], &rules, pick), ["a", "d/.b.log"]);
}

#[test]
fn starts_are_searched_once_and_in_one_order() {
    let files = ["a/x", "a-b", "a/b/y", "c", "a/b/z/w"];
    let with = |starts: &[&str]| {
        let starts: Vec<PathBuf> = starts.iter().map(PathBuf::from).collect();
        chosen(&files, &[(".gitignore", "z")], move |scope| scope.starts.clone_from(&starts))
    };
    assert_eq!(with(&["c", "a", "a", "a-b"]), ["a-b", "a/b/y", "a/x", "c"]);
    assert_eq!(with(&["a/b", "a"]), ["a/b/y", "a/x"]);
    assert_eq!(with(&["a/b/z", ""]), ["a-b", "a/b/y", "a/b/z/w", "a/x", "c"]);
    let tree = Files::new(&[("d/a", b"x")]);
    let mut request = request("x");
    for start in ["none", "d/none", "d/a/b"] {
        request.scope.starts = vec!["d".into(), start.into()];
        let error = search(&request, &tree).unwrap_err();
        assert_eq!(error, SearchError::StartNotFound(start.into()));
    }
}

#[test]
fn a_start_that_is_ignored_is_searched_and_that_is_told() {
    let tree = Files::new(&[
        (".gitignore", b"node_modules/\nscripts/*\n"),
        ("node_modules/p/a", b"x"),
        ("node_modules/p/.gitignore", b"a\n"),
        ("scripts/s", b"x"),
        ("b", b"x"),
    ]);
    fs::create_dir(tree.at(".git")).unwrap();
    for (start, file) in [("node_modules", "node_modules/p/a"), ("scripts", "scripts/s")] {
        let mut request = request("x");
        request.scope = Scope { starts: vec![start.into()], ..Scope::default() };
        let outcome = run(&tree, &request);
        assert_eq!(lines(&outcome), [format!("{file}:1:x")]);
        assert_eq!(outcome.notes, [Note::IgnoredRootSearched { start: start.into() }]);
    }
}

#[test]
fn links_are_followed_only_when_asked_and_never_out_or_around() {
    let outside = Files::new(&[("secret", b"x")]);
    let tree = Files::new(&[("d/a", b"x"), ("e/f", b"x")]);
    for (target, link) in
        [("d", "to-d"), ("..", "d/up"), ("a", "d/to-a"), ("../d", "e/d"), ("../e", "d/e")]
    {
        symlink(target, tree.at(link)).unwrap();
    }
    symlink(outside.path(), tree.at("out")).unwrap();
    symlink(outside.at("secret"), tree.at("out-file")).unwrap();
    symlink("nowhere", tree.at("dangling")).unwrap();
    std::os::unix::net::UnixListener::bind(tree.at("socket")).unwrap();
    let mut request = request("x");
    let outcome = run(&tree, &request);
    assert_eq!(lines(&outcome), ["d/a:1:x", "e/f:1:x"]);
    assert_eq!(outcome.skipped, Skipped { not_regular: 9, ..Skipped::default() });
    request.scope.follow = true;
    let outcome = run(&tree, &request);
    let expected =
        ["d/a", "d/e/f", "d/to-a", "e/d/a", "e/d/to-a", "e/f", "to-d/a", "to-d/e/f", "to-d/to-a"];
    assert_eq!(names(&tree, &request), expected);
    // The socket, and two links that lead out of the root. Loops and the dangling link become warnings.
    assert_eq!(outcome.skipped.not_regular, 3);
    assert!(outcome.warnings.iter().any(|warning| warning.path == Path::new("dangling")));
    assert!(outcome.warnings.iter().any(|warning| warning.reason.contains("leads back")));
}

#[test]
fn a_link_to_a_directory_above_the_start_is_walked_once() {
    let tree = Files::new(&[("real/a", b"x"), ("real/d/b", b"x"), ("real/s/c", b"x"), ("e", b"x")]);
    symlink("..", tree.at("real/d/up")).unwrap();
    symlink(".", tree.at("real/d/here")).unwrap();
    let mut request = request("x");
    request.scope.follow = true;
    request.scope.starts = vec!["real/d".into()];
    let expected = ["real/d/b", "real/d/up/a", "real/d/up/d/b", "real/d/up/s/c"];
    let outcome = run(&tree, &request);
    assert_eq!(names(&tree, &request), expected);
    let loops = outcome.warnings.iter().filter(|it| it.reason.contains("leads back"));
    let loops: Vec<_> = loops.map(|it| it.path.to_str().unwrap()).collect();
    assert_eq!(loops, ["real/d/here", "real/d/up/d/here", "real/d/up/d/up"]);
    request.scope.starts = vec!["".into()];
    assert_eq!(names(&tree, &request), ["e", "real/a", "real/d/b", "real/s/c"]);
}

#[test]
fn the_last_modified_can_come_first() {
    let tree = Files::new(&[("a", b"x"), ("b", b"x"), ("c", b"x"), ("d/e", b"x")]);
    for (name, seconds) in [("a", 10), ("b", 30), ("c", 10), ("d/e", 20)] {
        let file = File::options().write(true).open(tree.at(name)).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    }
    let mut request = request("x");
    request.scope.sort = Sort::Modified;
    assert_eq!(names(&tree, &request), ["b", "d/e", "a", "c"]);
    request.limit = 2;
    let first = run(&tree, &request);
    request.cursor = first.cursor;
    assert_eq!(names(&tree, &request), ["a", "c"]);
}

#[test]
fn version_control_is_left_out_unless_it_is_named() {
    let files = [".git/config", ".hg/a", "d/.git", "a"];
    let show = |scope: &mut Scope| scope.hidden = Hidden::Show;
    assert_eq!(chosen(&files, &[], show), ["a"]);
    let named = |scope: &mut Scope| scope.starts = vec![".git".into()];
    assert_eq!(chosen(&files, &[], named), [".git/config"]);
    let all = |scope: &mut Scope| {
        scope.hidden = Hidden::Show;
        scope.vcs_dirs = true;
    };
    assert_eq!(chosen(&files, &[], all), [".git/config", ".hg/a", "a", "d/.git"]);
}
