//! Finds the servers of rustup and of Node.js releases.

use super::asking::Asking;
use super::findings::Findings;
use std::fs;

/// Bytes of a toolchain's manifest that are read. The first URL is near its beginning.
const MANIFEST_BYTES: u64 = 64 * 1024;

/// Maximum number of toolchains that are read.
const MAX_TOOLCHAINS: usize = 64;

/// File of a toolchain with the URLs of its parts.
const MANIFEST: &str = "lib/rustlib/multirust-channel-manifest.toml";

/// Prints the URL of the release from which node was built.
const RELEASE: &str = "process.release.headersUrl||process.release.sourceUrl||''";

pub(super) fn ask_rustup(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    for name in ["RUSTUP_DIST_SERVER", "RUSTUP_UPDATE_ROOT"] {
        findings.url(asking.variable(name).unwrap_or_default(), name);
    }

    let toolchains = asking.dir("RUSTUP_HOME", ".rustup").join("toolchains");
    let entries = fs::read_dir(&toolchains).into_iter().flatten().flatten();
    for entry in entries.take(MAX_TOOLCHAINS) {
        let path = entry.path().join(MANIFEST);
        let text = findings.or_problem(asking.read_start(&path, MANIFEST_BYTES)).flatten();
        if let Some(url) = text.as_deref().and_then(first_url) {
            findings.url(url, path.display().to_string());
        }
    }

    if findings.hosts.is_empty() {
        findings.problem(format!("no toolchain in {} names its server", toolchains.display()));
    }
    findings
}

/// Returns the first `url = "…"` of a manifest.
fn first_url(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("url = \"")?.strip_suffix('"'))
}

pub(super) async fn ask_node(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    let variable = "NVM_NODEJS_ORG_MIRROR";
    if findings.url(asking.variable(variable).unwrap_or_default(), variable) {
        return findings;
    }

    let path = asking.dir("NVM_DIR", ".nvm").join("nvm.sh");
    if let Some(text) = findings.or_problem(asking.read(&path)).flatten()
        && let Some(url) = nvm_default(&text)
        && findings.url(url, path.display().to_string())
    {
        return findings;
    }

    if let Some(text) = findings.or_problem(asking.stdout("node", &["-p", RELEASE]).await)
        && !findings.url(text.trim(), "node -p process.release")
    {
        findings.problem("node does not know the server of its release");
    }
    findings
}

/// The default of the mirror in nvm's script: `${NVM_NODEJS_ORG_MIRROR:-https://…}`.
fn nvm_default(script: &str) -> Option<&str> {
    let (_, rest) = script.split_once("NVM_NODEJS_ORG_MIRROR:-")?;
    rest.split(['}', '"', '\n']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_found_in_a_manifest_and_in_a_script() {
        let manifest = "date = \"x\"\n[pkg.cargo]\navailable = true\nurl = \"https://r.test.example/dist/c.tar.gz\"\n\
            url = \"https://other.test.example/\"\n";
        assert_eq!(first_url(manifest), Some("https://r.test.example/dist/c.tar.gz"));
        assert_eq!(first_url("url = \"https://cut"), None);
        let script = "x) MIRROR=\"${NVM_NODEJS_ORG_MIRROR:-https://n.test.example/dist}\" ;;\n";
        assert_eq!(nvm_default(script), Some("https://n.test.example/dist"));
        assert_eq!(nvm_default(""), None);
    }
}
