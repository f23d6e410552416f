//! Reads the package sources of apt. Other package managers of systems are not known.

use super::asking::Asking;
use super::findings::Findings;
use std::fs;
use std::path::{Path, PathBuf};

/// Directory of the sources.
const DIR: &str = "/etc/apt";

/// Maximum number of files that are read.
const MAX_FILES: usize = 64;

pub(super) fn ask(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    for path in files(Path::new(DIR)) {
        let Some(text) = findings.or_problem(asking.read(&path)).flatten() else { continue };
        let source = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == "sources") {
            of_stanzas(&text, &source, &mut findings);
        } else {
            of_list(&text, &source, &mut findings);
        }
    }

    if findings.hosts.is_empty() {
        findings.problem("apt's sources name no host; other package managers are not known");
    }
    findings
}

/// Files that apt reads: `sources.list`, and `*.list` and `*.sources` of the directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("sources.list.d")).into_iter().flatten().flatten();
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "list" || extension == "sources")
    };
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_source).collect();
    files.sort();
    files.insert(0, dir.join("sources.list"));
    files.truncate(MAX_FILES);
    files
}

/// Adds the hosts of lines: `deb [option=value] URL suite component`.
fn of_list(text: &str, source: &str, findings: &mut Findings) {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = ["deb ", "deb-src "].iter().find_map(|kind| line.strip_prefix(kind))
        else {
            continue;
        };
        let rest = rest.trim_start();
        let after_options = rest.strip_prefix('[').and_then(|rest| Some(rest.split_once(']')?.1));
        let url = after_options.unwrap_or(rest).split_whitespace().next();
        findings.url(url.unwrap_or_default(), source);
    }
}

/// Adds the hosts of enabled stanzas. A value continues on lines that begin with a blank.
fn of_stanzas(text: &str, source: &str, findings: &mut Findings) {
    let (mut urls, mut is_enabled, mut is_url) = (Vec::new(), true, false);
    // The empty line ends the last stanza.
    for line in text.lines().filter(|line| !line.starts_with('#')).chain([""]) {
        if line.trim().is_empty() {
            let urls = std::mem::take(&mut urls);
            for url in urls.into_iter().filter(|_| is_enabled) {
                findings.url(url, source);
            }
            (is_enabled, is_url) = (true, false);
            continue;
        }

        let value = match line.split_once(':') {
            Some((name, value)) if !line.starts_with([' ', '\t']) => {
                is_url = name.eq_ignore_ascii_case("URIs");
                if name.eq_ignore_ascii_case("Enabled") {
                    is_enabled = !value.trim().eq_ignore_ascii_case("no");
                }
                value
            }
            _ => line,
        };

        if is_url {
            urls.extend(value.split_whitespace());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(findings: &Findings) -> Vec<&str> {
        findings.hosts.iter().map(|host| host.rule.as_str()).collect()
    }

    #[test]
    fn lines_have_options_and_comments() {
        let mut findings = Findings::default();
        let text = "# deb http://no.test.example/ x main\ndeb http://a.test.example/debian x main # more\n\
            deb-src [arch=amd64 signed-by=/k] https://u:p@b.test.example:8443/x y z\ndeb cdrom:[x]/ y\n\
            deb\nrpm http://no.test.example/\n";
        of_list(text, "list", &mut findings);
        assert_eq!(hosts(&findings), ["a.test.example", "b.test.example:8443"]);
    }

    #[test]
    fn stanzas_have_lists_and_can_be_disabled() {
        let mut findings = Findings::default();
        let text = "Types: deb\n# URIs: http://no.test.example\nURIs: http://a.test.example/debian\n  http://b.test.example/d\n\
            Suites: x\n\nTypes: deb\nURIs: http://no.test.example/\nEnabled: no\n\nuris: mirror+file:/etc/m\n\n\
            URIs: mirror+https://c.test.example/list";
        of_stanzas(text, "sources", &mut findings);
        assert_eq!(hosts(&findings), ["a.test.example", "b.test.example", "c.test.example"]);
    }

    #[test]
    fn only_files_of_apt_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let list_dir = dir.path().join("sources.list.d");
        fs::create_dir(&list_dir).unwrap();
        for name in ["b.sources", "a.list", "c.list.disabled", "d.save"] {
            fs::write(list_dir.join(name), "").unwrap();
        }
        let expected =
            [dir.path().join("sources.list"), list_dir.join("a.list"), list_dir.join("b.sources")];
        assert_eq!(files(dir.path()), expected);
    }
}
