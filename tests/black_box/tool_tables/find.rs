//! find: quackd's own tool for names. Globs, kinds, sizes, times, order, pages.

use super::{Bench, Put};
use serde_json::{Value, json};

const TREE: [Put; 12] = [
    Put::File("b.ts", b"12345"),
    Put::File("a-b/f", b""),
    Put::File("a/f", b"1"),
    Put::File("src/c.TS", b""),
    Put::File("src/deep/d.tsx", b"123"),
    Put::File("src/[x].md", b""),
    Put::File(".env", b""),
    Put::File(".ignore", b"*.log\n"),
    Put::File("x.log", b""),
    Put::File(".git/config", b""),
    Put::Link("src/link", "../b.ts"),
    Put::Fifo("fifo"),
];

const EVERYTHING: &str = "\
a-b/f
a/f
b.ts
src/[x].md
src/c.TS
src/deep/d.tsx
src/link";

#[test]
fn find_reads_its_parameters() {
    let rows = [
        ("{}", EVERYTHING),
        (r#"{"pattern":"**/*"}"#, EVERYTHING),
        (r#"{"path":null,"pattern":" "}"#, "No files found"),
        ("\"*.ts\"", "b.ts"),
        (r#"{"glob":"*.ts"}"#, "b.ts"),
        (r#"{"pattern":["*.tsx","*.md"]}"#, "src/[x].md\nsrc/deep/d.tsx"),
        (r#"{"pattern":"*.ts","case":"insensitive"}"#, "b.ts\nsrc/c.TS"),
        (r#"{"pattern":"*.{ts,tsx}"}"#, "b.ts\nsrc/deep/d.tsx"),
        (r#"{"pattern":"src/**"}"#, "src/[x].md\nsrc/c.TS\nsrc/deep/d.tsx\nsrc/link"),
        (r#"{"pattern":"{ws}/src/*.md"}"#, "src/[x].md"),
        (r#"{"pattern":"src/[x].md"}"#, "src/[x].md"),
        (r#"{"pattern":"d.tsx","path":"src"}"#, "src/deep/d.tsx"),
        (r#"{"path":["a","src/deep"]}"#, "a/f\nsrc/deep/d.tsx"),
        // Kinds; a directory ends with a slash.
        (r#"{"kind":"dir"}"#, "a/\na-b/\nsrc/\nsrc/deep/"),
        (r#"{"type":["l"]}"#, "src/link"),
        (r#"{"kind":"file","path":"src","max_depth":1}"#, "src/[x].md\nsrc/c.TS"),
        (r#"{"include_directories":"true","path":"a"}"#, "a/f"),
        // Ignored and hidden files.
        (r#"{"pattern":"*.log"}"#, "No files found"),
        (r#"{"pattern":"*.log","no_ignore":true}"#, "x.log"),
        (r#"{"pattern":".env"}"#, ".env"),
        (r#"{"pattern":"config","hidden":true}"#, "No files found"),
        // Sizes and order.
        (r#"{"min_size":3}"#, "b.ts\nsrc/deep/d.tsx"),
        (r#"{"min_size":"1","max_size":"3"}"#, "a/f\nsrc/deep/d.tsx"),
        (r#"{"min_size":1,"sort":"size"}"#, "b.ts\nsrc/deep/d.tsx\na/f"),
        (r#"{"newer":"1h","pattern":"b.ts"}"#, "b.ts"),
        (r#"{"older":"1h","pattern":"b.ts"}"#, "No files found"),
        // Refused arguments.
        (r#"{"pattern":"["}"#, "Error: Invalid glob '[': unclosed character class; missing ']'"),
        (r#"{"pattern":"/etc/*"}"#, "Error: Glob '/etc/*' is outside the workspace"),
        (r#"{"path":"../ws2"}"#, "Error: Path escapes workspace root"),
        (r#"{"path":"none"}"#, "Error: Search path not found: 'none'"),
        (r#"{"path":"fifo"}"#, "Error: Cannot search 'fifo': not a regular file (fifo)"),
        (r#"{"patern":"*"}"#, "Error: Unknown parameter 'patern', did you mean 'pattern'?"),
        (r#"{"kind":"socket"}"#, "Error: Parameter 'kind' must be some of file, dir, symlink, any"),
        (
            r#"{"newer":"yesterday"}"#,
            "Error: Parameter 'modified_after' must be an age such as 30m, 2h or 7d, or a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z",
        ),
        (r#"{"min_size":-1}"#, "Error: Parameter 'min_size' must be a whole number"),
    ];
    // `check` does not compare the notes of an empty answer.
    let bench = Bench::new();
    let place = bench.place(&TREE);
    for (arguments, expected) in rows {
        let text = bench.voice(&place, "find", arguments, false);
        let data = bench.quack_tool(&place, "find", arguments, false).unwrap();
        assert_eq!(data["text"], text, "{arguments}");
        let shown = match text.split_once('\n') {
            Some((first, _)) if expected == "No files found" => first,
            _ => &text,
        };
        assert_eq!(shown, expected, "{arguments}");
    }
    place.check_around();
}

#[test]
fn find_pages_and_counts() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let names: Vec<String> = (0..201).map(|n| format!("{n:03}")).collect();
    for name in &names[1..] {
        std::fs::write(place.base.join("ws").join(name), "").unwrap();
    }
    let call = |arguments: Value| {
        let data = bench.quack_tool(&place, "find", &arguments.to_string(), false).unwrap();
        (data["text"].as_str().unwrap().to_owned(), data["data"].clone())
    };
    assert_eq!(call(json!({})).0, names[1..].join("\n"));
    std::fs::write(place.base.join("ws").join(&names[0]), "").unwrap();
    let (text, data) = call(json!({}));
    assert_eq!(
        text,
        format!("{}\n[200 of 201 shown; go on with offset 200]", names[..200].join("\n"))
    );
    assert_eq!((&data["total"], &data["totalExact"]), (&json!(201), &json!(true)));
    assert_eq!(call(json!({"offset": 200})).0, "200");
    let (_, next) = call(json!({"cursor": data["cursor"]}));
    assert_eq!(next["entries"], json!([{"path": "200", "kind": "file"}]));
    let past = "No more results\n[Note: the offset is past the end; there are 201 results]";
    assert_eq!(call(json!({"offset": 201})).0, past);
}

#[test]
fn find_tells_sizes_and_times_and_finds_by_letters() {
    let bench = Bench::new();
    let place = bench.place(&[
        Put::File("src/deep/search.rs", b"12345"),
        Put::Mode("src/deep/search.rs", 0o640),
        Put::File("other", b""),
    ]);
    let call = |arguments: &str| bench.quack_tool(&place, "find", arguments, false).unwrap();
    let data = call(r#"{"pattern":"*.rs","long":true}"#);
    let text = data["text"].as_str().unwrap();
    assert!(
        text.starts_with("-rw-r-----          5 20") && text.ends_with("Z src/deep/search.rs"),
        "{text}"
    );
    let entry = &data["data"]["entries"][0];
    assert_eq!(
        (&entry["size"], &entry["mode"], &entry["kind"]),
        (&json!(5), &json!("0640"), &json!("file"))
    );
    let data = call(r#"{"pattern":"ddsrch","fuzzy":true}"#);
    assert_eq!(data["text"].as_str().unwrap().lines().next(), Some("No files found"));
    let data = call(r#"{"pattern":"dsrch","fuzzy":true}"#);
    assert_eq!(data["text"], "src/deep/search.rs");
    assert!(data["data"]["entries"][0]["score"].is_u64());
}
