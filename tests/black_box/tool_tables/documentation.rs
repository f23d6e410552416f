//! Every example of the documentation for clients and models, on a tree like the documented one.

use super::{Bench, Put, check, check_changes, check_rows};

const REPOSITORY: [Put; 12] = [
    Put::Lines(
        "src/daemon/request-handler.ts",
        &[(102, "  async voiceToolCall("), (575, "    const result = await executeVoiceTool(")],
    ),
    Put::Lines(
        "src/daemon/voice-tools.ts",
        &[
            (3, "interface Tool {"),
            (9, "  return \"Error: Workspace not accessible\";"),
            (10, "// a test, and attested"),
            (1011, "export async function executeVoiceTool("),
        ],
    ),
    Put::File("src/daemon/event-bus.ts", b""),
    Put::File("src/daemon/health.ts", b""),
    Put::File("src/daemon/main.ts", b"main();\n"),
    Put::File("src/daemon/metadata-store.ts", b""),
    Put::File("src/daemon/pi-process-manager.ts", b""),
    Put::File("src/daemon/pi-process.ts", b""),
    Put::File("src/daemon/socket-server.ts", b""),
    Put::File("docs/errors.md", b"Error: Workspace not accessible\ninterface\n"),
    Put::File("config.json", b"{}\n"),
    Put::File(".eslintrc", b""),
];

#[test]
fn the_examples_of_grep_search() {
    let rows = [
        (
            r#"{"pattern":"[vV]oiceTool\\w*\\("}"#,
            "src/daemon/request-handler.ts:102:  async voiceToolCall(\n\
             src/daemon/request-handler.ts:575:    const result = await executeVoiceTool(\n\
             src/daemon/voice-tools.ts:1011:export async function executeVoiceTool(\n",
        ),
        (
            r#"{"pattern":"executeVoiceTool"}"#,
            "src/daemon/request-handler.ts:575:    const result = await executeVoiceTool(\n\
             src/daemon/voice-tools.ts:1011:export async function executeVoiceTool(\n",
        ),
        (r#"{"pattern":"nobody wrote this"}"#, "No matches found"),
        (
            r#"{"pattern":"Error:","path":"src","include":"*.ts"}"#,
            "src/daemon/voice-tools.ts:9:  return \"Error: Workspace not accessible\";\n",
        ),
        (
            r#"{"pattern":"interface","include":"*.ts"}"#,
            "src/daemon/voice-tools.ts:3:interface Tool {\n",
        ),
        (r#"{"pattern":"main","include":"*.{js,tsx}"}"#, "No matches found"),
        (r#"{"pattern":"\\btest\\b"}"#, "src/daemon/voice-tools.ts:10:// a test, and attested\n"),
    ];
    check(&REPOSITORY, "grep_search", &rows);
    // The reason is one line of the regex parser. Clients know the text as a failure of grep.
    let rows = [(r#"{"pattern":"("}"#, "Error: grep failed with exit code 2: unclosed group")];
    check(&REPOSITORY, "grep_search", &rows);
}

#[test]
fn the_examples_of_find_files() {
    let daemon = "src/daemon/event-bus.ts\nsrc/daemon/health.ts\nsrc/daemon/main.ts\n\
                  src/daemon/metadata-store.ts\nsrc/daemon/pi-process-manager.ts\n\
                  src/daemon/pi-process.ts\nsrc/daemon/request-handler.ts\n\
                  src/daemon/socket-server.ts\nsrc/daemon/voice-tools.ts";
    let rows = [
        (r#"{"pattern":"**/*.ts"}"#, daemon),
        (r#"{"pattern":"*.py"}"#, "No files found matching '*.py'"),
        (r#"{"pattern":"**/config.json"}"#, "config.json"),
        (r#"{"pattern":".*rc","include_hidden":true}"#, ".eslintrc"),
        (r#"{"pattern":".*rc"}"#, "No files found matching '.*rc'"),
        (r#"{"pattern":"*.test.ts","path":"src/daemon"}"#, "No files found matching '*.test.ts'"),
        // The five spellings of one path.
        (r#"{"pattern":"main.ts"}"#, "src/daemon/main.ts"),
        (r#"{"pattern":"src/daemon/main.ts"}"#, "src/daemon/main.ts"),
        (r#"{"pattern":"daemon/main.ts","path":"src"}"#, "src/daemon/main.ts"),
        (r#"{"pattern":"/src/daemon/main.ts"}"#, "src/daemon/main.ts"),
        (r#"{"pattern":"/daemon/main.ts","path":"src"}"#, "src/daemon/main.ts"),
    ];
    check(&REPOSITORY, "find_files", &rows);
    let nothing = "Workspace scan complete: no non-hidden files found. Try include_hidden=true to list dotfiles.";
    check(&[Put::File(".env", b"")], "find_files", &[("{}", nothing)]);

    let bench = Bench::new();
    let place = bench.place(&[]);
    let names: Vec<String> = (1..=203).map(|n| format!("file-{n:03}.ts")).collect();
    for name in &names {
        std::fs::write(place.base.join("ws").join(name), "").unwrap();
    }
    let text = bench.voice(&place, "find_files", r#"{"pattern":"*.ts"}"#, false);
    assert_eq!(text, names[..200].join("\n") + "\n[Results truncated at 200 entries]");

    let setup = [
        Put::File("src/file1.ts", b""),
        Put::File("src/file2.ts", b""),
        Put::Dir("src/private"),
        Put::Mode("src/private", 0o000),
        // The documented example warns about a loop of links. quackd does not follow links here, so
        // there is no warning.
        Put::Link("src/symlink", "symlink"),
    ];
    let expected = "src/file1.ts\nsrc/file2.ts\n[Warning: Skipped 1 unreadable path(s)]\n\
                    [Warning] src/private (Permission denied)";
    let rows = [("find_files", r#"{"pattern":"*.ts"}"#, expected)];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}

#[test]
fn the_examples_of_calls_and_errors() {
    let escapes = "Error: Path escapes workspace root";
    let rows = [
        ("read_file", r#"{"path":"src/daemon/main.ts"}"#, "main();\n"),
        ("read_file", r#""src/daemon/main.ts""#, "main();\n"),
        ("read_file", r#"{"path":"src/missing.ts"}"#, "Error: File not found at 'src/missing.ts'"),
        ("read_file", r#"{"path":"../../etc/passwd"}"#, escapes),
        ("read_file", "{not json", "Error: Invalid JSON arguments"),
        ("write_file", r#""src/daemon/main.ts""#, "Error: Tool arguments must be a JSON object"),
        ("swim", "{}", "Error: Unknown tool 'swim'"),
        ("web_search", "{}", "Error: Missing required parameter 'query'"),
        ("grep_search", "{}", "Error: Missing required parameter 'pattern'"),
        ("find_files", r#"{"path":"nowhere"}"#, "Error: Search path not found: 'nowhere'"),
    ];
    check_rows(&Bench::new(), &REPOSITORY, &rows, false);

    let content = "x".repeat(1234);
    let call = format!(r#"{{"path":"src/config.ts","content":"{content}"}}"#);
    let wrote = "Successfully wrote 1234 bytes to src/config.ts";
    check_changes(&[], "write_file", &[(&call, wrote, ("src/config.ts", Some(&content)))]);

    let refused = "Error: write_file is disabled in safe mode";
    let rows = [("write_file", r#"{"path":"src/config.ts","content":""}"#, refused)];
    check_rows(&Bench::new(), &[], &rows, true);
}
