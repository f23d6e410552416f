//! The program that shows a notification of the desktop.

/// Command line that shows a notification. The message does not begin with `-` or `@`.
pub(crate) fn notification(title: &str, message: &str) -> Vec<String> {
    let words = ["notify-send", "--app-name=quackd", "--"].map(str::to_owned);
    words.into_iter().chain([escaped(title), escaped(message)]).collect()
}

/// Returns a text for `notify-send`: servers of notifications read markup, and the program itself reads backslashes.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' => escaped.push_str("\\\\"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_text_without_markup() {
        assert_eq!(
            notification("a & b", "command \"<a href='x'>&\\074b\\076\"")[3..],
            ["a &amp; b", "command \"&lt;a href='x'&gt;&amp;\\\\074b\\\\076\""]
        );
    }
}
