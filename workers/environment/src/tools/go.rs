//! Asks go for its module proxies and its checksum database.

use super::asking::Asking;
use super::findings::Findings;

/// Command line for display.
const CALL: &str = "go env GOPROXY GOSUMDB";

pub(super) async fn ask(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    let file = asking.dir("XDG_CONFIG_HOME", ".config").join("go/env");
    if let Err(problem) = asking.check(&file) {
        findings.problem(problem);
        return findings;
    }

    let answer = asking.stdout("go", &["env", "GOPROXY", "GOSUMDB"]).await;
    if let Some(text) = findings.or_problem(answer) {
        of_env(&text, &mut findings);
    }
    findings
}

/// Adds the hosts of go's answer: a line with the proxies and a line with the database.
fn of_env(text: &str, findings: &mut Findings) {
    let mut lines = text.lines();
    let proxies = lines.next().unwrap_or_default().split([',', '|']).map(str::trim);
    for proxy in proxies.filter(|proxy| !matches!(*proxy, "" | "direct" | "off")) {
        if !findings.url(proxy, CALL) {
            findings.problem(format!("`{CALL}` has a proxy without a host"));
        }
    }

    // `name`, `name+key` or `name+key url`.
    let mut database = lines.next().unwrap_or_default().split_whitespace();
    match (database.next(), database.next()) {
        (None | Some("off"), _) => {}
        (Some(_), Some(url)) => {
            findings.url(url, CALL);
        }
        (Some(name), None) => {
            let host = name.split('+').next().unwrap_or_default();
            findings.url(&format!("https://{host}/"), CALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_the_database_are_found() {
        for (text, expected) in [
            (
                "https://u:p@go.test.example/x,direct\nsum.test.example\n",
                &["go.test.example", "sum.test.example"][..],
            ),
            (
                "https://a.test.example|http://b.test.example:3000,off\noff\n",
                &["a.test.example", "b.test.example:3000"],
            ),
            ("direct\ndb.test.example+1a+Key https://m.test.example/db\n", &["m.test.example"]),
            ("direct\ndb.test.example+1a+Key\n", &["db.test.example"]),
            ("off\n\n", &[]),
            ("", &[]),
        ] {
            let mut findings = Findings::default();
            of_env(text, &mut findings);
            let hosts: Vec<_> = findings.hosts.iter().map(|host| host.rule.as_str()).collect();
            assert_eq!(hosts, expected, "{text}");
        }
    }
}
