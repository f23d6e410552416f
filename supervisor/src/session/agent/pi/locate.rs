//! Finds the Pi executable, builds its arguments, and describes both for `doctor`.

use crate::children::pi_env::has;
use crate::errors::AgentError;
use quackd_config::{Origin, PiSettings, Setting};
use quackd_process::Writable;
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::foreign_text::stripped_line;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Name of the executable if none is configured.
const NAME: &str = "pi";

/// Pi's built-in tools that it may use, as in upstream.
const TOOLS: &str = "read,bash,edit,write,grep,find,ls";

/// Upstream's model for users with an OpenAI key who configure no model.
const OPENAI_MODEL: &str = "gpt-4o-mini";

/// Maximum size of a `package.json`. Pi's has a few KiB.
pub(super) const MAX_MANIFEST_BYTES: u64 = 256 * 1024;

/// Number of directories above the executable that are searched for its package.
const MAX_LEVELS: usize = 6;

/// Finds the executable: the configured one, or the first `pi` of the `PATH`. Never returns one that commands of a
/// session can change. Reads the file system.
pub(crate) fn find_blocking(
    binary: &Setting<String>,
    path: &str,
    config: &Path,
    writable: &Writable,
) -> Result<String, AgentError> {
    let problem = |path: &Path| match writable.holds_blocking(path) {
        Some(held) => Some(format!("which is inside the workspace {}", held.display())),
        None => problem(path),
    };

    let wanted = binary.value.trim();
    let name = if wanted.is_empty() { NAME } else { wanted };

    if !name.contains('/') {
        let found = path
            .split(':')
            .filter(|directory| directory.starts_with('/'))
            .map(|directory| Path::new(directory).join(name))
            .find(|candidate| problem(candidate).is_none());
        if let Some(found) = found.as_deref().and_then(Path::to_str) {
            return Ok(found.to_owned());
        }
        if wanted.is_empty() {
            return Err(AgentError::NotFound { config: config.display().to_string() });
        }
    }

    let why = if name.contains('/') {
        let absolute = (!name.starts_with('/')).then(|| "which is not an absolute path".to_owned());
        absolute.or_else(|| problem(Path::new(name)))
    } else {
        Some("which is not in your PATH".to_owned())
    };

    match why {
        None => Ok(name.to_owned()),
        Some(why) => {
            let origin = match &binary.origin {
                Origin::Environment { variable } => (*variable).to_owned(),
                other => other.to_string(),
            };
            Err(AgentError::Unusable { origin, path: name.to_owned(), why })
        }
    }
}

/// Returns the reason why a file cannot be executed.
fn problem(path: &Path) -> Option<String> {
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some("which does not exist".to_owned())
        }
        Err(error) => Some(format!("which cannot be inspected ({error})")),
        Ok(found) if !found.is_file() => Some("which is not a file".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Some("which is not executable".to_owned())
        }
        Ok(_) => None,
    }
}

/// Pi's arguments, in upstream's order.
pub(crate) fn arguments(
    settings: &PiSettings,
    env: &[(String, String)],
    sessions: &str,
    session_file: &str,
    options: &AgentOptions,
) -> Vec<String> {
    let ModelChoice { model, provider, thinking, .. } = choose(settings, env);
    let tools = tools_of(options);

    let mut args = vec!["--mode", "rpc", "--session-dir", sessions];
    match tools.as_str() {
        "" => args.push("--no-tools"),
        tools => args.extend(["--tools", tools]),
    }

    if let Some(model) = &model {
        args.extend(["--model", model]);
    }
    if let Some(provider) = &provider {
        args.extend(["--provider", provider]);
    }
    args.extend(["--thinking", &thinking]);
    args.extend(["--session", session_file, "-c"]);

    if let Some(prompt) = &options.system_prompt {
        args.extend(["--system-prompt", prompt]);
    }
    for paragraph in &options.append_system_prompt {
        args.extend(["--append-system-prompt", paragraph]);
    }
    if options.no_context_files {
        args.push("--no-context-files");
    }

    let models = options.models.join(",");
    if !models.is_empty() {
        args.extend(["--models", &models]);
    }

    args.into_iter().map(str::to_owned).collect()
}

/// Returns the tools that a client wants, as a list. Every version of Pi has only `--tools`, so that excluded tools are
/// taken from the list.
fn tools_of(options: &AgentOptions) -> String {
    let plain = |entry: &&String| !entry.starts_with(['+', '-']) && !entry.contains('*');
    let named = options.tools.iter().flatten().filter(plain).map(String::as_str);
    let named: Vec<_> = TOOLS.split(',').chain(named).collect();
    let mut tools: Vec<&str> = Vec::new();
    for name in named {
        let is_wanted = options.permits_call(name, name);
        if is_wanted && !tools.contains(&name) {
            tools.push(name);
        }
    }
    tools.join(",")
}

/// Model, provider and thinking level, with their sources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ModelChoice {
    model: Option<String>,
    provider: Option<String>,
    thinking: String,
    model_source: &'static str,
    provider_source: &'static str,
}

/// Chooses the model, provider and thinking level by upstream's rules.
pub(crate) fn choose(settings: &PiSettings, env: &[(String, String)]) -> ModelChoice {
    const DEFAULT: &str = "Pi default";
    const DETECTED: &str = "API key auto-detect";

    let has_key = has(env, "OPENAI_API_KEY");
    let configured = |setting: &Setting<String>| {
        let value = setting.value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let source =
        |setting: &Setting<String>, variable: &'static str, key: &'static str| match setting.origin
        {
            Origin::Environment { .. } => variable,
            _ => key,
        };

    let named = configured(&settings.model);
    let names_provider = named.as_deref().is_some_and(|model| model.contains('/'));
    let (model, model_source) = match named {
        Some(model) => {
            (Some(model), source(&settings.model, "RUBBER_DUCK_PI_MODEL env var", "pi.model"))
        }
        None if has_key => (Some(OPENAI_MODEL.to_owned()), DETECTED),
        None => (None, DEFAULT),
    };

    let (provider, provider_source) = match configured(&settings.provider) {
        Some(provider) => (
            Some(provider),
            source(&settings.provider, "RUBBER_DUCK_PI_PROVIDER env var", "pi.provider"),
        ),
        None if names_provider => (None, DEFAULT),
        None if has_key => (Some("openai".to_owned()), DETECTED),
        None => (None, DEFAULT),
    };

    let thinking = settings.thinking.value.trim().to_owned();
    ModelChoice { model, provider, thinking, model_source, provider_source }
}

impl ModelChoice {
    /// Line for `doctor`.
    pub(crate) fn shown(&self) -> String {
        const DEFAULT: &str = "Pi default";
        format!(
            "{}/{}  thinking:{}  (model:{}, provider:{})",
            self.provider.as_deref().unwrap_or(DEFAULT),
            self.model.as_deref().unwrap_or(DEFAULT),
            self.thinking,
            self.model_source,
            self.provider_source
        )
    }
}

/// Returns the version in the `package.json` of an executable. Reads the file system, and runs nothing.
pub(crate) fn version_blocking(program: &str) -> Option<String> {
    package_blocking(program).map(|(_, version)| version)
}

/// Returns the directory of the package of an executable, and its version.
pub(super) fn package_blocking(program: &str) -> Option<(PathBuf, String)> {
    #[derive(serde::Deserialize)]
    struct Manifest {
        name: String,
        version: String,
    }

    let real: PathBuf = Path::new(program).canonicalize().ok()?;
    real.ancestors().skip(1).take(MAX_LEVELS).find_map(|directory| {
        let path = directory.join("package.json");
        let is_small =
            path.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_MANIFEST_BYTES);
        let text = is_small.then(|| std::fs::read_to_string(path).ok()).flatten()?;
        let Manifest { name, version } = serde_json::from_str(&text).ok()?;
        let version = stripped_line(&version, 40);
        name.contains("pi-coding-agent").then(|| (directory.to_owned(), version))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_config::Config;

    fn settings(model: &str, provider: &str) -> PiSettings {
        let mut settings = Config::default().pi;
        settings.model.value = model.to_owned();
        settings.provider.value = provider.to_owned();
        settings
    }

    fn args(settings: &PiSettings, key: bool, file: &str) -> String {
        let key = key.then(|| ("OPENAI_API_KEY".to_owned(), "sk".to_owned()));
        let env: Vec<_> = key.into_iter().collect();
        arguments(settings, &env, "/app/pi-sessions", file, &AgentOptions::default()).join(" ")
    }

    #[test]
    fn arguments_are_upstreams_in_its_order() {
        let begin =
            "--mode rpc --session-dir /app/pi-sessions --tools read,bash,edit,write,grep,find,ls";
        for (model, provider, key, file, rest) in [
            ("", "", false, "/f", "--thinking off --session /f -c"),
            (
                "",
                "",
                true,
                "/f",
                "--model gpt-4o-mini --provider openai --thinking off --session /f -c",
            ),
            ("m", "", true, "/f", "--model m --provider openai --thinking off --session /f -c"),
            ("a/m", "", true, "/f", "--model a/m --thinking off --session /f -c"),
            ("a/m", "p", false, "/f", "--model a/m --provider p --thinking off --session /f -c"),
            ("", "p", false, "/s.jsonl", "--provider p --thinking off --session /s.jsonl -c"),
        ] {
            let found = args(&settings(model, provider), key, file);
            assert_eq!(found, format!("{begin} {rest}"));
        }
    }

    #[test]
    fn options_of_a_client_limit_the_tools_and_set_the_prompts() {
        let tools = |tools: &[&str], exclude: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let wanted = (!tools.is_empty()).then(|| owned(tools));
            let options = AgentOptions {
                tools: wanted,
                exclude_tools: owned(exclude),
                ..AgentOptions::default()
            };
            tools_of(&options)
        };
        assert_eq!(tools(&[], &[]), TOOLS);
        assert_eq!(tools(&["read", "grep", "own"], &[]), "read,grep,own");
        assert_eq!(tools(&["*e*"], &["write"]), "read,edit,grep");
        assert_eq!(tools(&["-bash"], &[]), "read,edit,write,grep,find,ls");
        assert_eq!(tools(&["bash"], &["bash"]), "");
        let options = AgentOptions {
            append_system_prompt: vec!["one".to_owned(), "two".to_owned()],
            no_context_files: true,
            ..AgentOptions::default()
        };
        let args = arguments(&settings("", ""), &[], "/s", "/f", &options).join(" ");
        let end = "-c --append-system-prompt one --append-system-prompt two --no-context-files";
        assert!(args.ends_with(end), "{args}");
    }

    #[test]
    fn the_choice_says_where_it_comes_from() {
        let shown = choose(&settings("", ""), &[]).shown();
        let expected =
            "Pi default/Pi default  thinking:off  (model:Pi default, provider:Pi default)";
        assert_eq!(shown, expected);
        let mut named = settings("m", "");
        named.model.origin = Origin::Environment { variable: "RUBBER_DUCK_PI_MODEL" };
        let env = [("OPENAI_API_KEY".to_owned(), "sk".to_owned())];
        let expected = "openai/m  thinking:off  (model:RUBBER_DUCK_PI_MODEL env var, provider:API key auto-detect)";
        assert_eq!(choose(&named, &env).shown(), expected);
    }

    #[test]
    fn a_program_is_found_by_path_by_name_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let pi = dir.path().join("pi");
        std::fs::write(&pi, "#!/bin/sh\n").unwrap();
        let path = format!("relative:/nowhere:{}", dir.path().display());
        let config = Path::new("/c.toml");
        let find = |value: &str| {
            let binary = Setting {
                value: value.to_owned(),
                origin: Origin::Environment { variable: "RUBBER_DUCK_PI_BINARY" },
            };
            find_blocking(&binary, &path, config, &Writable::default())
        };
        assert!(matches!(find(""), Err(AgentError::NotFound { .. })), "it is not executable");
        let error = find(pi.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("RUBBER_DUCK_PI_BINARY names") && error.contains("not executable"));
        std::fs::set_permissions(&pi, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("").unwrap(), pi.to_str().unwrap());
        assert_eq!(find("pi").unwrap(), pi.to_str().unwrap());
        assert_eq!(find(pi.to_str().unwrap()).unwrap(), pi.to_str().unwrap());
        let held = Writable::of_blocking(vec![dir.path().to_owned()], Path::new("/home/duck"));
        let binary = Setting { value: pi.display().to_string(), origin: Origin::Default };
        let error = find_blocking(&binary, "", config, &held).unwrap_err().to_string();
        assert!(error.contains("inside the workspace"), "{error}");
        let binary = Setting { value: String::new(), origin: Origin::Default };
        let error = find_blocking(&binary, &path, config, &held).unwrap_err();
        assert!(matches!(error, AgentError::NotFound { .. }));
        for (name, why) in [
            ("other", "not in your PATH"),
            ("/nowhere/pi", "does not exist"),
            ("./pi", "not an absolute path"),
            ("/tmp", "not a file"),
        ] {
            let error = find(name).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_version_is_read_from_the_package_and_nothing_is_run() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("node_modules/@earendil-works/pi-coding-agent");
        std::fs::create_dir_all(package.join("dist")).unwrap();
        let manifest = r#"{"name":"@earendil-works/pi-coding-agent","version":"1.5.2"}"#;
        std::fs::write(package.join("package.json"), manifest).unwrap();
        std::fs::write(package.join("dist/cli.js"), "").unwrap();
        let link = dir.path().join("pi");
        std::os::unix::fs::symlink(package.join("dist/cli.js"), &link).unwrap();
        assert_eq!(version_blocking(link.to_str().unwrap()).as_deref(), Some("1.5.2"));
        assert_eq!(version_blocking("/bin/sh"), None);
    }
}
