//! find_files: names that match a pattern, one per line.

use super::{Bench, Put, check, check_rows};

const NOTHING: &str =
    "Workspace scan complete: no non-hidden files found. Try include_hidden=true to list dotfiles.";

const TREE: [Put; 22] = [
    Put::File("Z.ts", b""),
    Put::File("b.ts", b""),
    Put::File("é.ts", b""),
    Put::File("_u.ts", b""),
    Put::File(".hidden.ts", b""),
    Put::File("a-b/f", b""),
    Put::File("a/f", b""),
    Put::File("a.txt", b""),
    Put::File("with space.md", b""),
    Put::File("src/c.TS", b""),
    Put::File("src/deep/d.tsx", b""),
    Put::File("src/.env", b""),
    Put::File(".github/ci.yml", b""),
    Put::File(".git/config", b""),
    Put::File(".build/x.ts", b""),
    Put::File("src/node_modules/x.ts", b""),
    Put::File("lib/node_modules", b""),
    Put::Link("link.ts", "b.ts"),
    Put::Link("src/up", ".."),
    Put::Link("root", "/"),
    Put::Link("dangling", "none"),
    Put::Fifo("fifo.ts"),
];

/// Files and links, in byte order of the whole path. The Node daemon sorts by locale, which differs
/// between machines.
const EVERYTHING: &str = "\
Z.ts
_u.ts
a-b/f
a.txt
a/f
b.ts
dangling
link.ts
root
src/c.TS
src/deep/d.tsx
src/up
with space.md
é.ts";

#[test]
fn find_files_reads_its_parameters() {
    let rows = [
        ("{}", EVERYTHING),
        (r#"{"pattern":"**/*"}"#, EVERYTHING),
        (r#"{"pattern":" ","glob":5}"#, EVERYTHING),
        (r#"{"pattern":"c.ts"}"#, "src/c.TS"),
        (r#"{"glob":"c.ts"}"#, "src/c.TS"),
        (r#"{"pattern":"","glob":"c.ts"}"#, "src/c.TS"),
        (r#"{"query":"c.ts"}"#, EVERYTHING),
        ("\"c.ts\"", "src/c.TS"),
        // The start directory, by every alias; paths stay relative to the workspace.
        (r#"{"path":"src"}"#, "src/c.TS\nsrc/deep/d.tsx\nsrc/up"),
        (r#"{"directory":"src/deep"}"#, "src/deep/d.tsx"),
        (r#"{"dir":"{ws}/src/deep"}"#, "src/deep/d.tsx"),
        (r#"{"path":"src/up/src/deep"}"#, "src/deep/d.tsx"),
        (r#"{"path":""}"#, EVERYTHING),
        (r#"{"path":"none"}"#, "Error: Search path not found: 'none'"),
        (r#"{"path":"dangling"}"#, "Error: Search path not found: 'dangling'"),
        (r#"{"path":"b.ts"}"#, "Error: Search path is not a directory: 'b.ts'"),
        (r#"{"path":"fifo.ts"}"#, "Error: Search path is not a directory: 'fifo.ts'"),
        (r#"{"path":"../ws2"}"#, "Error: Path escapes workspace root"),
        (r#"{"path":"root"}"#, "Error: Path escapes workspace root"),
        (r#"{"path":"a\u0000b"}"#, "Error: Failed to access search path: path contains a NUL byte"),
        // Only `true` itself counts.
        (r#"{"pattern":".*","include_hidden":true}"#, ".hidden.ts\nsrc/.env"),
        (r#"{"pattern":".*","include_hidden":"true"}"#, "No files found matching '.*'"),
        (r#"{"pattern":".*","include_hidden":1}"#, "No files found matching '.*'"),
        (r#"{"pattern":"s*","include_directories":true}"#, "src"),
        (r#"{"pattern":"s*","include_directories":"true"}"#, "No files found matching 's*'"),
    ];
    check(&TREE, "find_files", &rows);
}

#[test]
fn find_files_leaves_out_what_is_hidden_or_in_the_three_directories() {
    let rows = [
        (r#"{"pattern":"*.yml"}"#, "No files found matching '*.yml'"),
        (r#"{"pattern":"*.yml","include_hidden":true}"#, ".github/ci.yml"),
        // These directories and files are never listed, even with hidden files.
        (r#"{"pattern":"x.ts","include_hidden":true}"#, "No files found matching 'x.ts'"),
        (r#"{"pattern":"config","include_hidden":true}"#, "No files found matching 'config'"),
        (r#"{"pattern":"node_modules"}"#, "No files found matching 'node_modules'"),
        (
            r#"{"pattern":"{.git,.build,node_modules}","include_hidden":true,"include_directories":true}"#,
            "No files found matching '{.git,.build,node_modules}'",
        ),
        // Except if the search starts there.
        (r#"{"path":".git","pattern":"config"}"#, ".git/config"),
        (r#"{"path":"src/node_modules"}"#, "src/node_modules/x.ts"),
        (r#"{"path":".github"}"#, ".github/ci.yml"),
        // Directories on request, each before its entries.
        (
            r#"{"path":"src","include_directories":true}"#,
            "src/c.TS\nsrc/deep\nsrc/deep/d.tsx\nsrc/up",
        ),
        // A link is an entry and is not followed. A FIFO is not an entry.
        (r#"{"pattern":"passwd"}"#, "No files found matching 'passwd'"),
        (r#"{"pattern":"link.ts"}"#, "link.ts"),
        (r#"{"pattern":"fifo.ts"}"#, "No files found matching 'fifo.ts'"),
    ];
    check(&TREE, "find_files", &rows);
}

#[test]
fn find_files_reads_patterns_as_minimatch_does() {
    let rows = [
        // A pattern without a slash matches the base name at any depth, case-insensitively.
        (r#"{"pattern":"*.ts"}"#, "Z.ts\n_u.ts\nb.ts\nlink.ts\nsrc/c.TS\né.ts"),
        (r#"{"pattern":" *.TS\n"}"#, "Z.ts\n_u.ts\nb.ts\nlink.ts\nsrc/c.TS\né.ts"),
        (r#"{"pattern":"?.ts"}"#, "Z.ts\nb.ts\nsrc/c.TS\né.ts"),
        (r#"{"pattern":"[a-c].ts"}"#, "b.ts\nsrc/c.TS"),
        (r#"{"pattern":"[!a-y].ts"}"#, "Z.ts\né.ts"),
        (r#"{"pattern":"{b,c}.*"}"#, "b.ts\nsrc/c.TS"),
        (r#"{"pattern":"@(b|c).ts"}"#, "b.ts\nsrc/c.TS"),
        (r#"{"pattern":"with*"}"#, "with space.md"),
        (r#"{"pattern":"É.ts"}"#, "é.ts"),
        // A pattern with a slash matches the path from the workspace or from the start directory.
        (r#"{"pattern":"src/*.ts"}"#, "src/c.TS"),
        (r#"{"pattern":"src/**"}"#, "src/c.TS\nsrc/deep/d.tsx\nsrc/up"),
        (r#"{"pattern":"**/deep/*"}"#, "src/deep/d.tsx"),
        (r#"{"pattern":"deep/*"}"#, "No files found matching 'deep/*'"),
        (r#"{"pattern":"deep/*","path":"src"}"#, "src/deep/d.tsx"),
        (r#"{"pattern":"src/deep/*","path":"src"}"#, "src/deep/d.tsx"),
        (r#"{"pattern":"/b.ts"}"#, "b.ts"),
        (r#"{"pattern":"/c.ts"}"#, "No files found matching '/c.ts'"),
        (r#"{"pattern":"/c.ts","path":"src"}"#, "src/c.TS"),
        (r#"{"pattern":"/src/c.ts","path":"src"}"#, "src/c.TS"),
        (r#"{"pattern":"./b.ts"}"#, "No files found matching './b.ts'"),
        // A backslash is a slash, `!` negates, `#` starts a comment, and unclosed brackets are
        // literal.
        (r#"{"pattern":"src\\*.ts"}"#, "src/c.TS"),
        (r#"{"pattern":"!*.ts","path":"src"}"#, "src/deep/d.tsx\nsrc/up"),
        // minimatch negates a name in parentheses. quackd treats it as a group, like a shell.
        (r#"{"pattern":"!(*.ts)","path":"src"}"#, "src/deep/d.tsx\nsrc/up"),
        (r##"{"pattern":"#b.ts"}"##, "No files found matching '#b.ts'"),
        (r#"{"pattern":"[b.ts"}"#, "No files found matching '[b.ts'"),
        (r#"{"pattern":"{b.ts"}"#, "No files found matching '{b.ts'"),
        // The text repeats the pattern unchanged.
        (r#"{"pattern":" *.zig "}"#, "No files found matching ' *.zig '"),
        // Patterns with exponential cost are refused; the Node daemon expands them.
        (
            r#"{"pattern":"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"}"#,
            "Error: Invalid pattern: pattern stands for more than 1024 patterns",
        ),
    ];
    check(&TREE, "find_files", &rows);
}

#[test]
fn an_empty_workspace_has_a_text_of_its_own() {
    let setup = [Put::File(".env", b""), Put::Dir("empty")];
    let rows = [
        ("{}", NOTHING),
        (r#"{"pattern":"\t**/* "}"#, NOTHING),
        (r#"{"path":"empty"}"#, NOTHING),
        (r#"{"path":"empty","include_hidden":true}"#, NOTHING),
        (r#"{"include_hidden":true}"#, ".env"),
        (r#"{"pattern":"**"}"#, "No files found matching '**'"),
    ];
    check(&setup, "find_files", &rows);
}

/// The Node daemon stops at 200 in the order of the disk, and sometimes reports a cut that did not
/// happen.
#[test]
fn two_hundred_are_all_and_of_more_the_first_are_told() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let names: Vec<String> = (0..201).map(|n| format!("many/{n:03}")).collect();
    std::fs::create_dir(place.base.join("ws/many")).unwrap();
    let make = |name: &String| std::fs::write(place.base.join("ws").join(name), "").unwrap();
    names[1..].iter().for_each(make);
    assert_eq!(bench.voice(&place, "find_files", "{}", false), names[1..].join("\n"));
    make(&names[0]);
    let cut = names[..200].join("\n") + "\n[Results truncated at 200 entries]";
    assert_eq!(bench.voice(&place, "find_files", "{}", false), cut);
    let data = bench.quack_tool(&place, "find_files", "{}", false).unwrap();
    assert_eq!((&data["text"], &data["truncated"]), (&cut.into(), &true.into()));
}

#[test]
fn what_cannot_be_read_is_a_warning() {
    let mut setup = vec![Put::File("a", b"")];
    for name in ["c1", "c2", "c3", "c4", "c5", "c6"] {
        setup.extend([Put::Dir(name), Put::Mode(name, 0o000)]);
    }
    let block = "[Warning: Skipped 6 unreadable path(s)]\n[Warning] c1 (Permission denied)\n\
                 [Warning] c2 (Permission denied)\n[Warning] c3 (Permission denied)\n\
                 [Warning] c4 (Permission denied)\n[Warning] c5 (Permission denied)";
    let found = format!("a\n{block}");
    let rows = [
        ("find_files", "{}", &*found),
        // Without results only the warnings: the search may have missed some files.
        ("find_files", r#"{"pattern":"none"}"#, block),
        (
            "find_files",
            r#"{"path":"c1"}"#,
            "[Warning: Skipped 1 unreadable path(s)]\n[Warning] c1 (Permission denied)",
        ),
    ];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}
