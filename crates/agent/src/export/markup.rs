//! Markdown of the model as HTML. All elements and attributes come from this file: HTML in the text is text, an image is
//! a link, and a link leads to a web page or a mail address.

use super::clean::clean;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::borrow::Cow;

/// Maximum number of elements that are open at once. Deeper ones have only their text.
const MAX_DEPTH: usize = 32;

/// Maximum growth: bytes of HTML for each byte of the text, and bytes in addition to them.
const MAX_GROWTH: usize = 16;
const MAX_MORE: usize = 4096;

/// Returns a text as HTML. `None` if that is out of proportion, such as for a table of empty cells.
pub(super) fn markup(text: &str) -> Option<String> {
    let limit = text.len() * MAX_GROWTH + MAX_MORE;
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut html = Html::default();

    for event in Parser::new_ext(text, options) {
        html.event(event);
        if limit < html.out.len() {
            return None;
        }
    }
    Some(html.out)
}

#[derive(Default)]
struct Html {
    out: String,
    /// Ends of the open elements. Empty for those that are only text.
    ends: Vec<&'static str>,
    /// Whether cells belong to the head of a table.
    is_head: bool,
}

impl Html {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => {
                self.is_head &= tag != TagEnd::TableHead;
                self.out.push_str(self.ends.pop().unwrap_or_default());
            }
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.text(&text),
            Event::Code(text) => {
                self.out.push_str("<code>");
                self.text(&text);
                self.out.push_str("</code>");
            }
            Event::SoftBreak => self.out.push('\n'),
            Event::HardBreak => self.out.push_str("<br>\n"),
            Event::Rule => self.out.push_str("<hr>\n"),
            Event::TaskListMarker(is_done) => {
                self.out.push_str(if is_done { "[x] " } else { "[ ] " });
            }
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        let (start, end): (Cow<'static, str>, _) = match tag {
            _ if MAX_DEPTH <= self.ends.len() => ("".into(), ""),
            Tag::Paragraph | Tag::HtmlBlock => ("<p>".into(), "</p>\n"),
            // The page has h1 for its title and h2 for each message.
            Tag::Heading { level: HeadingLevel::H1, .. } => ("<h3>".into(), "</h3>\n"),
            Tag::Heading { level: HeadingLevel::H2, .. } => ("<h4>".into(), "</h4>\n"),
            Tag::Heading { .. } => ("<h5>".into(), "</h5>\n"),
            Tag::BlockQuote(_) => ("<blockquote>\n".into(), "</blockquote>\n"),
            Tag::CodeBlock(_) => ("<pre><code>".into(), "</code></pre>\n"),
            Tag::List(Some(first)) => (format!("<ol start=\"{first}\">\n").into(), "</ol>\n"),
            Tag::List(None) => ("<ul>\n".into(), "</ul>\n"),
            Tag::Item => ("<li>".into(), "</li>\n"),
            Tag::Table(_) => ("<table>\n".into(), "</table>\n"),
            Tag::TableHead => {
                self.is_head = true;
                ("<tr>".into(), "</tr>\n")
            }
            Tag::TableRow => ("<tr>".into(), "</tr>\n"),
            Tag::TableCell if self.is_head => ("<th>".into(), "</th>"),
            Tag::TableCell => ("<td>".into(), "</td>"),
            Tag::Emphasis => ("<em>".into(), "</em>"),
            Tag::Strong => ("<strong>".into(), "</strong>"),
            Tag::Strikethrough => ("<del>".into(), "</del>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => match target(dest_url) {
                Some(url) => {
                    let url = escaped(url);
                    (format!("<a rel=\"noopener noreferrer\" href=\"{url}\">").into(), "</a>")
                }
                None => ("".into(), ""),
            },
            _ => ("".into(), ""),
        };

        // An element that is left out has an empty end, so that each end takes one from the list.
        self.out.push_str(&start);
        self.ends.push(end);
    }

    /// Adds a text. The parser turns `&#27;` into a control character.
    fn text(&mut self, text: &str) {
        self.out.push_str(&escaped(&clean(text)));
    }
}

/// Returns the target of a link, if it leads to a web page or a mail address.
fn target<'a>(url: &'a CowStr<'_>) -> Option<&'a str> {
    let is_known = ["http://", "https://", "mailto:"].into_iter().any(|scheme| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    (is_known && clean(url) == **url && !url.contains(char::is_whitespace)).then_some(&**url)
}

/// Returns a text whose characters have no meaning in HTML, also in attributes.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_elements_and_everything_else_is_text() {
        for (text, html) in [
            (
                "# a\nb **c** *d* `<e>`",
                "<h3>a</h3>\n<p>b <strong>c</strong> <em>d</em> <code>&lt;e&gt;</code></p>\n",
            ),
            ("```html\n<b>\n```", "<pre><code>&lt;b&gt;\n</code></pre>\n"),
            ("3. a\n4. b", "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>\n"),
            ("- [x] a", "<ul>\n<li>[x] a</li>\n</ul>\n"),
            ("|a|\n|-|\n|b|", "<table>\n<tr><th>a</th></tr>\n<tr><td>b</td></tr>\n</table>\n"),
            (
                "> a\n\n---\n~~b~~",
                "<blockquote>\n<p>a</p>\n</blockquote>\n<hr>\n<p><del>b</del></p>\n",
            ),
            ("<script>a</script>", "<p>&lt;script&gt;a&lt;/script&gt;</p>\n"),
            ("a <img src=x onerror=y>", "<p>a &lt;img src=x onerror=y&gt;</p>\n"),
            ("[a](javascript:b) [c](data:d) [e](/f)", "<p>a c e</p>\n"),
            (
                "![a](http://b/\"c)",
                "<p><a rel=\"noopener noreferrer\" href=\"http://b/&quot;c\">a</a></p>\n",
            ),
            ("[a](JavaScript&#58;b) [c](http://d&#27;)", "<p>a c</p>\n"),
            ("&#27;[2J &lt;b>", "<p>\u{fffd}[2J &lt;b&gt;</p>\n"),
        ] {
            assert_eq!(markup(text).unwrap(), html, "{text:?}");
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let deep = markup(&format!("{}a", "> ".repeat(5_000))).unwrap();
        assert!(deep.matches("<blockquote>").count() <= MAX_DEPTH && deep.contains('a'));
        let width = 400;
        let row = "|".repeat(width + 1);
        let table = format!("{row}\n{}|\n{}", "|-".repeat(width), "|x|\n".repeat(width));
        assert_eq!(markup(&table), None);
    }
}
