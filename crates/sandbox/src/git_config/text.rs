//! Writes git's configuration format. The parent module parses it.

use super::Entry;

/// Returns the text of a file with these settings, as git reads it.
#[must_use]
pub fn to_text<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    let mut text = String::new();
    let mut last = None;
    for entry in entries {
        let section = (&entry.section, &entry.subsection);
        if last != Some(section) {
            text.push_str(&header_of(entry));
            last = Some(section);
        }

        let value = entry.value.as_ref().map(|value| format!(" = {}", quote(value)));
        text.push_str(&format!("\t{}{}\n", entry.key, value.unwrap_or_default()));
    }
    text
}

fn header_of(entry: &Entry) -> String {
    match entry.subsection.as_str() {
        "" => format!("[{}]\n", entry.section),
        subsection => {
            let quoted = subsection.replace('\\', "\\\\").replace('"', "\\\"");
            // A subsection has no escapes for line breaks and other control characters.
            let printed: String = quoted.chars().filter(|c| !c.is_control()).collect();
            format!("[{} \"{printed}\"]\n", entry.section)
        }
    }
}

fn quote(value: &str) -> String {
    let mut quoted = String::from("\"");
    for one in value.chars() {
        match one {
            '"' | '\\' => quoted.extend(['\\', one]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {}
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_config::parse;

    #[test]
    fn written_settings_are_read_again() {
        let text =
            "[core]\nbare\n\tx = \" a\\\\b;\\n\"\n[remote \"a \\\"q\\\"\"]\nurl = /x#y\n[a]\nb=\n";
        let entries = parse(text);
        assert_eq!(entries.len(), 4);
        assert_eq!(parse(&to_text(entries.iter())), entries);
    }
}
