//! bash: one command line in the workspace, and the lines about its end.

use super::{Bench, Put, check};
use serde_json::json;

const SETUP: [Put; 2] = [Put::File("f", b"content\n"), Put::Dir("d")];

#[test]
fn bash_reads_its_parameters() {
    let missing = "Error: Missing required parameter 'command'";
    let rows = [
        (r#"{"command":"echo hi"}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"cmd":"echo hi"}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"command":" ","cmd":"echo hi"}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"command":["ls"],"cmd":"echo hi"}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"cmd":"false","command":"echo hi"}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"command":"  echo hi  "}"#, "hi\n\n[Exit code: 0]"),
        ("{}", missing),
        (r#"{"command":"\n\t"}"#, missing),
        (r#"{"command":null}"#, missing),
        (r#"{"script":"ls"}"#, missing),
        // The call's own timeout in milliseconds; a value that is not a number is ignored.
        (r#"{"command":"echo hi","timeout_ms":20000}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"command":"echo hi","timeout_ms":"1"}"#, "hi\n\n[Exit code: 0]"),
        (r#"{"command":"echo hi","timeout_ms":-1}"#, "hi\n\n[Exit code: 0]"),
        (
            // Printed in tenths of a second: part of the time may already have passed.
            r#"{"command":"printf begun; sleep 60","timeout_ms":1040}"#,
            "begun\n[Process timed out after 1s and was terminated]\n[Exit code: unknown]",
        ),
        (
            r#"{"command":"trap 'echo ended; exit 3' TERM; sleep 60 & wait","timeout_ms":1040}"#,
            "ended\n\n[Process timed out after 1s and was terminated]\n[Exit code: 3]",
        ),
    ];
    check(&SETUP, "bash", &rows);
}

#[test]
fn bash_tells_both_streams_and_the_exit_code() {
    let rows = [
        // stdout, a newline if there was any output, stderr, and always a newline before the last
        // line.
        ("\"true\"", "\n[Exit code: 0]"),
        ("\"printf hi\"", "hi\n[Exit code: 0]"),
        ("\"echo hi\"", "hi\n\n[Exit code: 0]"),
        ("\"echo hi; echo err >&2\"", "hi\n\nerr\n\n[Exit code: 0]"),
        ("\"echo err >&2; echo hi\"", "hi\n\nerr\n\n[Exit code: 0]"),
        ("\"printf hi; printf err >&2\"", "hi\nerr\n[Exit code: 0]"),
        ("\"printf err >&2\"", "err\n[Exit code: 0]"),
        ("\"echo; echo\"", "\n\n\n[Exit code: 0]"),
        // The end of the command.
        ("\"false\"", "\n[Exit code: 1]"),
        ("\"exit 255\"", "\n[Exit code: 255]"),
        ("\"printf x; exit 3\"", "x\n[Exit code: 3]"),
        ("\"kill -9 $$\"", "\n[Exit code: unknown]"),
        ("\"kill -TERM $$\"", "\n[Exit code: unknown]"),
        (
            "\"none-of-this\"",
            "/bin/bash: line 1: none-of-this: command not found\n\n[Exit code: 127]",
        ),
        // Output is bytes. Invalid UTF-8 is replaced, and everything else is unchanged.
        (r#""printf 'a\\377b\\302'""#, "a\u{fffd}b\u{fffd}\n[Exit code: 0]"),
        // Terminal sequences are removed, and control characters except line ends and tabs.
        (r#""printf 'a\\0b\\r\\n\\033[1m\\tc\\a\\b'""#, "ab\r\n\tc\n[Exit code: 0]"),
        (r#""printf '\\033[31mred\\033[0m \\033]0;title\\007x\\033(B'""#, "red x\n[Exit code: 0]"),
        (r#""printf '\\033]8;;http://a/\\033\\134link' >&2; exit 2""#, "link\n[Exit code: 2]"),
        // An incomplete sequence hides no text.
        (r#""printf '\\033]0;title\\nline\\n'""#, "0;title\nline\n\n[Exit code: 0]"),
        (r#""printf '\\033]0;title'; printf err >&2""#, "0;title\nerr\n[Exit code: 0]"),
        // Parts of characters are not joined, neither across a sequence nor across the streams.
        (r#""printf '\\342\\202\\033[m\\254'""#, "\u{fffd}\u{fffd}\n[Exit code: 0]"),
        (r#""printf '\\342\\202'; printf '\\254' >&2""#, "\u{fffd}\n\u{fffd}\n[Exit code: 0]"),
        (r#""printf '\\355\\240\\200'""#, "\u{fffd}\u{fffd}\u{fffd}\n[Exit code: 0]"),
        (r#""printf '\\342\\200\\250'""#, "\u{2028}\n[Exit code: 0]"),
        (r#""printf '\\357\\273\\277x'""#, "\u{feff}x\n[Exit code: 0]"),
    ];
    check(&SETUP, "bash", &rows);
}

#[test]
fn bash_is_the_shell_that_callers_expect() {
    let rows = [
        ("\"pwd\"", "{ws}\n\n[Exit code: 0]"),
        ("\"cat f\"", "content\n\n[Exit code: 0]"),
        // Calls share no state.
        ("\"cd d; x=1; pwd\"", "{ws}/d\n\n[Exit code: 0]"),
        ("\"pwd; echo $x.\"", "{ws}\n.\n\n[Exit code: 0]"),
        ("\"echo $0\"", "/bin/bash\n\n[Exit code: 0]"),
        (r#""a=(1 2); [[ ${a[1]} == 2 ]] && echo bash""#, "bash\n\n[Exit code: 0]"),
        (r#""for i in 1 2\ndo\n  echo $i\ndone""#, "1\n2\n\n[Exit code: 0]"),
        (r#""cat <<'END'\n$x 'é'\nEND""#, "$x 'é'\n\n[Exit code: 0]"),
        ("\"echo a | tr a b && echo c || echo d\"", "b\nc\n\n[Exit code: 0]"),
        // A command is never an option of the shell.
        ("\"-V\"", "/bin/bash: line 1: -V: command not found\n\n[Exit code: 127]"),
        ("\"--version\"", "/bin/bash: line 1: --version: command not found\n\n[Exit code: 127]"),
        // The shell is neither a login shell nor interactive. The Node daemon starts a login shell
        // for every call.
        ("\"shopt -q login_shell; echo $?\"", "1\n\n[Exit code: 0]"),
        ("\"echo $- | grep -c i\"", "0\n\n[Exit code: 1]"),
        // stdin is empty and at its end. With an open pipe, a reader would block until the timeout.
        ("\"cat\"", "\n[Exit code: 0]"),
        ("\"read x; echo $?\"", "1\n\n[Exit code: 0]"),
        // The call ends when the shell ends, not when the last holder of its pipes does.
        (
            "\"(sleep 61 &) >/dev/null 2>&1; echo hi\"",
            "hi\n\n[1 background process was ended]\n[Exit code: 0]",
        ),
        (
            "\"(sleep 61 & sleep 62 &) >/dev/null 2>&1; exit 4\"",
            "\n[2 background processes were ended]\n[Exit code: 4]",
        ),
    ];
    check(&SETUP, "bash", &rows);
}

#[test]
fn who_holds_the_output_is_named_before_it_is_ended() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let data = bench.quack_tool(&place, "bash", r#""sleep 61 & echo $!""#, false).unwrap();
    let text = data["text"].as_str().unwrap();
    let pid = text.split_once('\n').unwrap().0;
    let expected = format!(
        "{pid}\n\n[Output was still held open by: sleep 61 (pid {pid})]\n\
         [1 background process was ended]\n[Exit code: 0]"
    );
    assert_eq!(text, expected);
    assert_eq!((&data["isError"], &data["backgroundEnded"]), (&json!(false), &json!(1)));

    let five = r#""for i in 1 2 3 4 5; do sleep 6$i & done""#;
    let text = bench.voice(&place, "bash", five, false);
    assert!(text.starts_with("\n[Output was still held open by: sleep 61 (pid "), "{text}");
    let end = "), and 2 more]\n[5 background processes were ended]\n[Exit code: 0]";
    assert!(text.ends_with(end), "{text}");
}

/// The Node daemon keeps only the first 102,400 bytes; the important part is often at the end.
#[test]
fn long_output_keeps_102400_bytes_of_its_ends() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let exact = bench.voice(&place, "bash", r#""head -c 102400 /dev/zero | tr '\\0' x""#, false);
    assert!(exact == format!("{}\n[Exit code: 0]", "x".repeat(102_400)));

    let command = r#""printf a; head -c 102399 /dev/zero | tr '\\0' x; printf z; exit 5""#;
    let expected = |path: &str| {
        let half = "x".repeat(51_199);
        format!(
            "a{half}\n[... 1 bytes omitted; full output: {path}]\n{half}z\n\
             [Output truncated at 100KB]\n[Exit code: 5]"
        )
    };
    let voice = bench.voice(&place, "bash", command, false);
    let path = voice.split_once("full output: ").unwrap().1.split_once(']').unwrap().0;
    assert!(voice == expected(path), "{}", voice.replace("xxxxxxxx", ""));
    let read = bench.voice(&place, "read_file", &json!(path).to_string(), false);
    assert!(read == format!("a{}z", "x".repeat(102_399)), "{} bytes", read.len());

    let data = bench.quack_tool(&place, "bash", command, false).unwrap();
    assert!(data["text"] == expected(data["fullOutputPath"].as_str().unwrap()));
    let told = (&data["truncated"], &data["isError"], &data["exitCode"]);
    assert_eq!(told, (&json!(true), &json!(true), &json!(5)));

    // The cut is between characters, and counts the bytes of the printed text.
    let command = r#""printf x; yes € | head -n 60000 | tr -d '\\n'""#;
    let text = bench.voice(&place, "bash", command, false);
    let half = "€".repeat(17_066);
    assert!(text.starts_with(&format!("x{half}\n[... 77604 bytes omitted; full output: ")));
    assert!(text.ends_with(&format!("]\n{half}\n[Output truncated at 100KB]\n[Exit code: 0]")));
}
