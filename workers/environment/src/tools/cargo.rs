//! Asks for the registries of cargo: the user's configuration, else the default registry.
//!
//! No command prints the default registry's host. So cargo resolves an unknown package, offline and with an empty home,
//! and its log names the directory in which it would keep the index: `<host>-<hash>`. The index of that directory in the
//! user's home has the host of the downloads.

use super::asking::{Asking, Problem};
use super::findings::Findings;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The index of crates.io, and the `dl` of its `config.json`, which cargo keeps from its first download on.
const CRATES_IO: &str = "index.crates.io";
const CRATES_IO_DOWNLOADS: &str = "https://static.crates.io/crates";

/// Maximum number of steps from one source to the source that replaces it.
const MAX_REPLACEMENTS: usize = 8;

/// Maximum number of index directories and toolchains that are read.
const MAX_ENTRIES: usize = 64;

/// Manifest of a package that needs a registry.
const MANIFEST: &str = "[package]\nname = \"ask\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
    [lib]\npath = \"lib.rs\"\n[dependencies]\nunknown-to-all-registries = \"1\"\n[workspace]\n";

/// Part of the log before the name of the index directory.
const INDEX: &str = "/registry/index/";

pub(super) async fn ask(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    let home = asking.dir("CARGO_HOME", ".cargo");
    let Some(config) = findings.or_problem(config(asking, &home)) else { return findings };

    for (name, value) in asking.variables() {
        if name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX") {
            findings.url(value, name);
        }
    }

    let replaced = of_config(&config, &mut findings);
    for host in findings.hosts.clone() {
        let name = host.rule.split(':').next();
        let is_of_host = |dir: &String| dir.rsplit_once('-').map(|(host, _hash)| host) == name;
        for dir in index_dirs(&home).into_iter().filter(is_of_host) {
            download_host(asking, &home, &dir, &mut findings);
        }
    }

    if !replaced && let Some(dir) = findings.or_problem(default_index(asking).await) {
        let host = dir.rsplit_once('-').map_or("", |(host, _hash)| host);
        findings.url(&format!("https://{host}/"), "cargo's default registry");
        let is_kept = download_host(asking, &home, &dir, &mut findings);
        if !is_kept && host == CRATES_IO {
            findings.url(CRATES_IO_DOWNLOADS, "the usual host of the downloads of crates.io");
        } else if !is_kept {
            findings.problem(
                "cargo has not kept the host of its downloads yet: run cargo once outside of a session, or name the host",
            );
        }
    }
    findings
}

/// The user's configuration. Empty without one.
fn config(asking: &Asking, home: &Path) -> Result<Table, Problem> {
    for name in ["config", "config.toml"] {
        let path = home.join(name);
        if let Some(text) = asking.read(&path)? {
            let source = io::ErrorKind::InvalidData;
            return text.parse().map_err(|_| Problem::File { path, source: source.into() });
        }
    }
    Ok(Table::new())
}

/// Adds the registries of a configuration. Returns true if the default registry is replaced.
fn of_config(config: &Table, findings: &mut Findings) -> bool {
    let text = |table: &Value, key: &str| Some(table.get(key)?.as_str()?.to_owned());
    let table = |name: &str| config.get(name).and_then(Value::as_table);
    let registries = table("registries").into_iter().flatten();
    let indexes: BTreeMap<_, _> =
        registries.filter_map(|(name, table)| Some((name, text(table, "index")?))).collect();

    for (name, index) in indexes {
        findings.url(&index, format!("registries.{name} of cargo's configuration"));
    }

    let source = |name: &str| table("source").and_then(|sources| sources.get(name));
    let next = |name: &str| source(name).and_then(|source| text(source, "replace-with"));

    let Some(mut name) = next("crates-io") else { return false };
    // A limit, because sources may replace each other in a circle.
    for _ in 0..MAX_REPLACEMENTS {
        match next(&name) {
            Some(replacement) => name = replacement,
            None => break,
        }
    }

    // A source without this key is a directory, a git repository, or one of `registries` above.
    if let Some(url) = source(&name).and_then(|source| text(source, "registry")) {
        findings.url(&url, format!("source.{name} of cargo's configuration"));
    }
    true
}

/// Names of the indexes that the user's cargo keeps.
fn index_dirs(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home.join("registry/index")).into_iter().flatten().flatten();
    entries.take(MAX_ENTRIES).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Adds the host of the downloads of an index. Returns false if cargo does not keep it.
fn download_host(asking: &Asking, home: &Path, dir: &str, findings: &mut Findings) -> bool {
    #[derive(Deserialize)]
    struct IndexConfig {
        dl: String,
    }

    let path = home.join("registry/index").join(dir).join("config.json");
    let Some(text) = findings.or_problem(asking.read(&path)).flatten() else { return false };
    let config: Result<IndexConfig, _> = serde_json::from_str(&text);
    config.is_ok_and(|config| findings.url(&config.dl, path.display().to_string()))
}

/// Returns the name of the directory in which cargo keeps the index of its default registry.
async fn default_index(asking: &Asking) -> Result<String, Problem> {
    let toolchains = asking.dir("RUSTUP_HOME", ".rustup").join("toolchains");
    for toolchain in fs::read_dir(toolchains).into_iter().flatten().flatten().take(MAX_ENTRIES) {
        // rustup's cargo runs the cargo of a linked toolchain.
        asking.check(&toolchain.path())?;
    }

    let package = Package::create(asking.run_dir())?;
    let (manifest, home) = (package.0.join("Cargo.toml"), package.0.display().to_string());
    let manifest = manifest.display().to_string();

    let args = ["generate-lockfile", "--offline", "--manifest-path", &manifest];
    let env = [
        ("CARGO_HOME", home.as_str()),
        ("CARGO_LOG", "cargo::sources::registry::index=debug"),
        ("CARGO_TERM_COLOR", "never"),
    ];

    // It fails because the package is unknown.
    let output = asking.output("cargo", &args, &env).await?;
    index_dir(&output.stderr).ok_or_else(|| Problem::Unreadable("cargo's log".to_owned()))
}

/// Directory of an empty package. Removed when dropped.
struct Package(PathBuf);

impl Package {
    fn create(run_dir: &Path) -> Result<Self, Problem> {
        let dir = run_dir.join(format!("cargo-{}", std::process::id()));
        let create = || {
            fs::create_dir(&dir)?;
            fs::write(dir.join("Cargo.toml"), MANIFEST)?;
            fs::write(dir.join("lib.rs"), "")
        };
        let created = create().map_err(|source| Problem::File { path: dir.clone(), source });
        let package = Self(dir);
        created.map(|()| package)
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // The supervisor clears the directory above at its next start.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Finds the directory of the index in cargo's log.
fn index_dir(log: &str) -> Option<String> {
    let (_, rest) = log.split_once(INDEX)?;
    let dir = rest.split(['/', '"', '\n']).next()?;
    let is_plain = dir.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    (is_plain && dir.contains('-')).then(|| dir.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts_of(config: &str) -> (bool, Vec<String>) {
        let mut findings = Findings::default();
        let replaced = of_config(&config.parse().unwrap(), &mut findings);
        (replaced, findings.hosts.into_iter().map(|host| host.rule).collect())
    }

    #[test]
    fn replacements_and_further_registries_are_followed() {
        for (config, replaced, hosts) in [
            ("", false, &[][..]),
            (
                "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://me:pw@m.test.example/i/\"",
                true,
                &["m.test.example"],
            ),
            (
                "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"b\"\n[source.b]\nregistry = \"https://b.test.example:8443/git\"",
                true,
                &["b.test.example:8443"],
            ),
            (
                "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"a\"",
                true,
                &[],
            ),
            (
                "[source.crates-io]\nreplace-with = \"v\"\n[source.v]\ndirectory = \"/vendor\"",
                true,
                &[],
            ),
            (
                "[registries.own]\nindex = \"sparse+https://own.test.example/\"\n[source.crates-io]\nreplace-with = \"own\"",
                true,
                &["own.test.example"],
            ),
            ("[registries]\nown = 7\n[source]\ncrates-io = \"no table\"", false, &[]),
        ] {
            let expected = hosts.iter().map(|host| (*host).to_owned()).collect();
            assert_eq!(hosts_of(config), (replaced, expected), "{config}");
        }
    }

    #[test]
    fn the_log_names_the_index() {
        let log = "0.01s DEBUG cache missing cache_path=\"/tmp/h/registry/index/a.test.example-0f9e/.cache/x\"\n";
        assert_eq!(index_dir(log).as_deref(), Some("a.test.example-0f9e"));
        for log in ["", "/registry/index/", "/registry/index/../x", "/registry/index/a b-1/"] {
            assert_eq!(index_dir(log), None, "{log}");
        }
    }
}
