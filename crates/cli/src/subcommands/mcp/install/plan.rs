//! Plans the new text of one file. Reads and writes nothing.

use super::change::{Change, Made};
use super::format::Format;
use super::receipts::{Receipt, digest};
use std::path::Path;

/// New text of a file.
#[derive(Debug)]
pub(super) struct Planned {
    /// `None`: the file is absent.
    pub(super) text: Option<String>,
    pub(super) receipt: Option<Receipt>,
}

/// Plans an install. Settings of an earlier install that `changes` lacks are reverted.
///
/// # Errors
/// The file cannot be parsed, or has another kind of value at a path.
pub(super) fn install(
    format: Format,
    path: &Path,
    text: Option<&str>,
    old: Option<&Receipt>,
    changes: &[Change],
) -> anyhow::Result<Planned> {
    let restored = old.zip(text).and_then(|(old, text)| old.restore(text));
    let mut kept: Vec<Made> = Vec::new();
    let mut is_exact = true;
    let before = match (restored, text, old) {
        (Some(before), ..) => before,
        (None, Some(text), Some(old)) => {
            // Another program changed the file. Only a semantic uninstall is possible from here on.
            is_exact = false;
            let is_requested =
                |made: &&Made| changes.iter().any(|change| made.is_at(change.path()));
            kept = old.made.iter().filter(is_requested).cloned().collect();
            let mut text = text.to_owned();
            for made in old.made.iter().rev().filter(|made| !is_requested(made)) {
                text = made.revert(format, &text)?;
            }
            Some(text)
        }
        (None, text, _) => text.map(str::to_owned),
    };

    let existed = before.is_some() || !is_exact;
    let mut new = before.clone().unwrap_or_default();
    let mut steps = Vec::new();
    // In order: a later change sees the text of the earlier ones.
    for change in changes {
        let applied = change.apply(format, &new)?;
        is_exact &= !applied.replaced;
        new = applied.text;
        if let Some((made, step)) = applied.made {
            steps.push(step);
            if !kept.iter().any(|kept| kept.is_at(change.path())) {
                kept.push(made);
            }
        }
    }

    if before.is_none() && changes.is_empty() {
        return Ok(Planned { text: None, receipt: None });
    }

    let receipt = (!kept.is_empty()).then(|| Receipt {
        path: path.to_owned(),
        existed,
        after: digest(&new),
        steps: is_exact.then_some(steps),
        made: kept,
        directories: old.map(|old| old.directories.clone()).unwrap_or_default(),
    });
    Ok(Planned { text: Some(new), receipt })
}

/// Plans an uninstall. Without a receipt, only the entry at `entry` is removed.
///
/// # Errors
/// The file cannot be parsed.
pub(super) fn uninstall(
    format: Format,
    text: Option<&str>,
    old: Option<&Receipt>,
    entry: Option<&[&str]>,
) -> anyhow::Result<Planned> {
    let Some(text) = text else { return Ok(Planned { text: None, receipt: None }) };
    if let Some(before) = old.and_then(|old| old.restore(text)) {
        return Ok(Planned { text: before, receipt: None });
    }

    let unrecorded = entry.map(Made::entry);
    let made = old.map_or(&[][..], |old| &old.made);
    let mut new = text.to_owned();
    // The last change first, as each one saw the text of those before it.
    for made in made.iter().rev().chain(&unrecorded) {
        new = made.revert(format, &new)?;
    }
    Ok(Planned { text: Some(new), receipt: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::mcp::McpHost;
    use crate::subcommands::mcp::install::clients::McpClient;
    use clap::ValueEnum;
    use proptest::prelude::*;
    use serde_json::Value;

    const JSON: &[&str] = &[
        "",
        "\n",
        "{}",
        "{ }\n",
        "{\n}\n",
        "{\"mcpServers\": {}}",
        "{\n  \"mcpServers\": {\n  }\n}\n",
        "{\"a\":1,\"mcpServers\":{\"x\":{\"command\":\"y\"}},\"b\":[1, 2]}",
        "// head\n{\n  // first\n  \"a\": 1, // one\n  \"mcpServers\": {\n    \"x\": {\"url\": \"z\"}, // last\n  },\n}\n// tail",
        "{\r\n\t\"ü\": \"ß\\u00e4\",\r\n\t\"servers\": {\r\n\t\t\"x\": {}\r\n\t},\r\n\t\"mcp\": {}\r\n}\r\n",
        "\u{feff}{\n    \"permission\": {\"bash\": \"ask\", \"edit\": {\"*\": \"allow\"}},\n    \"tools\": {\"exclude\": [\"replace\"]}\n}",
        "{\"permissions\": {\"deny\": [\n  \"Bash\", // mine\n  \"Read(.env)\"\n]}}\n",
        "{\"mcpServers\": {}, \"context_servers\": {\"x\": {}}, \"agent\": {\"tool_permissions\": {\"tools\": {\"terminal\": {\"default\": \"allow\"}}}}}",
    ];

    const TOML: &[&str] = &[
        "",
        "# only a comment",
        "model = \"x\"",
        "model = \"x\"  # why\r\n\r\n[mcp_servers.a]\r\ncommand = \"b\"\r\n# end\r\n",
        "[mcp_servers]\n",
        "mcp_servers = {}\n",
        "mcp_servers.a = { command = 'b' }\n[features]\nshell_tool = true # on\n\n\n[[x]]\ny = 1979-05-27\n",
        "\t[ mcp_servers . \"a\" ]\n\tcommand = '''\nb'''\n[z]\n",
    ];

    const YAML: &[&str] = &[
        "",
        "# only a comment\n",
        "GOOSE_MODEL: gpt-4",
        "extensions: {}\n",
        "extensions:\nA: 1\n",
        "# head\nGOOSE_PROVIDER: openai # x\nextensions:\n  # dev\n  developer:\n    enabled: true # keep\n    type: builtin\n\n  memory:\n    enabled: false\n\nGOOSE_MODEL: gpt-4\n",
        "base: &b\n  enabled: true\nextensions:\n    dev:\n        <<: *b\n        args:\n        - ü\n",
        "A: 1\r\nextensions:\r\n  dev:\r\n    enabled: true\r\nB: 2\r\n",
        "extensions:\n  dev:\n    instructions: |\n      hello\n\n      world\n",
        "---\nextensions: {developer: {enabled: true}}\n...\n",
    ];

    fn changes(client: &McpClient, arg: &str) -> Vec<Change> {
        let path = client.servers.iter().copied().chain(["quackd"]).collect();
        let entry = Change::Entry(
            path,
            client.entry("/usr/bin/quack", &["mcp".to_owned(), arg.to_owned()]),
        );
        [entry].into_iter().chain(client.exclusive.iter().copied().map(Change::from)).collect()
    }

    fn corpus(client: &McpClient) -> &'static [&'static str] {
        match client.format {
            Format::Json => JSON,
            Format::Toml => TOML,
            Format::Yaml => YAML,
        }
    }

    fn entry_path(client: &McpClient) -> Vec<&'static str> {
        client.servers.iter().copied().chain(["quackd"]).collect()
    }

    /// Installs, installs again, installs with other options, and uninstalls.
    fn check(client: &McpClient, before: Option<&str>) {
        let (format, at) = (client.format, Path::new("/f"));
        let first = install(format, at, before, None, &changes(client, "--safe")).unwrap();
        let text = first.text.as_deref();
        assert_ne!(text, before);
        let again =
            install(format, at, text, first.receipt.as_ref(), &changes(client, "--safe")).unwrap();
        assert_eq!((again.text.as_deref(), &again.receipt), (text, &first.receipt));
        let other =
            install(format, at, text, first.receipt.as_ref(), &changes(client, "--keep")).unwrap();
        let after = uninstall(
            format,
            other.text.as_deref(),
            other.receipt.as_ref(),
            Some(entry_path(client).as_slice()),
        )
        .unwrap();
        assert_eq!(after.text.as_deref(), before, "{} {before:?}", client.id);
        // Another program appends a line: only the semantic uninstall is possible.
        let end = if text.unwrap().contains("\r\n") { "\r\n" } else { "\n" };
        let changed = format!("{}{end}", text.unwrap());
        let after = uninstall(
            format,
            Some(&changed),
            first.receipt.as_ref(),
            Some(entry_path(client).as_slice()),
        );
        let after = after.unwrap().text.unwrap();
        assert!(!after.contains("quack"), "{} {before:?} {after}", client.id);
        assert_eq!(
            value(client, &after),
            value(client, before.unwrap_or_default()),
            "{} {after}",
            client.id
        );
    }

    /// Returns the tables of the client. An empty file is an empty table.
    fn value(client: &McpClient, text: &str) -> Vec<Option<Value>> {
        let mut values = Vec::new();
        crate::subcommands::mcp::install::format::edit(client.format, text, |document| {
            let heads = [
                "a",
                "mcpServers",
                "mcp_servers",
                "permissions",
                "permission",
                "tools",
                "agent",
                "features",
                "mcp",
            ];
            values = heads.map(|key| document.get(&[key])).into();
            Ok(())
        })
        .unwrap();
        values
    }

    #[test]
    fn uninstall_restores_the_bytes_for_every_client_and_every_file() {
        for host in McpHost::value_variants() {
            let client = McpClient::of(*host);
            check(&client, None);
            for text in corpus(&client) {
                check(&client, Some(text));
            }
        }
    }

    #[test]
    fn other_lines_stay_byte_for_byte() {
        for host in McpHost::value_variants() {
            let client = McpClient::of(*host);
            for text in corpus(&client) {
                let new = install(
                    client.format,
                    Path::new("/f"),
                    Some(text),
                    None,
                    &changes(&client, "--safe"),
                );
                let new = new.unwrap().text.unwrap();
                assert_eq!(new.contains("\r\n"), text.contains("\r\n"), "{text:?} {new:?}");
                // Comments, and values of other programs.
                for part in [
                    "// head",
                    "// first",
                    "// one",
                    "// last",
                    "// mine",
                    "// tail",
                    "# why\r\n",
                    "# end",
                    "# head\n",
                    "# keep\n",
                    "ß\\u00e4",
                    "&b",
                    "<<: *b",
                ] {
                    assert_eq!(new.contains(part), text.contains(part), "{part} {text:?} {new:?}");
                }
            }
        }
    }

    #[test]
    fn a_replaced_entry_and_an_entry_without_a_receipt_are_removed() {
        let client = McpClient::of(McpHost::Cursor);
        let text = "{\"mcpServers\": {\"quackd\": {\"command\": \"old\"}, \"b\": {}}}";
        let new =
            install(Format::Json, Path::new("/f"), Some(text), None, &changes(&client, "--safe"))
                .unwrap();
        for (text, receipt) in [(new.text.as_deref(), new.receipt.as_ref()), (Some(text), None)] {
            let after =
                uninstall(Format::Json, text, receipt, Some(entry_path(&client).as_slice()))
                    .unwrap();
            let after: Value = serde_json::from_str(&after.text.unwrap()).unwrap();
            assert_eq!(after, serde_json::json!({"mcpServers": {"b": {}}}));
        }
    }

    #[test]
    fn broken_files_and_other_kinds_of_values_are_errors() {
        for (host, text) in [
            (McpHost::Cursor, "{\"a\": 1"),
            (McpHost::Cursor, "{} x"),
            (McpHost::Cursor, "[]"),
            (McpHost::Cursor, "{\"mcpServers\": []}"),
            (McpHost::Cursor, "{'a': 1}"),
            (McpHost::Codex, "a = "),
            (McpHost::Codex, "mcp_servers = 1"),
            (McpHost::Goose, "a: [1"),
            (McpHost::Goose, "- a\n"),
            (McpHost::Goose, "extensions: text\n"),
        ] {
            let client = McpClient::of(host);
            let planned = install(
                client.format,
                Path::new("/f"),
                Some(text),
                None,
                &changes(&client, "--safe"),
            );
            assert!(planned.is_err(), "{text:?} {planned:?}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("mcpServers|agent|.{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_is_restored(map in proptest::collection::hash_map(".{0,6}", json(), 0..5), pretty in any::<bool>()) {
            let value = Value::Object(map.into_iter().collect());
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let client = McpClient::of(McpHost::Gemini);
            if let Ok(new) = install(Format::Json, Path::new("/f"), Some(&text), None, &changes(&client, "--safe")) {
                let installed: Value = serde_json::from_str(new.text.as_deref().unwrap()).unwrap();
                for (key, old) in value.as_object().unwrap() {
                    prop_assert!(["mcpServers", "tools"].contains(&key.as_str()) || installed.get(key) == Some(old));
                }
                let after = uninstall(Format::Json, new.text.as_deref(), new.receipt.as_ref(), None).unwrap();
                prop_assert_eq!(after.text, Some(text));
            }
        }
    }
}
