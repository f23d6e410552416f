//! Asks pip for its package indexes, and reads the configuration of uv.

use super::asking::{Asking, Problem};
use super::findings::Findings;
use std::path::PathBuf;
use toml::{Table, Value};

/// Prints pip's default index and its default host of files, which are in its code, and its configuration.
///
/// Without `site`, since a file of an editable package there may lead to modules of a workspace, which Python then runs
/// at its start.
const SCRIPT: &str = "import site, sys\n\
    sys.path += site.getsitepackages()\n\
    from pip._internal.models.index import PyPI as index\n\
    print('default.index-url=' + index.simple_url)\n\
    print('default.files=https://' + index.file_storage_domain, flush=True)\n\
    from pip._internal.cli.main import main\n\
    sys.exit(main(['config', 'list']))";

/// Arguments of the interpreter: isolated from the user's modules, the variables and the working directory.
const ARGS: [&str; 4] = ["-I", "-S", "-c", SCRIPT];

/// Command line for display.
const CONFIG_CALL: &str = "pip config list";

/// Variables with indexes of uv, separated by blanks. An index may have a name: `name=url`.
const UV_VARIABLES: [&str; 5] =
    ["UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"];

pub(super) async fn ask(asking: &Asking) -> Findings {
    let mut findings = Findings::default();
    let config_home = asking.dir("XDG_CONFIG_HOME", ".config");
    for path in [config_home.join("pip/pip.conf"), asking.in_home(".pip/pip.conf")] {
        if let Err(problem) = asking.check(&path) {
            findings.problem(problem);
            return findings;
        }
    }

    match asking.stdout("python3", &ARGS).await {
        Ok(text) => of_config(&text, &mut findings),
        Err(Problem::Failed { .. }) => {
            findings.problem("python3 has no pip that lists its configuration");
        }
        Err(problem) => findings.problem(problem),
    }

    for name in UV_VARIABLES {
        let value = asking.variable(name).unwrap_or_default();
        for index in value.split_whitespace() {
            findings.url(index.split_once('=').map_or(index, |(_, url)| url), name);
        }
    }

    let path: PathBuf = config_home.join("uv/uv.toml");
    if let Some(text) = findings.or_problem(asking.read(&path)).flatten() {
        of_uv(&text, &path.display().to_string(), &mut findings);
    }
    findings
}

/// Adds the indexes of pip's configuration. The defaults count only without another index.
fn of_config(text: &str, findings: &mut Findings) {
    let (mut defaults, mut is_replaced) = (Vec::new(), false);
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        if key.starts_with("default.") {
            defaults.push(value);
            continue;
        }

        let key = key.rsplit('.').next().unwrap_or_default();
        if !matches!(key, "index-url" | "extra-index-url" | "find-links") {
            continue;
        }

        // The value is a literal of Python.
        let value = value.trim().trim_matches(['\'', '"']).replace("\\n", " ");
        for url in value.split_whitespace() {
            let is_host = findings.url(url, CONFIG_CALL);
            is_replaced |= key == "index-url" && is_host;
        }
    }

    for url in defaults.into_iter().filter(|_| !is_replaced) {
        findings.url(url, "pip's default");
    }
}

/// Adds the indexes of uv's configuration.
fn of_uv(text: &str, path: &str, findings: &mut Findings) {
    let Ok(config) = text.parse::<Table>() else {
        return findings.problem(format!("{path} is no TOML"));
    };

    let tables = [Some(&config), config.get("pip").and_then(Value::as_table)];
    for table in tables.into_iter().flatten() {
        for key in ["index-url", "extra-index-url", "find-links", "index"] {
            let values = match table.get(key) {
                Some(Value::Array(values)) => values.iter().collect(),
                Some(value) => vec![value],
                None => Vec::new(),
            };
            for value in values {
                let url = value.as_str().or_else(|| value.get("url")?.as_str());
                findings.url(url.unwrap_or_default(), path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(findings: &Findings) -> Vec<&str> {
        findings.hosts.iter().map(|host| host.rule.as_str()).collect()
    }

    #[test]
    fn indexes_of_pip_are_found() {
        let defaults = "default.index-url=https://d.test.example/simple\ndefault.files=https://f.test.example\n";
        let mut findings = Findings::default();
        let text = ":env:.default-timeout='180'\nglobal.index-url='https://u:p@pip.test.example/simple'\n\
            install.extra-index-url='\\nhttps://a.test.example/s\\nhttp://b.test.example:8081/s'\n\
            global.find-links='/opt/wheels'\nglobal.trusted-host='no.test.example'\nnoise\n";
        of_config(&format!("{defaults}{text}"), &mut findings);
        assert_eq!(rules(&findings), ["pip.test.example", "a.test.example", "b.test.example:8081"]);
        let mut findings = Findings::default();
        let text = ":env:.extra-index-url='https://a.test.example/s'\n";
        of_config(&format!("{defaults}{text}"), &mut findings);
        assert_eq!(rules(&findings), ["a.test.example", "d.test.example", "f.test.example"]);
    }

    #[test]
    fn indexes_of_uv_are_found() {
        let mut findings = Findings::default();
        let text = "index-url = \"https://a.test.example/simple\"\n[[index]]\nname = \"x\"\n\
            url = \"https://b.test.example/simple\"\n[pip]\nextra-index-url = [\"https://c.test.example\", 7]\n";
        of_uv(text, "uv.toml", &mut findings);
        assert_eq!(rules(&findings), ["a.test.example", "b.test.example", "c.test.example"]);
        of_uv("= nothing", "uv.toml", &mut findings);
        assert_eq!(findings.problems, ["uv.toml is no TOML"]);
    }
}
