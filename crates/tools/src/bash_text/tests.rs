//! Tests the text of every kind of exit, without running a command.

use super::*;
use quackd_process::Usage;

const KIB: usize = 1024;

/// A stream as the process library captures it: 64 KiB from each end.
fn captured(bytes: &[u8]) -> Captured {
    let (head, rest) = bytes.split_at(bytes.len().min(64 * KIB));
    let tail = &rest[rest.len().saturating_sub(64 * KIB)..];
    Captured { head: head.to_vec(), tail: tail.to_vec(), total: bytes.len() as u64 }
}

fn finished(stdout: &[u8], stderr: &[u8]) -> Finished {
    Finished {
        exit: Exit::Code(0),
        usage: Usage {
            user: Duration::from_millis(3),
            system: Duration::from_micros(2600),
            max_rss_kb: 4096,
        },
        ended_by: EndedBy::Itself,
        ceiling: None,
        stdout: captured(stdout),
        stderr: captured(stderr),
        background_ended: 0,
        stopped: 0,
        is_gone: true,
        survivors: 0,
        output_open: false,
        output_held_by: Vec::new(),
        duration: Duration::ZERO,
        spill: None,
    }
}

fn answer(finished: Finished) -> Output {
    compose(CommandSummary {
        finished,
        limit: Duration::from_secs(30),
        denials: Vec::new(),
        denied: None,
    })
}

#[test]
fn streams_are_joined_and_the_exit_code_is_last() {
    let cases: [(&[u8], &[u8], &str); 7] = [
        (b"", b"", "\n[Exit code: 0]"),
        (b"hi", b"", "hi\n[Exit code: 0]"),
        (b"hi\n", b"", "hi\n\n[Exit code: 0]"),
        (b"", b"err\n", "err\n\n[Exit code: 0]"),
        (b"hi\n", b"err\n", "hi\n\nerr\n\n[Exit code: 0]"),
        (b"hi", b"err", "hi\nerr\n[Exit code: 0]"),
        (b"\xffa\r\n", b"", "\u{fffd}a\r\n\n[Exit code: 0]"),
    ];
    for (stdout, stderr, expected) in cases {
        let output = answer(finished(stdout, stderr));
        let report = ToolReport {
            exit_code: Some(0),
            user_ms: Some(3),
            system_ms: Some(2),
            max_rss_kb: Some(4096),
            ..ToolReport::default()
        };
        let closing = output.closing.clone();
        let expected = Output { text: expected.into(), report, data: None, update: None, closing };
        assert_eq!(output, expected);
    }
}

#[test]
fn every_ending_has_its_lines_in_order() {
    let cases = [
        (Exit::Code(3), EndedBy::Itself, 0, "x\n[Exit code: 3]"),
        (Exit::Signal(9), EndedBy::Itself, 0, "x\n[Exit code: unknown]"),
        (
            Exit::Signal(15),
            EndedBy::Deadline,
            0,
            "x\n[Process timed out after 30s and was terminated]\n[Exit code: unknown]",
        ),
        (
            Exit::Code(0),
            EndedBy::Deadline,
            0,
            "x\n[Process timed out after 30s and was terminated]\n[Exit code: 0]",
        ),
        (Exit::Signal(15), EndedBy::Abort, 0, "x\n[Process aborted]\n[Exit code: unknown]"),
        (Exit::Code(0), EndedBy::Itself, 1, "x\n[1 background process was ended]\n[Exit code: 0]"),
        (
            Exit::Code(0),
            EndedBy::Itself,
            2,
            "x\n[2 background processes were ended]\n[Exit code: 0]",
        ),
    ];
    for (exit, ended_by, background_ended, expected) in cases {
        let output = answer(Finished { exit, ended_by, background_ended, ..finished(b"x", b"") });
        assert_eq!(output.text, expected);
        let is_error = exit != Exit::Code(0) || ended_by != EndedBy::Itself;
        assert_eq!(output.report.is_error, is_error, "{expected}");
        assert_eq!(output.report.timed_out, ended_by == EndedBy::Deadline);
        assert_eq!(output.report.aborted, ended_by == EndedBy::Abort);
        assert_eq!(output.report.background_ended, background_ended);
    }
    let killed = answer(Finished { exit: Exit::Signal(9), ..finished(b"", b"") });
    assert_eq!((killed.report.exit_code, killed.report.signal), (None, Some(9)));
}

#[test]
fn the_ceiling_that_ended_a_command_is_named() {
    let memory = Ceiling::SessionMemory { limit: 8 << 30, used: 7 << 30 };
    let cases = [
        (
            EndedBy::Processes,
            Ceiling::Processes { limit: 512 },
            CeilingKind::Processes,
            "[Process limit of 512 exceeded; the command was ended]",
        ),
        (
            EndedBy::Memory,
            memory,
            CeilingKind::SessionMemory,
            "[Memory limit of the session, 8192 MiB (limits.session_memory_mb), exceeded; this command had most, 7168 \
             MiB, and was ended]",
        ),
        (
            EndedBy::Itself,
            Ceiling::SessionMemoryReached { limit: 8 << 30, is_own: false },
            CeilingKind::SessionMemory,
            "[Memory limit of the session, 8192 MiB (limits.session_memory_mb), reached: the kernel killed a process, \
             probably of this command]",
        ),
        (
            EndedBy::Itself,
            Ceiling::SessionMemoryFull,
            CeilingKind::SessionMemory,
            "[The memory of the session is full: files in /tmp and /dev/shm, shared memory segments; `quack restart` \
             frees it]",
        ),
        (
            EndedBy::Itself,
            Ceiling::Memory,
            CeilingKind::Memory,
            "[Memory ran out while the command ran; the kernel probably killed it]",
        ),
    ];
    for (ended_by, ceiling, kind, line) in cases {
        let (exit, ceiling) = (Exit::Signal(9), Some(ceiling));
        let output = answer(Finished { exit, ended_by, ceiling, ..finished(b"x", b"") });
        assert_eq!(output.text, format!("x\n{line}\n[Exit code: unknown]"));
        assert!(output.report.is_error && !output.report.timed_out && !output.report.aborted);
        assert_eq!(output.report.ceiling, Some(kind));
    }
    // Only the kernel's count shows that a process of a pipe was killed.
    let ceiling = Some(Ceiling::SessionMemoryReached { limit: 8 << 30, is_own: true });
    let output = answer(Finished { ceiling, ..finished(b"0", b"") });
    let line = "[Memory limit of the session, 8192 MiB (limits.session_memory_mb), reached: the kernel killed a process \
        of this command]";
    assert_eq!(output.text, format!("0\n{line}\n[Exit code: 0]"));
    assert!(output.report.is_error);
}

#[test]
fn output_of_exactly_the_limit_is_whole_and_one_byte_more_is_cut() {
    let exact = answer(finished(&[b'x'; 102_400], b""));
    assert_eq!(exact.text, format!("{}\n[Exit code: 0]", "x".repeat(102_400)));
    assert!(!exact.report.truncated);

    let cut = answer(finished(&[b'x'; 102_401], b""));
    let half = "x".repeat(51_200);
    assert_eq!(
        cut.text,
        format!(
            "{half}\n[... 1 bytes omitted]\n{half}\n[Output truncated at 100KB]\n[Exit code: 0]"
        )
    );
    assert!(cut.report.truncated);
}

/// Joins and cuts the streams in a simple way.
fn expected_text(stdout: &[u8], stderr: &[u8]) -> String {
    let whole = [stdout, b"\n", stderr].concat();
    let (head, tail) = (&whole[..51_200], &whole[whole.len() - 51_200..]);
    format!(
        "{}\n[... {} bytes omitted]\n{}\n[Output truncated at 100KB]\n[Exit code: 0]",
        str::from_utf8(head).unwrap(),
        whole.len() - 102_400,
        str::from_utf8(tail).unwrap(),
    )
}

#[test]
fn head_and_tail_are_the_ends_of_both_streams_together_wherever_the_middle_was_lost() {
    let sizes = [1, 10 * KIB, 51_200, 64 * KIB, 70 * KIB, 128 * KIB, 128 * KIB + 1, 300 * KIB];
    let text = |n: usize, offset: usize| -> Vec<u8> {
        (0..n).map(|i| b'a' + u8::try_from((i / 7 + offset) % 26).unwrap()).collect()
    };
    for n_stdout in sizes {
        for n_stderr in sizes {
            if n_stdout + n_stderr < 102_400 {
                continue;
            }
            let (stdout, stderr) = (text(n_stdout, 0), text(n_stderr, 13));
            let output = answer(finished(&stdout, &stderr));
            // Compared by `==`: a difference would print hundreds of kilobytes.
            let is_equal = output.text == expected_text(&stdout, &stderr);
            assert!(is_equal, "{n_stdout} bytes of stdout, {n_stderr} of stderr");
        }
    }
}

#[test]
fn the_cut_is_between_characters_and_what_is_shown_is_within_the_limit() {
    for unit in ["€", "🦆", "ä"] {
        let output = answer(finished(format!("x{}", unit.repeat(100_000)).as_bytes(), b""));
        assert!(!output.text.contains('\u{fffd}'), "{unit}");
        assert!(output.text.len() < 102_400 + 200, "{unit}: {}", output.text.len());
    }
    // Each of these bytes is shown as three.
    let binary = answer(finished(&[0xff; 60_000], b""));
    assert!(binary.report.truncated);
    assert!(binary.text.len() < 102_400 + 200, "{}", binary.text.len());
    let marker = format!("\n[... {} bytes omitted]\n", 60_000 - 2 * 17_066);
    assert!(binary.text.contains(&marker));
}

#[test]
fn the_place_of_the_rest_is_told() {
    let path = std::path::Path::new("/run/s/bash-1.log");
    let spilled = |complete| Spilled { path: path.into(), bytes: 70, complete, disk_is_low: false };
    let long = [b'x'; 200_000];
    let whole = answer(Finished { spill: Some(spilled(true)), ..finished(&long, b"") });
    assert!(whole.text.contains("\n[... 97600 bytes omitted; full output: /run/s/bash-1.log]\n"));
    assert_eq!(whole.report.full_output_path.as_deref(), Some("/run/s/bash-1.log"));
    let part = answer(Finished { spill: Some(spilled(false)), ..finished(&long, b"") });
    let marker = "\n[... 97600 bytes omitted; first 70 bytes of the output: /run/s/bash-1.log]\n";
    assert!(part.text.contains(marker));
    assert_eq!(part.report.full_output_path, None);
    for (bytes, place) in [
        (0, "; not kept in a file: the disk is almost full]\n"),
        (70, "; first 70 bytes of the output: /run/s/bash-1.log; the disk is almost full]\n"),
    ] {
        let low = Spilled { bytes, disk_is_low: true, ..spilled(false) };
        let low = answer(Finished { spill: Some(low), ..finished(&long, b"") });
        assert!(low.text.contains(&format!("\n[... 97600 bytes omitted{place}")), "{place}");
    }
}

#[test]
fn who_held_the_output_and_who_could_not_be_ended_is_told() {
    let holders = |n: u32| -> Vec<Holder> {
        (1..=n).map(|pid| Holder { pid, command: format!("p{pid}") }).collect()
    };
    let cases: [(Vec<Holder>, &str); 4] = [
        (vec![], "[Output was still held open]"),
        (holders(1), "[Output was still held open by: p1 (pid 1)]"),
        (
            vec![Holder { pid: 7, command: String::new() }, Holder { pid: 8, command: "a".into() }],
            "[Output was still held open by: pid 7, a (pid 8)]",
        ),
        (
            holders(8),
            "[Output was still held open by: p1 (pid 1), p2 (pid 2), p3 (pid 3), and 5 more]",
        ),
    ];
    for (output_held_by, line) in cases {
        let pids: Vec<u32> = output_held_by.iter().map(|holder| holder.pid).collect();
        let open = Finished {
            output_open: true,
            output_held_by,
            background_ended: 2,
            ..finished(b"x", b"")
        };
        let output = answer(open);
        assert_eq!(
            output.text,
            format!("x\n{line}\n[2 background processes were ended]\n[Exit code: 0]")
        );
        assert!(output.report.output_open && !output.report.is_error);
        assert_eq!(output.report.background_pids, pids);
    }
    for (survivors, line) in
        [(1, "[1 process could not be ended]"), (3, "[3 processes could not be ended]")]
    {
        let output = answer(Finished { survivors, background_ended: 1, ..finished(b"x", b"") });
        let expected = format!("x\n[1 background process was ended]\n{line}\n[Exit code: 0]");
        assert_eq!((output.text, output.report.survivors), (expected, survivors));
    }
}

#[test]
fn text_is_the_same_wherever_its_bytes_were_read() {
    let bytes =
        b"a\xe2\x82\xac\xff\xe2\x82(\xf0\x9f\x98\x80\xed\xa0\x80\x1b[31mred\x1b]0;t\x07\xf0\x9f";
    let expected = "a€\u{fffd}\u{fffd}(😀\u{fffd}\u{fffd}\u{fffd}red\u{fffd}\n[Exit code: 0]";
    for cut in 0..=bytes.len() {
        let (head, tail) = (bytes[..cut].to_vec(), bytes[cut..].to_vec());
        let stdout = Captured { head, tail, total: bytes.len() as u64 };
        assert_eq!(answer(Finished { stdout, ..finished(b"", b"") }).text, expected, "{cut}");
    }
}

#[test]
fn nothing_of_what_the_cut_tears_is_left() {
    for unit in ["\x1b[38;5;196mé", "\x1b]8;;http://localhost/a/long/link\x1b\\€", "🦆\x1b[0m"]
    {
        let letter = unit.chars().find(|c| !c.is_ascii()).unwrap();
        for phase in 0..unit.len() {
            let bytes = format!("{}{}", "x".repeat(phase), unit.repeat(20_000));
            let output = answer(finished(bytes.as_bytes(), b""));
            let (front, back) = output.text.split_once("\n[... ").unwrap();
            let (_, back) = back.split_once(" bytes omitted]\n").unwrap();
            let (back, _) = back.split_once("\n[Output truncated").unwrap();
            for shown in [front.trim_start_matches('x'), back] {
                assert!(
                    1000 < shown.len() && shown.chars().all(|c| c == letter),
                    "{unit:?} {phase}"
                );
            }
        }
    }
}

#[test]
fn what_is_short_without_its_colours_is_whole_and_counts_are_of_what_was_printed() {
    let coloured = "\x1b[31mx\x1b[0m".repeat(12_000);
    let output = answer(finished(coloured.as_bytes(), b""));
    assert_eq!(output.text, format!("{}\n[Exit code: 0]", "x".repeat(12_000)));
    assert!(!output.report.truncated);

    let longer = "\x1b[31mx\x1b[0m".repeat(30_000);
    let output = answer(finished(longer.as_bytes(), b""));
    let (front, back) = output.text.split_once("\n[... ").unwrap();
    let (omitted, _) = back.split_once(" bytes").unwrap();
    // All bytes except the missing ones, and except the lead of the tail, which only locates the end of a
    // sequence.
    let kept = 64 * KIB + 60 * KIB;
    let omitted: usize = omitted.parse().unwrap();
    assert!((longer.len() - kept..longer.len() - kept + 20).contains(&omitted), "{omitted}");
    assert_eq!(front.len(), (64 * KIB).div_ceil(10));
}
