//! Manifests of packages: ordinary work changes them, but some of their keys name programs that editors and package
//! managers run. Only these keys are compared.
//!
//! A key counts unless it is known to name no program, because tools keep adding keys.

use crate::git::openat;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::path::Path;

/// Effect of such a file, to be read after its name.
pub(super) const WHY: &str = "has keys that name programs for tools to run";

/// Digest of a manifest without such keys.
pub(super) const NO_KEYS: u64 = 0;

/// Names of the manifests.
const NAMES: [&str; 4] = ["composer.json", "package.json", "package.yaml", "pyproject.toml"];

/// Keys of `package.json` and `composer.json` that describe the package and its dependencies.
const HARMLESS: [&str; 60] = [
    "author",
    "authors",
    "autoload",
    "autoload-dev",
    "bin",
    "browser",
    "browserslist",
    "bugs",
    "bundleDependencies",
    "bundledDependencies",
    "conflict",
    "contributors",
    "cpu",
    "dependencies",
    "dependenciesMeta",
    "description",
    "devDependencies",
    "directories",
    "displayName",
    "engines",
    "exports",
    "files",
    "funding",
    "homepage",
    "icon",
    "imports",
    "keywords",
    "libc",
    "license",
    "licenses",
    "main",
    "maintainers",
    "man",
    "minimum-stability",
    "module",
    "name",
    "optionalDependencies",
    "os",
    "peerDependencies",
    "peerDependenciesMeta",
    "prefer-stable",
    "private",
    "productName",
    "provide",
    "publishConfig",
    "publisher",
    "readme",
    "replace",
    "repository",
    "require",
    "require-dev",
    "sideEffects",
    "source",
    "suggest",
    "support",
    "type",
    "types",
    "typesVersions",
    "typings",
    "version",
];

/// Scripts that a package manager runs by itself. The user names the others.
const LIFECYCLE: [&str; 18] = [
    "dependencies",
    "install",
    "pnpm:devPreinstall",
    "postinstall",
    "postpack",
    "postprepare",
    "postpublish",
    "postuninstall",
    "postversion",
    "preinstall",
    "prepack",
    "prepare",
    "preprepare",
    "prepublish",
    "prepublishOnly",
    "preuninstall",
    "preversion",
    "uninstall",
];

/// Beginnings of Composer's events.
const EVENTS: [&str; 2] = ["pre-", "post-"];

/// Keys of the tables of `tool` in `pyproject.toml` that describe dependencies.
const DEPENDENCIES: [&str; 8] = [
    "constraint-dependencies",
    "dependencies",
    "dependency-groups",
    "dev-dependencies",
    "extras",
    "group",
    "optional-dependencies",
    "version",
];

/// Returns true for the name of a manifest.
pub(super) fn is_one(name: &OsStr) -> bool {
    NAMES.iter().any(|known| name == *known)
}

/// Returns a digest of the keys of a manifest that may name programs. A manifest that cannot be parsed counts as a
/// whole.
pub(super) fn digest_blocking(root: impl AsFd, path: &Path) -> u64 {
    let Ok(text) = openat::read(root, path) else { return NO_KEYS };
    match programs(path, &text) {
        Some(keys) if keys.is_empty() => NO_KEYS,
        keys => {
            let mut hasher = DefaultHasher::new();
            keys.unwrap_or(text).hash(&mut hasher);
            // `NO_KEYS` is the digest of a manifest without such keys.
            hasher.finish().max(NO_KEYS + 1)
        }
    }
}

/// Returns the keys that may name programs as text, and an empty text if there are none. `None` for a text that cannot
/// be parsed.
pub(super) fn programs(path: &Path, text: &str) -> Option<String> {
    let name = path.file_name()?;
    let keys = if name == "pyproject.toml" {
        of_python(toml::from_str(text).ok()?)
    } else if name == "package.yaml" {
        // There is no parser for YAML here, so the text counts as a whole.
        return None;
    } else {
        of_package(serde_json::from_str(text).ok()?)
    };
    Some(if keys.is_empty() { String::new() } else { Value::Object(keys).to_string() })
}

fn of_package(mut keys: Map<String, Value>) -> Map<String, Value> {
    keys.retain(|key, _| HARMLESS.binary_search(&key.as_str()).is_err());
    if let Some(Value::Object(scripts)) = keys.get_mut("scripts") {
        scripts.retain(|name, _| {
            LIFECYCLE.contains(&name.as_str()) || EVENTS.iter().any(|event| name.starts_with(event))
        });
        if scripts.is_empty() {
            keys.remove("scripts");
        }
    }
    keys
}

fn of_python(mut keys: Map<String, Value>) -> Map<String, Value> {
    keys.retain(|key, _| key == "tool" || key == "build-system");
    if let Some(Value::Object(tools)) = keys.get_mut("tool") {
        for tool in tools.values_mut().filter_map(Value::as_object_mut) {
            tool.retain(|key, _| !DEPENDENCIES.contains(&key.as_str()));
        }
        tools.retain(|_, tool| tool.as_object().is_none_or(|tool| !tool.is_empty()));
        if tools.is_empty() {
            keys.remove("tool");
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str, text: &str) -> Option<String> {
        programs(Path::new(name), text)
    }

    #[test]
    fn only_keys_that_may_name_programs_are_compared() {
        assert!(HARMLESS.is_sorted());
        let ordinary = r#"{"name": "a", "version": "2", "dependencies": {"x": "1"},
            "scripts": {"test": "jest", "build": "tsc"}}"#;
        assert_eq!(keys("package.json", ordinary).unwrap(), "");
        assert_eq!(keys("package.json", "{}").unwrap(), "");
        let programs = r#"{"name": "a", "prettier": {"plugins": ["./e.cjs"]},
            "scripts": {"test": "jest", "postinstall": "./evil"}}"#;
        assert_eq!(
            keys("package.json", programs).unwrap(),
            r#"{"prettier":{"plugins":["./e.cjs"]},"scripts":{"postinstall":"./evil"}}"#
        );
        let python = "[project]\nname='a'\ndependencies=['x']\n[tool.poetry.dependencies]\ny='1'\n";
        assert_eq!(keys("pyproject.toml", python).unwrap(), "");
        let plugin = format!("{python}[tool.mypy]\nplugins='./q.py'\n");
        assert_eq!(
            keys("pyproject.toml", &plugin).unwrap(),
            r#"{"tool":{"mypy":{"plugins":"./q.py"}}}"#
        );
        assert_eq!(keys("package.json", "{"), None);
        assert_eq!(keys("package.yaml", "prettier: {}"), None);
    }
}
