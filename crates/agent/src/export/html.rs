//! A conversation as one HTML page without scripts and without requests to other hosts.

use super::markup::{escaped, markup};
use super::parts::{Part, Tool, facts, parts, title};
use crate::call_view::Change;
use crate::transcript::Transcript;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;background:Canvas;color:CanvasText}\
header{border-bottom:1px solid GrayText}\
h2{font-size:1rem;margin:1.5rem 0 .25rem}\
time,.note{color:GrayText;font-size:.85rem;font-weight:normal}\
.text{white-space:pre-wrap;overflow-wrap:anywhere}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0;padding:.5rem;border:1px solid GrayText;border-radius:4px;font:13px/1.4 ui-monospace,monospace}\
details{margin:.5rem 0}summary{cursor:pointer}\
code{font:.85em/1.4 ui-monospace,monospace}pre code{font:inherit}\
table{border-collapse:collapse}th,td{border:1px solid GrayText;padding:.1rem .5rem;text-align:left;vertical-align:top}\
blockquote{margin:.5rem 0;padding-left:.75rem;border-left:3px solid GrayText}\
ins{color:light-dark(#116329,#7ee787)}del{color:light-dark(#b00020,#ff8a80)}.diff ins,.diff del{text-decoration:none}\
.error>summary{color:light-dark(#b00020,#ff8a80)}\
img{max-width:100%}\
dt{float:left;clear:left;width:6rem;color:GrayText}dd{margin-left:6rem}";

/// Returns the current branch as a page. Calls of tools are closed until the reader opens them.
#[must_use]
pub fn html(transcript: &Transcript) -> String {
    let mut page = Page::default();
    let title = title(transcript);
    page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    // The page runs no script and loads nothing, also if the escaping had an error.
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ");
    page.raw("img-src data:; style-src 'unsafe-inline'\">\n");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");

    page.element("title", "", &title);
    page.raw("<style>");
    page.raw(STYLE);
    page.raw("</style>\n</head>\n<body>\n<header>\n");
    page.element("h1", "", &title);

    page.raw("<dl>\n");
    for (name, value) in facts(transcript) {
        page.element("dt", "", name);
        page.element("dd", "", &value);
    }

    page.raw("</dl>\n</header>\n<main>\n");
    parts(transcript).iter().for_each(|part| page.part(part));
    page.raw("</main>\n</body>\n</html>\n");
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    fn text(&mut self, text: &str) {
        self.0.push_str(&escaped(text));
    }

    fn element(&mut self, name: &str, class: &str, text: &str) {
        self.open(name, class);
        self.text(text);
        self.close(name);
    }

    fn open(&mut self, name: &str, class: &str) {
        self.raw("<");
        self.raw(name);
        if !class.is_empty() {
            self.raw(" class=\"");
            self.raw(class);
            self.raw("\"");
        }
        self.raw(">");

        if name == "pre" {
            // A parser drops the first line feed.
            self.raw("\n");
        }
    }

    fn close(&mut self, name: &str) {
        self.raw("</");
        self.raw(name);
        self.raw(">\n");
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Message { title, time } => {
                self.raw("<h2>");
                self.text(title);
                self.raw(" <time>");
                self.text(time);
                self.raw("</time></h2>\n");
            }
            Part::Prompt(text) => self.element("div", "text", text),
            Part::Text(text) => match markup(text) {
                Some(html) => {
                    self.open("div", "markdown");
                    self.raw(&html);
                    self.close("div");
                }
                None => self.element("div", "text", text),
            },
            Part::Thinking(text) => {
                self.open("details", "thinking");
                self.element("summary", "", "Thinking");
                self.element("div", "text", text);
                self.close("details");
            }
            Part::Tool(tool) => self.tool(tool),
            Part::Image { mime_type, data } => {
                self.raw("<img alt=\"Image\" src=\"data:");
                self.raw(mime_type);
                self.raw(";base64,");
                self.raw(data);
                self.raw("\">\n");
            }
            Part::Note(text) => self.element("p", "note", text),
        }
    }

    fn change(&mut self, change: &Change) {
        let (name, mark, line) = match change {
            Change::Removed(line) => ("del", "-", line),
            Change::Added(line) => ("ins", "+", line),
            Change::Kept(line) => ("span", " ", line),
            // `parts` shows the arguments instead.
            Change::TooLarge => return,
        };
        self.element(name, "", &format!("{mark} {line}"));
    }

    fn tool(&mut self, tool: &Tool) {
        self.open("details", if tool.is_error { "tool error" } else { "tool" });
        let state = match tool.output {
            None => " (no result)",
            Some(_) if tool.is_error => " (failed)",
            Some(_) => "",
        };

        let space = if tool.subject.is_empty() { "" } else { " " };
        self.element("summary", "", &format!("{}{space}{}{state}", tool.name, tool.subject));

        if tool.changes.is_empty() {
            self.element("pre", "", &tool.input);
        } else {
            self.open("pre", "diff");
            tool.changes.iter().for_each(|change| self.change(change));
            self.close("pre");
        }

        if let Some(output) = &tool.output {
            self.element("pre", "", output);
        }
        self.close("details");
    }
}
