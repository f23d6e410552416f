//! Asks npm for its registry and those of scopes.

use super::asking::Asking;
use super::findings::Findings;
use serde_json::{Map, Value};

/// Command line for display.
const CALL: &str = "npm config list --json";

pub(super) async fn ask(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    if let Err(problem) = asking.check(&asking.in_home(".npmrc")) {
        findings.problem(problem);
        return findings;
    }

    // npm creates its cache at each start, also in a home that has none.
    let cache = asking.run_dir().join(format!("npm-{}", std::process::id()));
    let option = format!("--cache={}", cache.display());
    let args = ["config", "list", "--json", "--no-update-notifier", "--logs-max=0", &option];
    if let Some(text) = findings.or_problem(asking.stdout("npm", &args).await) {
        of_config(&text, &mut findings);
    }

    // If this process is killed, the supervisor clears the directory above at its next start.
    std::fs::remove_dir_all(cache).ok();
    findings
}

/// Adds the registries of npm's answer.
fn of_config(text: &str, findings: &mut Findings) {
    let Ok(config) = serde_json::from_str::<Map<String, Value>>(text) else {
        return findings.problem(format!("`{CALL}` printed no JSON"));
    };
    let is_registry = |key: &str| key == "registry" || key.ends_with(":registry");
    for (key, value) in config.iter().filter(|(key, _)| is_registry(key)) {
        let source = format!("npm config get {key}");
        let is_used = value.as_str().is_some_and(|url| findings.url(url, source));
        if !is_used {
            findings.problem(format!("`{CALL}` has a registry without a host"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_and_those_of_scopes_are_found() {
        let mut findings = Findings::default();
        let text = r#"{"registry": "https://me:pw@npm.test.example/r/", "@duck:registry": "http://d.test.example:4873/",
            "replace-registry-host": "never", "cache": "https://no.test.example/", "@x:registry": 7}"#;
        of_config(text, &mut findings);
        let hosts: Vec<_> = findings.hosts.iter().map(|host| host.rule.as_str()).collect();
        assert_eq!(hosts, ["d.test.example:4873", "npm.test.example"]);
        assert_eq!(findings.problems, ["`npm config list --json` has a registry without a host"]);
        for text in ["", "[]", "null", "{\"registry\": "] {
            let mut findings = Findings::default();
            of_config(text, &mut findings);
            assert_eq!((findings.hosts.len(), findings.problems.len()), (0, 1), "{text}");
        }
    }
}
