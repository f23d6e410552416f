//! `quack grep`, `find`, `replace`, `undo` and `schema`.

use crate::harness::{Daemon, Repo};
use nix::pty::openpty;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

/// Creates a daemon and a repository with files of several kinds.
fn world() -> (Daemon, Repo) {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("src/main.rs", "fn main() {\n    println!(\"needle\");\n}\n");
    repo.write("src/lib.rs", "// Needle, needle\nfn a() {}\nfn b() {}\nfn c() {}\n// needle\n");
    repo.write("docs/guide.md", "one\ntwo\n");
    repo.write("target/out.txt", "needle\n");
    repo.write(".gitignore", "target/\n");
    repo.write(".hidden", "needle\n");
    repo.write("image.bin", b"needle\0needle\n");
    (daemon, repo)
}

/// Runs a subcommand in a directory. Returns the exit code, stdout and stderr.
fn ran(mut command: Command, repo: &Repo, dir: &str) -> (Option<i32>, String, String) {
    let output = command.current_dir(repo.path().join(dir)).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn in_root(daemon: &Daemon, repo: &Repo, args: &[&str]) -> (Option<i32>, String) {
    let (code, stdout, stderr) = ran(daemon.command(args), repo, "");
    assert!(code != Some(1) || stderr.is_empty() || args[0] != "grep", "{args:?}: {stderr}");
    (code, stdout)
}

/// Output of a subcommand on a terminal.
fn on_a_terminal(mut command: Command, repo: &Repo) -> String {
    let pty = openpty(None, None).unwrap();
    let child = command.current_dir(repo.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = child.stdout(pty.slave).spawn().unwrap();
    // `Command` holds the other end: without this drop the terminal would not end with the
    // subcommand.
    drop(command);
    let mut shown = Vec::new();
    let mut terminal = File::from(pty.master);
    let mut piece = [0; 4096];
    // On Linux, the end of a terminal is an error.
    while let Ok(n @ 1..) = terminal.read(&mut piece) {
        shown.extend_from_slice(&piece[..n]);
    }
    assert!(child.wait().unwrap().code().is_some());
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

fn lines_of_json(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn grep_prints_what_grep_and_ripgrep_users_expect() {
    let (daemon, repo) = world();
    for (args, expected) in [
        (
            &["needle"][..],
            "src/lib.rs:1:// Needle, needle\nsrc/lib.rs:5:// needle\nsrc/main.rs:2:    println!(\"needle\");\n",
        ),
        (&["-rnE", "(need)le", "src/main.rs"], "2:    println!(\"needle\");\n"),
        (&["-H", "needle", "src/main.rs"], "src/main.rs:2:    println!(\"needle\");\n"),
        (&["-IN", "^// n", "src"], "// needle\n"),
        (&["-i", "^// NEEDLE,"], "src/lib.rs:1:// Needle, needle\n"),
        (&["-S", "Needle"], "src/lib.rs:1:// Needle, needle\n"),
        (&["-w", "a"], "src/lib.rs:2:fn a() {}\n"),
        (&["-x", "two"], "docs/guide.md:2:two\n"),
        (&["-F", "a()"], "src/lib.rs:2:fn a() {}\n"),
        (&["-e", "one", "-e", "^two"], "docs/guide.md:1:one\ndocs/guide.md:2:two\n"),
        (&["-v", "e$", "docs"], "docs/guide.md:2:two\n"),
        (&["-o", "[nN]eedle", "src/lib.rs"], "1:Needle\n1:needle\n5:needle\n"),
        (&["-l", "needle"], "src/lib.rs\nsrc/main.rs\n"),
        (&["-l0", "needle"], "src/lib.rs\0src/main.rs\0"),
        (&["-L", "needle", "src", "docs"], "docs/guide.md\n"),
        (&["-c", "-i", "needle"], "src/lib.rs:2\nsrc/main.rs:1\n"),
        (&["--count-matches", "-i", "needle"], "src/lib.rs:3\nsrc/main.rs:1\n"),
        (&["-m1", "fn", "src"], "src/lib.rs:2:fn a() {}\nsrc/main.rs:1:fn main() {\n"),
        (&["--limit", "2", "fn"], "src/lib.rs:2:fn a() {}\nsrc/lib.rs:3:fn b() {}\n"),
        (&["-g", "*.rs", "-g", "!lib.rs", "needle"], "src/main.rs:2:    println!(\"needle\");\n"),
        (
            &["-t", "md", "o"],
            "README.md:1:# A repository\ndocs/guide.md:1:one\ndocs/guide.md:2:two\n",
        ),
        (&["-A1", "b\\(\\)", "src"], "src/lib.rs:3:fn b() {}\nsrc/lib.rs-4-fn c() {}\n"),
        (
            &["--context", "1", "needle", "src"],
            "src/lib.rs:1:// Needle, needle\nsrc/lib.rs-2-fn a() {}\n--\nsrc/lib.rs-4-fn c() {}\nsrc/lib.rs:5:// needle\n\
             --\nsrc/main.rs-1-fn main() {\nsrc/main.rs:2:    println!(\"needle\");\nsrc/main.rs-3-}\n",
        ),
        (&["-U", "one\\ntwo"], "docs/guide.md:1:one\ndocs/guide.md:2:two\n"),
        (&["-lu", "needle"], "src/lib.rs\nsrc/main.rs\ntarget/out.txt\n"),
        (&["-luu", "needle"], ".hidden\nsrc/lib.rs\nsrc/main.rs\ntarget/out.txt\n"),
        (&["-luuu", "needle"], ".hidden\nimage.bin\nsrc/lib.rs\nsrc/main.rs\ntarget/out.txt\n"),
        (&["-q", "needle"], ""),
    ] {
        let args = [&["grep"], args].concat();
        assert_eq!(in_root(&daemon, &repo, &args), (Some(0), expected.to_owned()), "{args:?}");
    }
}

#[test]
fn grep_says_by_its_exit_code_whether_it_found_something_or_was_asked_wrongly() {
    let (daemon, repo) = world();
    for (args, code) in [
        (&["needle"][..], 0),
        (&["nowhere"], 1),
        (&["-q", "nowhere"], 1),
        (&["("], 2),
        (&["x", "missing"], 2),
        (&["x", "../outside"], 2),
        (&["-t", "nosuchtype", "x"], 2),
        (&["-g", "[", "x"], 2),
        (&["--encoding", "nosuch", "x"], 2),
        (&[], 2),
        (&["-C", "3", "x"], 2),
    ] {
        let (found, stdout, stderr) = ran(daemon.command(&[&["grep"], args].concat()), &repo, "");
        assert_eq!(found, Some(code), "{args:?}: {stdout}{stderr}");
        if code == 2 {
            assert!(stdout.is_empty() && stderr.contains("error:"), "{args:?}: {stdout}{stderr}");
        }
    }
}

#[test]
fn a_path_that_is_missing_is_told_and_the_others_are_looked_at_but_nothing_is_changed() {
    let (daemon, repo) = world();
    let told = "warning: missing: No such file or directory\n";
    for (args, expected) in [
        (
            &["grep", "needle", "missing", "src/main.rs"][..],
            "src/main.rs:2:    println!(\"needle\");\n",
        ),
        (&["find", "main.rs", "missing", "src"], "src/main.rs\n"),
        (&["find", "nowhere", "src", "missing"], ""),
    ] {
        let (code, stdout, stderr) = ran(daemon.command(args), &repo, "");
        assert_eq!((code, stdout.as_str()), (Some(2), expected), "{args:?}: {stderr}");
        assert!(stderr.contains(told), "{args:?}: {stderr}");
    }
    let args = ["find", "main.rs", "missing", "src", "--json"];
    let (code, stdout, _) = ran(daemon.command(&args), &repo, "");
    let lines = lines_of_json(&stdout);
    let (first, last) = (&lines[0], lines.last().unwrap());
    assert_eq!(
        (code, &first["path"], &last["complete"]),
        (Some(2), &json!("src/main.rs"), &json!(false))
    );
    assert_eq!(last["warnings"][0]["path"], "missing");
    // A dangling link counts as missing too, as in ripgrep's report.
    std::os::unix::fs::symlink("nowhere", repo.path().join("dangling")).unwrap();
    for args in
        [["grep", "needle", "dangling", "src/main.rs"], ["find", "main.rs", "dangling", "src"]]
    {
        let (code, stdout, stderr) = ran(daemon.command(&args), &repo, "");
        assert!(code == Some(2) && stdout.starts_with("src/main.rs"), "{args:?}: {stdout}{stderr}");
        let told = "warning: dangling: No such file or directory\n";
        assert!(stderr.ends_with(told), "{args:?}: {stderr}");
    }
    for args in
        [["grep", "needle", "missing", "dangling"], ["find", "main.rs", "missing", "dangling"]]
    {
        let (code, stdout, stderr) = ran(daemon.command(&args), &repo, "");
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
        let told = "error: missing, dangling: No such file or directory\n";
        assert!(stderr.ends_with(told), "{args:?}: {stderr}");
    }
    let none = ran(daemon.command(&["find", "main.rs", "missing"]), &repo, "");
    assert_eq!((none.0, none.1.as_str()), (Some(2), ""), "{}", none.2);
    for args in [
        &["replace", "needle", "x", "missing", "src/main.rs", "nor-this"][..],
        &["replace", "--dry-run", "needle", "x", "missing", "src/main.rs", "nor-this"],
        &["replace", "needle", "x", "missing", "nor-this"],
    ] {
        let (code, stdout, stderr) = ran(daemon.command(args), &repo, "");
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
        let told = "error: missing, nor-this: No such file or directory; nothing was changed\n";
        assert!(stderr.ends_with(told), "{args:?}: {stderr}");
        assert!(repo.read("src/main.rs").contains("needle"));
    }
}

#[test]
fn paths_are_relative_to_where_one_stands() {
    let (daemon, repo) = world();
    let grep = |dir: &str, args: &[&str]| {
        let (code, stdout, stderr) =
            ran(daemon.command(&[&["grep", "-l"], args].concat()), &repo, dir);
        assert_eq!(code, Some(0), "{args:?}: {stderr}");
        stdout
    };
    assert_eq!(grep("src", &["needle"]), "lib.rs\nmain.rs\n", "only what is below");
    assert_eq!(grep("docs", &["needle", "../src/lib.rs", ".."]), "../src/lib.rs\n../src/main.rs\n");
    repo.write("src/deep/x.rs", "needle\n");
    assert_eq!(grep("src", &["-g", "deep/*.rs", "needle"]), "deep/x.rs\n");
    let dir = repo.path().join("src");
    let run = daemon.quack(&["grep", "-l", "needle", "main.rs", "-C", dir.to_str().unwrap()]);
    assert_eq!(run.ok(), "main.rs\n");
    let run = daemon.quack(&["grep", "-l", "needle", "src", "--session", "duck-1"]);
    assert_eq!(
        run.ok(),
        "src/deep/x.rs\nsrc/lib.rs\nsrc/main.rs\n",
        "elsewhere one stands in its root"
    );
}

#[test]
fn grep_says_of_named_files_what_ripgrep_says() {
    let (daemon, repo) = world();
    let one = "binary file matches\n";
    let named = "image.bin: binary file matches\n";
    let main = "src/main.rs:2:    println!(\"needle\");\n";
    for (args, code, stdout, stderr) in [
        (&["needle", "image.bin"][..], 0, one.to_owned(), ""),
        (&["needle", "src/main.rs", "image.bin"], 0, format!("{main}{named}"), ""),
        (&["-o", "needle", "image.bin"], 0, one.to_owned(), ""),
        (&["-l", "needle", "image.bin"], 0, "image.bin\n".to_owned(), ""),
        (&["-q", "needle", "image.bin"], 0, String::new(), ""),
        (&["nothing", "image.bin"], 1, String::new(), ""),
        (&["println", "."], 0, main.to_owned(), ""),
        (
            &["println", "nope", "src/main.rs"],
            2,
            main.to_owned(),
            "warning: nope: No such file or directory\n",
        ),
        (&["zzz", "nope", "src"], 2, String::new(), "warning: nope: No such file or directory\n"),
        (&["-q", "println", "nope", "src"], 0, String::new(), ""),
        (&["-M", "0", "println", "src"], 0, main.to_owned(), ""),
        (&["-m", "0", "println", "src"], 1, String::new(), ""),
        (&["--max-depth", "0", "println", "src"], 1, String::new(), ""),
        (&["-H", "--max-depth", "0", "println", "src/main.rs"], 0, main.to_owned(), ""),
    ] {
        let found = ran(daemon.command(&[&["grep"], args].concat()), &repo, "");
        assert_eq!(found, (Some(code), stdout, stderr.to_owned()), "{args:?}");
    }
    let (code, stdout, _) =
        ran(daemon.command(&["grep", "--json", "needle", "image.bin", "nope"]), &repo, "");
    let lines = lines_of_json(&stdout);
    assert_eq!(lines[0], json!({"type": "binary", "path": "image.bin"}));
    let warnings = json!([{"path": "nope", "message": "No such file or directory"}]);
    assert_eq!((&lines[1]["warnings"], &lines[1]["complete"]), (&warnings, &json!(false)));
    assert_eq!((code, lines.len()), (Some(2), 2));
}

#[test]
fn grep_goes_on_until_everything_is_shown_and_shows_nothing_twice() {
    let (daemon, repo) = world();
    let n_lines = 25_000;
    let mut big = String::new();
    let mut expected = String::new();
    for n in 1..=n_lines {
        // Every third line is context, so that pages end between context lines.
        let text = if n % 3 == 0 { "other" } else { "row" };
        writeln!(big, "{text} {n}").unwrap();
        let mark = if n % 3 == 0 { '-' } else { ':' };
        writeln!(expected, "{n}{mark}{text} {n}").unwrap();
    }
    repo.write("big.txt", big);
    let (code, stdout) = in_root(&daemon, &repo, &["grep", "^row", "big.txt"]);
    let rows = expected.lines().filter(|line| line.contains(':'));
    assert!(stdout.lines().eq(rows) && code == Some(0), "{} lines", stdout.lines().count());
    let (_, stdout) = in_root(&daemon, &repo, &["grep", "--context", "2", "^row", "big.txt"]);
    assert!(stdout.lines().eq(expected.lines()), "{} lines", stdout.lines().count());
    let (_, stdout) = in_root(&daemon, &repo, &["grep", "--limit", "12345", "^row", "big.txt"]);
    assert_eq!(stdout.lines().count(), 12_345);
}

#[test]
fn pages_that_are_full_by_their_bytes_lose_no_line() {
    let (daemon, repo) = world();
    let mut content = String::new();
    let mut expected = String::new();
    for n in 1..=2_500 {
        let line = format!("row {n} {}", "x".repeat(1000));
        writeln!(content, "{line}\nother").unwrap();
        writeln!(expected, "{}:{line}", 2 * n - 1).unwrap();
    }
    repo.write("big.txt", content);
    let (code, stdout) = in_root(&daemon, &repo, &["grep", "^row", "big.txt"]);
    assert!((code, &stdout) == (Some(0), &expected), "{} lines", stdout.lines().count());
    // No context line is missing either, and the end of a page is not marked as a gap.
    let mut content = String::new();
    let mut expected = String::new();
    for n in 1..=5_993 {
        // Of ten lines one matches, and five are outside of every context.
        let (mark, text) = match n % 10 {
            1 => (':', "row"),
            0 | 2 | 3 | 9 => ('-', "near"),
            _ => (' ', "far"),
        };
        let line = format!("{text} {n} {}", "x".repeat(1000));
        writeln!(content, "{line}").unwrap();
        if mark != ' ' {
            writeln!(expected, "{n}{mark}{line}").unwrap();
        } else if n % 10 == 4 {
            writeln!(expected, "--").unwrap();
        }
    }
    repo.write("near.txt", content);
    let args = ["grep", "--context", "2", "^row", "near.txt"];
    let (code, stdout) = in_root(&daemon, &repo, &args);
    assert!((code, &stdout) == (Some(0), &expected), "{} lines", stdout.lines().count());
}

#[test]
fn grep_gives_programs_a_line_for_each_thing_and_a_last_one_about_all() {
    let (daemon, repo) = world();
    let (code, stdout) = in_root(&daemon, &repo, &["grep", "--json", "--context", "1", "println"]);
    let all = lines_of_json(&stdout);
    assert_eq!(code, Some(0));
    assert_eq!(
        all[..3],
        [
            json!({"type": "context", "path": "src/main.rs", "line": 1, "text": "fn main() {"}),
            json!({"type": "match", "path": "src/main.rs", "line": 2, "column": 5,
                "text": "    println!(\"needle\");", "submatches": [{"start": 4, "end": 11}]}),
            json!({"type": "context", "path": "src/main.rs", "line": 3, "text": "}"}),
        ]
    );
    let summary = &all[3];
    let facts =
        ["type", "directory", "shown", "complete", "timedOut"].map(|name| summary[name].clone());
    let expected = [json!("summary"), json!(repo.path()), json!(1), json!(true), json!(false)];
    assert_eq!((facts, all.len()), (expected, 4));
    assert_eq!(summary["skipped"]["binary"], 1, "{summary}");

    let (_, stdout) = in_root(&daemon, &repo, &["grep", "--json", "-c", "fn"]);
    assert_eq!(
        lines_of_json(&stdout)[0],
        json!({"type": "count", "path": "src/lib.rs", "count": 3})
    );
    let (_, stdout) = in_root(&daemon, &repo, &["grep", "--json", "-l", "--limit", "1", "fn"]);
    let all = lines_of_json(&stdout);
    assert_eq!(all[0], json!({"type": "file", "path": "src/lib.rs"}));
    assert_eq!((&all[1]["complete"], all.len()), (&json!(false), 2));
    let (code, stdout) = in_root(&daemon, &repo, &["grep", "--json", "NEEDLE"]);
    let all = lines_of_json(&stdout);
    assert_eq!((code, all.len(), &all[0]["shown"]), (Some(1), 1, &json!(0)));
    let notes = all[0]["notes"].to_string();
    assert!(notes.contains("upper and lower case"), "why nothing was found: {notes}");
}

#[test]
fn on_a_terminal_matches_stand_in_colours_below_their_file_and_nothing_steers_it() {
    let (daemon, repo) = world();
    repo.write("evil\u{1b}[2Jname.txt", "red \u{1b}]0;title\u{7}evilword\r\n");
    let shown = on_a_terminal(daemon.command(&["grep", "evilword|println"]), &repo);
    let plain = anstream_less(&shown);
    assert_eq!(
        plain,
        "evilname.txt\n1:red \u{fffd}]0;title\u{fffd}evilword\n\nsrc/main.rs\n2:    println!(\"needle\");\n"
    );
    assert!(shown.contains("\u{1b}[1m\u{1b}[31mevilword\u{1b}[0m"), "{shown:?}");
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains("\u{1b}]0"), "{shown:?}");
    let mut without = daemon.command(&["grep", "println"]);
    without.env("NO_COLOR", "1");
    assert_eq!(on_a_terminal(without, &repo), "src/main.rs\n2:    println!(\"needle\");\n");
    let (_, stdout) = in_root(&daemon, &repo, &["grep", "--color", "always", "-o", "evilword"]);
    assert!(stdout.contains("\u{1b}[31mevilword"), "{stdout:?}");
    let (_, stdout) = in_root(&daemon, &repo, &["grep", "evilword"]);
    assert!(
        stdout.ends_with("\u{1b}]0;title\u{7}evilword\r\n"),
        "a pipe gets what there is: {stdout:?}"
    );
}

/// Returns `text` without color sequences.
fn anstream_less(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain + rest
}

#[test]
fn find_prints_names_by_pattern_kind_size_and_time() {
    let (daemon, repo) = world();
    repo.write("docs/big.txt", "x".repeat(5000));
    for (args, expected) in [
        (&["*.rs"][..], "src/lib.rs\nsrc/main.rs\n"),
        (&["*.RS", "-i"], "src/lib.rs\nsrc/main.rs\n"),
        (&["-t", "d"], "docs/\nsrc/\n"),
        (&["-t", "f", "*", "docs"], "docs/big.txt\ndocs/guide.md\n"),
        (&["--size", "+4k", "-t", "f"], "docs/big.txt\n"),
        (&["*", "-t", "f", "-E", "*.rs", "-E", "docs"], "README.md\nimage.bin\n"),
        (&["--newer", "1h", "guide.md"], "docs/guide.md\n"),
        (&["--older", "1h"], ""),
        (&["-u", "-t", "f", "{.hidden,out.txt}"], ".hidden\ntarget/out.txt\n"),
        (&["-0", "*.rs"], "src/lib.rs\0src/main.rs\0"),
        (&["--fuzzy", "mnrs", "-t", "f"], "src/main.rs\n"),
        (&["-t", "f", "--limit", "1", "*.rs"], "src/lib.rs\n"),
        (&["-t", "f", "--sort", "size", "--limit", "1"], "docs/big.txt\n"),
    ] {
        let args = [&["find"], args].concat();
        assert_eq!(in_root(&daemon, &repo, &args), (Some(0), expected.to_owned()), "{args:?}");
    }
    let (code, stdout, _) = ran(daemon.command(&["find", "*.rs", ".."]), &repo, "docs");
    assert_eq!((code, stdout.as_str()), (Some(0), "../src/lib.rs\n../src/main.rs\n"));
    let (_, stdout) = in_root(&daemon, &repo, &["find", "-l", "big.txt"]);
    assert!(
        stdout.starts_with("-rw")
            && stdout.contains(" 4.8 KB 20")
            && stdout.ends_with("  docs/big.txt\n"),
        "{stdout}"
    );
    let (_, stdout) = in_root(&daemon, &repo, &["find", "--json", "-l", "big.txt"]);
    let all = lines_of_json(&stdout);
    assert_eq!(
        (&all[0]["type"], &all[0]["path"], &all[0]["size"]),
        (&json!("entry"), &json!("docs/big.txt"), &json!(5000))
    );
    assert_eq!((&all[1]["type"], &all[1]["shown"], all.len()), (&json!("summary"), &json!(1), 2));
    let (code, stdout) = in_root(&daemon, &repo, &["find", "["]);
    assert_eq!((code, stdout), (Some(2), String::new()));
}

#[test]
fn find_goes_on_until_everything_is_shown() {
    let (daemon, repo) = world();
    std::fs::create_dir(repo.path().join("many")).unwrap();
    for n in 0..10_500 {
        std::fs::write(repo.path().join(format!("many/{n:05}")), "").unwrap();
    }
    let (code, stdout) = in_root(&daemon, &repo, &["find", "-t", "f", "*", "many"]);
    let expected = (0..10_500).map(|n| format!("many/{n:05}"));
    assert!(code == Some(0) && stdout.lines().eq(expected), "{} lines", stdout.lines().count());
}

#[test]
fn replace_writes_at_once_and_undo_takes_it_back() {
    let (daemon, repo) = world();
    repo.write("src/dos.rs", "needle\r\nlast needle");
    let (code, stdout) = in_root(&daemon, &repo, &["replace", "(need)le", "${1}s", "-i", "src"]);
    assert_eq!(code, Some(0), "{stdout}");
    let (summary, undo) = stdout.split_once("Undo with: ").unwrap();
    assert_eq!(
        summary,
        "src/dos.rs: 2 in 2 lines\nsrc/lib.rs: 3 in 2 lines\nsrc/main.rs: 1 in 1 line\n\
         Replaced 6 matches in 5 lines of 3 files.\n"
    );
    assert_eq!(repo.read("src/dos.rs"), "needs\r\nlast needs");
    assert_eq!(repo.read("target/out.txt"), "needle\n");
    let undo: Vec<&str> = undo.split_whitespace().skip(1).collect();
    let (code, list) = in_root(&daemon, &repo, &["undo", "--list"]);
    assert!(code == Some(0) && list.contains(undo[1]), "{list}");
    let (code, stdout) = in_root(&daemon, &repo, &undo);
    assert_eq!(code, Some(0), "{stdout}");
    assert_eq!(repo.read("src/dos.rs"), "needle\r\nlast needle");
    assert!(repo.read("src/lib.rs").starts_with("// Needle, needle\n"));
    let (code, stdout, stderr) = ran(daemon.command(&["undo"]), &repo, "");
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("nothing to undo"), "{stderr}");
}

#[test]
fn a_dry_run_is_a_patch_that_git_takes_and_its_plan_can_be_carried_out() {
    let (daemon, repo) = world();
    let (code, patch) = in_root(&daemon, &repo, &["replace", "--dry-run", "needle", "pin", "src"]);
    assert_eq!(code, Some(0));
    assert!(patch.starts_with("--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ "), "{patch}");
    assert!(repo.read("src/main.rs").contains("needle"), "nothing is written");
    repo.write("p.patch", &patch);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let applied =
        session.bash("(git apply p.patch || patch -sp1 < p.patch) 2>&1 && cat src/lib.rs");
    assert!(applied.starts_with("// Needle, pin\n"), "{applied}");

    repo.write("src/lib.rs", "needle\n");
    let planned = daemon
        .quack(&[
            "replace",
            "-n",
            "--json",
            "needle",
            "pin",
            "src",
            "-C",
            repo.path().to_str().unwrap(),
        ])
        .json();
    let plan = planned["planId"].as_str().unwrap();
    assert_eq!((&planned["dryRun"], planned["files"].as_array().unwrap().len()), (&json!(true), 1));
    let (code, stdout) = in_root(&daemon, &repo, &["replace", "--plan", plan]);
    assert!(code == Some(0) && stdout.starts_with("src/lib.rs: 1 in 1 line\n"), "{stdout}");
    assert_eq!(repo.read("src/lib.rs"), "pin\n");
    let shown = on_a_terminal(
        daemon.command(&["replace", "-n", "pin", "x\u{1b}[2Jy", "src/lib.rs"]),
        &repo,
    );
    assert!(shown.contains("\u{1b}[31m-pin\u{1b}[0m") && !shown.contains("\u{1b}[2J"), "{shown:?}");
}

#[test]
fn a_replacement_that_is_not_what_was_expected_changes_nothing() {
    let (daemon, repo) = world();
    let before = repo.read("src/lib.rs");
    for (args, code) in [
        (&["nowhere", "x"][..], 1),
        (&["needle", "x", "--expect-files", "7"], 1),
        (&["needle", "x", "--expect-replacements", "1"], 1),
        (&["needle", "x", "--max-files", "1"], 1),
        (&["needle", "x", "--max-replacements", "1"], 1),
        (&["--plan", "nosuch"], 1),
        (&["(", "x"], 2),
        (&["needle", "$9"], 2),
        (&["needle", "x", "missing"], 2),
        (&["needle", "x", "-t", "nosuchtype"], 2),
        (&["needle", "x", "--line-range", "1:2", "src"], 2),
        (&["needle"], 2),
    ] {
        let (found, stdout, stderr) =
            ran(daemon.command(&[&["replace"], args].concat()), &repo, "");
        assert_eq!((found, stdout.as_str()), (Some(code), ""), "{args:?}: {stderr}");
    }
    assert_eq!(repo.read("src/lib.rs"), before);
    for (args, expected) in [
        (&["-F", "a()", "$1()", "src/lib.rs"][..], "fn $1() {}"),
        (&["--no-template", "\\$1", "$0$$", "src/lib.rs"], "fn $0$$() {}"),
        (
            &["needle", "x", "--line-range", "5:", "src/lib.rs", "--expect-lines", "1"],
            "// Needle, needle",
        ),
        (&["-m1", "fn", "FN", "src/lib.rs", "--no-backup"], "FN $0$$() {}"),
    ] {
        let (code, stdout) = in_root(&daemon, &repo, &[&["replace"], args].concat());
        assert_eq!(code, Some(0), "{args:?}: {stdout}");
        assert!(
            repo.read("src/lib.rs").contains(expected),
            "{args:?}: {}",
            repo.read("src/lib.rs")
        );
        assert_eq!(stdout.contains("Undo with"), !args.contains(&"--no-backup"), "{stdout}");
    }
}

#[test]
fn what_takes_too_long_says_so_and_shows_what_there_is() {
    let (daemon, repo) = world();
    // A pipe without data is not a file: the command does not wait for it.
    nix::unistd::mkfifo(&repo.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (code, stdout) = in_root(&daemon, &repo, &["grep", "-l", "needle", "--timeout", "30s"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "src/lib.rs\nsrc/main.rs\n"));
    repo.write("long.txt", "row and row and row\n".repeat(2_000_000));
    let (code, stdout, stderr) =
        ran(daemon.command(&["grep", "row", "--timeout", "700ms", "long.txt"]), &repo, "");
    assert_eq!(code, Some(4), "{} lines, {stderr}", stdout.lines().count());
    assert!(stderr.contains("results are missing") || stderr.contains("timed out"), "{stderr}");
}

#[test]
fn schemas_of_tools_need_no_daemon() {
    let world = Daemon::absent();
    let all = world.quack(&["schema", "tools"]).json();
    let names: Vec<&Value> = all.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    for name in ["bash", "read_file", "search", "find", "replace", "undo", "grep_search"] {
        assert!(names.contains(&&json!(name)), "{name}");
    }
    let one = world.quack(&["schema", "tools", "search"]).json();
    assert_eq!((&one["name"], &one["inputSchema"]["type"]), (&json!("search"), &json!("object")));
    let run = world.quack(&["schema", "tools", "serach"]);
    assert_eq!((run.code(), run.stdout()), (Some(2), String::new()));
    assert!(!world.socket().exists());
}

#[test]
fn undo_never_takes_back_another_replacement_than_the_last_one() {
    let (daemon, repo) = world();
    let undo = |args: &[&str]| ran(daemon.command(&[&["undo"], args].concat()), &repo, "");
    in_root(&daemon, &repo, &["replace", "one", "1", "docs"]);
    let (_, list, _) = undo(&["--list"]);
    let first = list.split_whitespace().next().unwrap();
    in_root(&daemon, &repo, &["replace", "two", "2", "docs", "--no-backup"]);
    let (code, stdout, stderr) = undo(&[]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    let end = format!("cannot be undone; older ones can be undone by id: {first}");
    assert!(stderr.trim_end().ends_with(&end), "{stderr}");
    assert_eq!(repo.read("docs/guide.md"), "1\n2\n");
    for nothing in ["", " "] {
        let (code, stdout, stderr) = undo(&[nothing]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    }
    in_root(&daemon, &repo, &["replace", "2", "3", "docs"]);
    repo.write("docs/guide.md", "mine\n");
    for _ in 0..2 {
        let (code, stdout, stderr) = undo(&[]);
        assert_eq!(code, Some(1), "{stdout}");
        assert!(stderr.contains(&format!("can be undone by id: {first}")), "{stdout}{stderr}");
    }
    repo.write("docs/guide.md", "1\ntwo\n");
    assert_eq!(undo(&[first]).0, Some(0));
    assert_eq!(repo.read("docs/guide.md"), "one\ntwo\n");
}

#[test]
fn the_patch_of_a_dry_run_is_exact_or_there_is_none() {
    let (daemon, repo) = world();
    let names = ["two words", "tab\t.txt", "new\nline", "quote\"\\", "\u{e9}"];
    for name in names {
        repo.write(&format!("odd/{name}"), "needle\n");
    }
    repo.write("odd/mark", "\u{feff}needle\r\nx");
    let (code, patch) = in_root(&daemon, &repo, &["replace", "-n", "needle", "pin", "odd"]);
    assert_eq!(code, Some(0));
    repo.write("p.patch", &patch);
    let session = daemon.wire();
    let applied = session.attach(repo.path()).bash("git apply p.patch 2>&1 || echo failed $?");
    assert!(!applied.contains("failed"), "{applied}\n{patch}");
    for name in names {
        assert_eq!(repo.read(&format!("odd/{name}")), "pin\n", "{name:?}");
    }
    assert_eq!(repo.read("odd/mark"), "\u{feff}pin\r\nx");

    repo.write("odd/latin", b"needle caf\xe9\n");
    repo.write("odd/wide", b"\xff\xfen\0e\0e\0d\0l\0e\0\n\0");
    repo.write("odd/plain", "needle\n");
    let dry = ["replace", "-n", "needle", "pin", "odd"];
    let (code, stdout, stderr) = ran(daemon.command(&dry), &repo, "");
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("odd/latin (not UTF-8), odd/wide (UTF-16)"), "{stderr}");
    let (code, stdout) =
        in_root(&daemon, &repo, &[&dry[..], &["-g", "!latin", "-g", "!wide"]].concat());
    assert!(code == Some(0) && stdout.starts_with("--- a/odd/plain\n"), "{stdout}");
    let (code, stdout, _) = ran(daemon.command(&[&dry[..], &["--json"]].concat()), &repo, "");
    assert!(code == Some(0) && stdout.contains("\"diffExact\": false"), "{stdout}");
}

#[test]
fn replace_notes_other_names_of_a_file_that_keep_the_old_content() {
    let (daemon, repo) = world();
    let elsewhere = daemon.repo("b");
    std::fs::hard_link(repo.path().join("docs/guide.md"), elsewhere.path().join("other")).unwrap();
    let (code, _, stderr) = ran(daemon.command(&["replace", "one", "1", "docs"]), &repo, "");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("docs/guide.md had other names, which keep the old content"),
        "{stderr}"
    );
    assert_eq!(elsewhere.read("other"), "one\ntwo\n");
}
