//! Tests of both formats, mostly with hostile texts.

use super::clean::{clean, clean_line};
use super::*;
use crate::message::{
    AssistantMessage, Block, Content, Message, StopReason, ToolCall, ToolResultMessage, Usage,
    UserMessage,
};
use crate::transcript::{EntryKind, Header, Transcript, VERSION};
use proptest::prelude::*;
use serde_json::json;

const TIME: &str = "2026-10-05T11:22:33.044Z";

fn transcript(kinds: impl IntoIterator<Item = EntryKind>) -> Transcript {
    let mut transcript = Transcript::new(Header {
        id: "s1".to_owned(),
        version: VERSION,
        timestamp: TIME.to_owned(),
        cwd: "/w".to_owned(),
        parent_session: None,
    });
    (0..).zip(kinds).for_each(|(n, kind)| drop(transcript.append(kind, TIME, n)));
    transcript
}

fn user(blocks: Vec<Block>) -> EntryKind {
    EntryKind::Message(Message::User(UserMessage {
        content: Content::Blocks(blocks),
        timestamp: 0,
    }))
}

fn assistant(content: Vec<Block>, error: Option<&str>) -> EntryKind {
    EntryKind::Message(Message::Assistant(AssistantMessage {
        content,
        api: String::new(),
        provider: "fake".to_owned(),
        model: "m".to_owned(),
        usage: Usage::default(),
        stop_reason: StopReason::Stop,
        error_message: error.map(str::to_owned),
        timestamp: 0,
        response_id: None,
        duration_ms: None,
        images_refused: false,
        raw_stop_reason: None,
    }))
}

fn call(id: &str, argument: &str) -> Block {
    let arguments = json!({ "path": argument }).as_object().unwrap().clone();
    Block::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments,
        ..ToolCall::default()
    })
}

fn edit(id: &str) -> Block {
    let arguments = json!({"path": "c.rs", "old_text": "same\n<old>\n", "new_text": "same\nnew\n"});
    Block::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "edit".to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
        ..ToolCall::default()
    })
}

fn result(id: &str, text: &str, is_error: bool) -> EntryKind {
    EntryKind::Message(Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "read".to_owned(),
        content: vec![Block::text(text)],
        details: None,
        is_error,
        timestamp: 0,
    }))
}

fn image(mime_type: &str, data: &str) -> Block {
    Block::Image { mime_type: mime_type.to_owned(), data: data.to_owned() }
}

/// A conversation with this text at every place.
fn everywhere(text: &str) -> Transcript {
    let thinking =
        Block::Thinking { thinking: text.to_owned(), thinking_signature: None, redacted: false };
    let mut tool = result("1", text, false);
    if let EntryKind::Message(Message::ToolResult(result)) = &mut tool {
        result.tool_name = text.to_owned();
    }
    transcript([
        EntryKind::SessionInfo { name: text.to_owned() },
        EntryKind::ModelChange { provider: text.to_owned(), model_id: text.to_owned() },
        EntryKind::ThinkingLevelChange { thinking_level: text.to_owned() },
        user(vec![Block::text(text), image(text, text), image("image/png", text)]),
        assistant(vec![thinking, Block::text(text), call(text, text)], Some(text)),
        tool,
        EntryKind::BranchSummary {
            from_id: "x".to_owned(),
            summary: text.to_owned(),
            details: None,
            usage: None,
        },
    ])
}

#[test]
fn a_conversation_is_readable_in_both_formats() {
    let transcript = transcript([
        EntryKind::SessionInfo { name: "Fix *it*".to_owned() },
        user(vec![
            Block::text("read & tell"),
            image("image/png", "aGk="),
            image("image/svg+xml", "aGk="),
        ]),
        assistant(vec![call("1", "a.rs"), call("2", "b.rs"), edit("3")], None),
        result("2", "not ``` there", true),
        result("3", "Edited c.rs", false),
        assistant(vec![Block::text("Done: `Vec<T>`")], Some("cut")),
    ]);
    let text = markdown(&transcript);
    let start = "# Fix \\*it\\*\n\n- Session: `s1`\n- Created: `2026-10-05T11:22:33.044Z`\n- Directory: `/w`\n\
        - Model: `fake/m`\n- Messages: `5`\n- Tokens: `0`\n\n## User\n\n`2026-10-05T11:22:33.044Z`\n\n\
        read & tell\n\n*Image of type image/png, 0 KiB*\n\n*Image of type image/svg\\+xml, not shown*\n\n## Assistant\n";
    assert_eq!(&text[..start.len()], start);
    assert!(
        text.contains(
            "**Tool `read`**\n\n```json\n{\n  \"path\": \"a.rs\"\n}\n```\n\nNo result.\n"
        )
    );
    assert!(text.contains("\nError:\n\n````text\nnot ``` there\n````\n"));
    assert!(text.ends_with("\nDone: &#96;Vec&lt;T>&#96;\n\n*Error: cut*\n"));

    let page = html(&transcript);
    for part in [
        "<title>Fix *it*</title>",
        "<div class=\"text\">read &amp; tell</div>",
        "<img alt=\"Image\" src=\"data:image/png;base64,aGk=\">",
        "<p class=\"note\">Image of type image/svg+xml, not shown</p>",
        "<details class=\"tool\"><summary>read a.rs (no result)</summary>",
        "<details class=\"tool error\"><summary>read b.rs (failed)</summary>",
        "<pre>\n{\n  &quot;path&quot;: &quot;a.rs&quot;\n}</pre>",
        "<summary>edit c.rs</summary>\n<pre class=\"diff\">\n<span>  same</span>\n<del>- &lt;old&gt;</del>\n<ins>+ new</ins>\n</pre>",
        "<div class=\"markdown\"><p>Done: <code>Vec&lt;T&gt;</code></p>\n</div>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn escape_sequences_and_hidden_characters_are_removed() {
    for (given, shown) in [
        ("plain äöü 漢\tx\r\ny\rz\n", "plain äöü 漢\tx\ny\nz\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1bPq\x1b\\c", "abc"),
        ("\x1b]0;open\n\x1b[3", "\u{fffd}]0;open\n\u{fffd}[3"),
        ("a\0b\u{9b}31mc\u{7f}", "a\u{fffd}b\u{fffd}31mc\u{fffd}"),
        ("safe\u{202e}cod.exe", "safe\u{fffd}cod.exe"),
        ("👩\u{200d}💻", "👩\u{200d}💻"),
        ("\x1b[é\x1bé", "\u{fffd}[é\u{fffd}é"),
    ] {
        assert_eq!(clean(given), shown, "{given:?}");
    }
    assert_eq!(clean_line(&format!(" a\n\tb {}", "x".repeat(999))).len(), 200);
}

#[test]
fn markdown_of_a_model_has_no_html_and_loads_no_image() {
    for (given, shown) in [
        (
            "a <script>x</script> ![i](http://h/?x)",
            "a &lt;script>x&lt;/script> &#33;[i](http://h/?x)",
        ),
        (
            "1 < 2, `<b>` and ``a ` <b>``, `x`",
            "1 < 2, &#96;&lt;b>&#96; and &#96;&#96;a ` &lt;b>&#96;&#96;, `x`",
        ),
        // A viewer splits a table into cells before it looks for code.
        ("| ` | <img src=x> | ` |", "| &#96; | &lt;img src=x> | &#96; |"),
        ("- > a ` \\| ![p](h) | `", "- > a &#96; \\| &#33;[p](h) | &#96;"),
        ("```html\n<b>\n```\n<b>", "```html\n<b>\n```\n&lt;b>"),
        ("~~~\n```\n<b>\n~~~ \n<i>", "~~~\n```\n<b>\n~~~ \n&lt;i>"),
        ("````\n```\n<b>", "````\n```\n<b>\n````"),
        // A viewer pairs the backtick of the first line with the first one of the second line.
        ("`\n` <b> `", "`\n&#96; &lt;b> &#96;"),
        ("\\`<b>`", "\\&#96;&lt;b>&#96;"),
        ("`\n\n`<b>`", "`\n\n&#96;&lt;b>&#96;"),
        // The end of the list ends the block.
        ("1. a\n   ```\n<b>", "1. a\n   ```\n&lt;b>"),
        ("``` `a` <b>", "``` `a` &lt;b>"),
        ("\\![x](y) \\<b>", "\\&#33;[x](y) \\&lt;b>"),
    ] {
        let text = markdown(&transcript([user(vec![Block::text(given)])]));
        let end = format!("\n\n{shown}\n");
        assert!(text.ends_with(&end), "{given:?} gives {text:?}");
    }
}

#[test]
fn a_page_contains_only_its_own_markup() {
    let hostile = "</div></pre></details><script>alert('x')</script><img src=x onerror=y>\"'&amp;\x1b[2J\u{202e}";
    let marked = format!(
        "{hostile}\n\n# {hostile}\n\n- [{hostile}](javascript:x) ![y](data:z)\n\n```\n{hostile}\n```\n\n|{hostile}|\n|-|\n|<b>|\n"
    );
    let page = html(&everywhere(&marked));
    assert!(!page.contains("href"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<img"));
    let is_tag = |tag: &str| {
        let name = tag.trim_start_matches('/').split([' ', '>']).next().unwrap_or_default();
        [
            "!DOCTYPE",
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "h1",
            "h2",
            "dl",
            "dt",
            "dd",
            "main",
            "div",
            "details",
            "summary",
            "pre",
            "p",
            "time",
            "a",
            "blockquote",
            "br",
            "code",
            "del",
            "em",
            "h3",
            "h4",
            "h5",
            "hr",
            "ins",
            "li",
            "ol",
            "span",
            "strong",
            "table",
            "td",
            "th",
            "tr",
            "ul",
        ]
        .contains(&name)
    };
    for tag in page.split('<').skip(1) {
        assert!(is_tag(tag), "{tag}");
    }
    assert!(page.contains("&amp;amp;") && page.contains("default-src 'none'"));
}

proptest! {
    #[test]
    fn no_control_character_gets_into_an_export(text in "([\\x00-\\x1f\\x7f-\\x9f\\[\\]a-z`<!~|>*#()\\\\\u{202e} é-]|&#27;|&#x202e;|https://){0,60}") {
        let transcript = everywhere(&text);
        for out in [markdown(&transcript), html(&transcript)] {
            let is_bad = |c: char| c == '\u{202e}' || c.is_control() && c != '\n' && c != '\t';
            prop_assert!(!out.contains(is_bad));
        }
    }
}
