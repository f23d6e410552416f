//! Files of old versions, lines that readers skip or keep, and random damage.

use super::*;
use proptest::prelude::*;

#[test]
fn files_of_version_1_are_converted() {
    let file = concat!(
        r#"{"type":"session","id":"old","timestamp":"2025-11-01T00:00:00.000Z","cwd":"/w","provider":"p"}"#,
        "\n",
        r#"{"type":"message","timestamp":"t","message":{"role":"user","content":"one","timestamp":1}}"#,
        "\n",
        r#"{"type":"message","timestamp":"t","message":{"role":"user","content":"two","timestamp":2},"more":1}"#,
        "\n",
        r#"{"type":"compaction","timestamp":"t","summary":"s","firstKeptEntryIndex":2,"tokensBefore":9}"#,
        "\n",
        r#"{"type":"message","timestamp":"t","message":{"role":"hookMessage","customType":"h","content":"three","display":true,"timestamp":3}}"#,
        "\n",
    );
    let transcript = Transcript::read(file.as_bytes()).unwrap();
    assert!(transcript.needs_rewrite());
    assert_eq!(transcript.problems().total(), 0);
    assert_eq!(texts(&transcript), ["summary: s", "two", "custom: three"]);
    let rewritten: String = transcript.lines().collect();
    let again = Transcript::read(rewritten.as_bytes()).unwrap();
    assert!(
        !again.needs_rewrite() && again.header().version == VERSION && again.header().id == "old"
    );
    assert_eq!(again.context(), transcript.context());
    assert_eq!(again.messages(), transcript.messages());
    assert!(rewritten.contains("\"more\":1"), "unknown members stay");
}

#[test]
fn files_of_version_2_are_converted() {
    let file = concat!(
        r#"{"type":"session","version":2,"id":"old","timestamp":"t","cwd":"/w"}"#,
        "\n",
        r#"{"type":"message","id":"aaaaaaaa","parentId":null,"timestamp":"t","message":{"role":"hookMessage","customType":"h","content":"x","display":true,"timestamp":3}}"#,
        "\n",
        r#"{"type":"message","id":"bbbbbbbb","parentId":"aaaaaaaa","timestamp":"t","message":{"role":"user","content":"y","timestamp":3}}"#,
        "\n",
    );
    let transcript = Transcript::read(file.as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["custom: x", "y"]);
    assert!(transcript.needs_rewrite() && transcript.leaf() == Some("bbbbbbbb"));
    assert!(!transcript.lines().any(|it| it.contains("hookMessage")));
}

#[test]
fn files_without_a_header_are_refused() {
    let (_, file) = written([user("a")]);
    let entry = file.split_once('\n').unwrap().1;
    for text in [entry, "x\n", "{}\n", "{\"type\":\"session\"}\n", "[1]", "\u{feff}{}"] {
        assert_eq!(
            Transcript::read(text.as_bytes()).unwrap_err(),
            TranscriptError::NoHeader,
            "{text}"
        );
    }
    for text in ["", "\n", "\r\n \n"] {
        assert_eq!(Transcript::read(text.as_bytes()).unwrap_err(), TranscriptError::Empty);
    }
}

#[test]
fn half_surrogate_pairs_and_invalid_utf8_lose_no_entry() {
    let line = br#"{"type":"message","id":"a","parentId":null,"timestamp":"t","message":{"role":"user","content":"\ud83d \ude00 \ud83d\ude00 \\ud83d \u00e9 X","timestamp":1}}"#;
    let mut file = header().to_line().into_bytes();
    file.extend(line.iter().map(|byte| if *byte == b'X' { 0xff } else { *byte }));
    let transcript = Transcript::read(&file).unwrap();
    assert_eq!(texts(&transcript), ["\u{fffd} \u{fffd} 😀 \\ud83d é \u{fffd}"]);
    assert_eq!(transcript.problems().total(), 0);
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let (_, file) = written([user("a"), user("b"), user("c")]);
    let mut lines: Vec<_> = file.lines().map(str::to_owned).collect();
    let long = format!("\"{}\"", "b".repeat(MAX_LINE_BYTES));
    lines[2] = lines[2].replace("\"b\"", &long);
    let transcript = Transcript::read(lines.join("\n").as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["a", "c"]);
    assert_eq!((transcript.problems().long_lines, transcript.problems().bridged_links), (1, 1));
    let transcript = Transcript::read(lines[..3].join("\n").as_bytes()).unwrap();
    assert!(transcript.needs_newline());
    assert_eq!(transcript.problems().long_lines, 1);
}

#[test]
fn unknown_entries_stay_on_the_branch_and_keep_their_bytes() {
    let (_, file) = written([user("a")]);
    let odd = r#"{"z": 1.50, "type":"new_kind","id":"n1","parentId":"abcd0000","timestamp":"t","a":[1e400000]}"#;
    let odd = odd.replace("1e400000", "1e4");
    let next = r#"{"type":"model_change","id":"n2","parentId":"n1","timestamp":"t","provider":7}"#;
    let file = format!("{file}{odd}\n{next}\n");
    let transcript = Transcript::read(file.as_bytes()).unwrap();
    assert_eq!(transcript.path().len(), 3);
    assert!(transcript.path()[1..].iter().all(|it| matches!(it.kind, EntryKind::Other(_))));
    assert_eq!(transcript.lines().collect::<String>(), file);
}

proptest! {
    #[test]
    fn no_file_causes_a_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..12),
        cut in any::<prop::sample::Index>(),
        which in 0..2_usize,
    ) {
        let mut file = recorded(FILES[which])[0].clone().into_bytes();
        for (at, byte, kind) in edits {
            let at = at.index(file.len());
            match kind {
                0 => file[at] = byte,
                1 => drop(file.remove(at)),
                _ => file.insert(at, byte),
            }
        }
        file.truncate(file.len() - cut.index(file.len()) / 8);
        if let Ok(mut transcript) = Transcript::read(&file) {
            drop((transcript.context(), transcript.messages(), transcript.stats(), transcript.interrupted()));
            for (id, _) in transcript.fork_points() {
                let (fork, _) = transcript.fork(&id, header()).unwrap();
                prop_assert_eq!(Transcript::read(fork.as_bytes()).unwrap().problems().broken_links, 0);
            }
            let lines: String = transcript.lines().collect();
            let again = Transcript::read(lines.as_bytes()).unwrap();
            prop_assert_eq!(again.entries().len(), transcript.entries().len());
            let line = transcript.append(user("x"), TIME, 3);
            let is_one_line = line.ends_with("}\n") && line.matches('\n').count() == 1;
            prop_assert!(is_one_line);
        }
    }
}
