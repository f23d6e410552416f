//! The catalog: which models there are, with which keys, and which one a session uses by default.
//!
//! Sources, the strongest first: `[model]` of the configuration, Pi's `models.json`, Pi's `auth.json`, the variables of
//! well-known providers, and the keys of `quack login`. Reads three small files and contacts no server. The supervisor
//! loads it again when a source changes.

mod builtin;
mod choose;
mod json;
mod known;
mod pi_files;
mod probe;
mod provider;
mod settings;
mod unused_keys;
mod verdict;

pub use builtin::{provider_names, provider_variables, variables_of};
pub use known::{KnownFamily, known_families};
pub use probe::{PROBE_LIMIT_TOKENS, ProbeAnswer, probe_body};
pub use settings::{Chosen, Given, ModelList, ModelLists, ModelSettings};

use crate::ModelEndpoints;
use builtin::KeySource;
use pi_files::{AuthFile, ModelsFile};
use provider::Provider;
use quackd_protocol::model::{MAX_MODELS, ModelInfo};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of providers of `models.json`. Further ones are reported as a problem.
const MAX_PROVIDERS: usize = 64;

/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 32;

/// Everything that the catalog is made of.
pub struct ModelSources {
    /// The daemon's variables, merged with those of the login shell and of clients.
    pub env: Vec<(String, String)>,
    /// Names of the variables that are from the shell of a client.
    pub of_shell: Vec<String>,
    /// The file of `quack login`, whether it exists or not. `None`: it is not read.
    pub logins: Option<PathBuf>,
    /// Home directory of the user.
    pub home: PathBuf,
    /// `[model]` of the configuration.
    pub settings: ModelSettings,
    /// Reason for the user why Pi's files must not be read.
    pub distrust: Option<String>,
    /// Answers of providers to requests for their models.
    pub lists: ModelLists,
}

impl ModelSources {
    /// Returns the files that the catalog reads, whether they exist or not.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let directory = pi_files::directory(&self.env, &self.home);
        let of_pi = [directory.join("models.json"), directory.join("auth.json")];
        of_pi.into_iter().chain(self.logins.clone()).collect()
    }

    /// Returns a further file, which chooses neither keys nor addresses. Its unused keys are reported.
    #[must_use]
    pub fn settings_file(&self) -> PathBuf {
        pi_files::directory(&self.env, &self.home).join("settings.json")
    }

    /// Returns whether these variables have the key of a well-known provider, or the address of
    /// another server.
    #[must_use]
    pub fn has_provider(env: &[(String, String)]) -> bool {
        let names = builtin::BUILTINS
            .iter()
            .flat_map(|known| known.keys.iter().copied().chain(known.base_variable));
        names.into_iter().any(|name| provider::variable(env, name).is_some())
    }
}

/// Shows no variable: they contain keys.
impl fmt::Debug for ModelSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelSources").field("home", &self.home).finish_non_exhaustive()
    }
}

/// The models and their providers. `Debug` shows no secret.
#[derive(Debug)]
pub struct ModelCatalog {
    providers: Vec<Provider>,
    models: Vec<ModelInfo>,
    chosen: Option<Chosen>,
    problems: Vec<String>,
    idle_timeout: Duration,
    pi_directory: PathBuf,
}

impl ModelCatalog {
    /// Reads the files and builds the catalog. Never fails: it has [`problems`](Self::problems) instead.
    #[must_use]
    pub fn load_blocking(sources: &ModelSources) -> Self {
        let directory = pi_files::directory(&sources.env, &sources.home);
        let (models, auth) = match &sources.distrust {
            Some(problem) => (Err(problem.clone()), AuthFile::default()),
            None => (
                pi_files::read_models_blocking(&directory),
                pi_files::read_auth_blocking(&directory.join("auth.json")),
            ),
        };
        let logins = sources.logins.as_deref().map(pi_files::read_auth_blocking);
        let logins = logins.unwrap_or_default();

        let mut catalog = Self::build(sources, models, auth, logins);
        if sources.distrust.is_none() {
            catalog.problems.extend(unused_keys::problems_blocking(&directory));
        }
        catalog
    }

    /// Returns the directory of Pi's files, whether it exists or not.
    #[must_use]
    pub fn pi_directory(&self) -> &Path {
        &self.pi_directory
    }

    fn build(
        sources: &ModelSources,
        file: Result<ModelsFile, String>,
        auth: AuthFile,
        logins: AuthFile,
    ) -> Self {
        let (env, settings) = (sources.env.as_slice(), &sources.settings);
        let mut problems = Vec::new();
        let file = file.unwrap_or_else(|problem| {
            problems.push(problem);
            ModelsFile::default()
        });

        problems.extend(logins.problems.into_iter().chain(auth.problems));
        if let Some(Err(problem)) = &settings.key {
            problems.push(format!("`model.key` of the configuration: {problem}"));
        }

        let mut providers: Vec<Provider> = builtin::BUILTINS
            .iter()
            .map(|known| Provider::of_builtin(known, env, &sources.of_shell, &mut problems))
            .collect();

        // A key of `quack login` is weaker than a variable, and one of `auth.json` is stronger.
        for provider in &mut providers {
            if let Some(key) = logins.keys.get(&provider.name).filter(|_| !provider.has_key()) {
                provider.take_key(key, KeySource::Login, &[], &mut problems);
            }
            if let Some(key) = auth.keys.get(&provider.name) {
                provider.take_key(key, KeySource::PiAuth, env, &mut problems);
            }
        }

        if MAX_PROVIDERS < file.providers.len() {
            problems.push(format!("models.json: only {MAX_PROVIDERS} providers are used"));
        }
        let mut first_of_file = None;
        for (name, given) in file.providers.into_iter().take(MAX_PROVIDERS) {
            let provider = entry(&mut providers, &name);
            if let Some(key) = auth.keys.get(&name) {
                provider.take_key(key, KeySource::PiAuth, env, &mut problems);
            }
            provider.take_file(given, env, &mut problems);
            if first_of_file.is_none() && provider.is_usable() {
                first_of_file = provider.models.first().map(|model| (name, model.info.id.clone()));
            }
        }

        let configured = choose::configured_provider(settings);
        if let Some(name) = &configured {
            entry(&mut providers, name).take_settings(settings, &mut problems);
        }

        for provider in &mut providers {
            provider.seal(&sources.lists, &mut problems);
        }

        let context = choose::Context { settings, configured, first_of_file, env };
        let chosen = choose::choose(&context, &providers, &mut problems);

        let usable = providers.iter().filter(|provider| provider.is_usable());
        let mut models: Vec<ModelInfo> = usable
            .flat_map(|provider| provider.models.iter().map(|model| model.info.clone()))
            .collect();

        if let Some(chosen) = &chosen {
            // The chosen model has the limits of the configuration.
            match models.iter_mut().find(|model| is_same(model, &chosen.model)) {
                Some(listed) => listed.clone_from(&chosen.model),
                None => models.insert(0, chosen.model.clone()),
            }
        }

        models.truncate(MAX_MODELS);
        problems.truncate(MAX_PROBLEMS);
        let idle_timeout = settings.idle_timeout;
        let pi_directory = pi_files::directory(env, &sources.home);
        Self { providers, models, chosen, problems, idle_timeout, pi_directory }
    }

    /// Returns the models of all providers with a key, and of local servers without one; at most [`MAX_MODELS`].
    #[must_use]
    pub fn models(&self) -> &[ModelInfo] {
        &self.models
    }

    /// Returns the model that a session uses by default; `None` if nothing is configured, or not completely.
    #[must_use]
    pub fn chosen(&self) -> Option<&Chosen> {
        self.chosen.as_ref()
    }

    /// Finds a model. Without a provider, `id` may begin with one and a slash. An unlisted id of a provider with a key
    /// gets the default facts.
    #[must_use]
    pub fn find(&self, provider: Option<&str>, id: &str) -> Option<ModelInfo> {
        let model = choose::find(&self.providers, provider, id)?;
        let chosen = self.chosen.as_ref().map(|chosen| &chosen.model);
        Some(chosen.filter(|chosen| is_same(chosen, &model)).cloned().unwrap_or(model))
    }

    /// Returns the problems of the sources, each in one line and without a secret.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the providers that requests can go to.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        let usable = self.providers.iter().filter(|provider| provider.is_usable());
        usable.map(|provider| provider.name.as_str())
    }

    /// Returns whether the user has stated the window of a model, so that its provider need not be
    /// asked.
    #[must_use]
    pub fn is_stated(&self, model: &ModelInfo) -> bool {
        let mut of = self.providers.iter().filter(|known| known.name == model.provider);
        of.any(|provider| provider.says_window(&model.id))
    }

    /// Returns the base URL of a usable provider, without a secret.
    #[must_use]
    pub fn base_of(&self, provider: &str) -> Option<&str> {
        let usable =
            self.providers.iter().find(|known| known.name == provider && known.is_usable());
        usable.map(|known| known.shown_base.as_str())
    }

    /// Returns the providers that need no key.
    pub fn keyless(&self) -> impl Iterator<Item = &str> {
        let keyless = self.providers.iter().filter(|known| known.is_usable() && !known.has_key());
        keyless.map(|provider| provider.name.as_str())
    }

    /// Returns the endpoints for [`crate::Egress::set_models`], with the keys.
    #[must_use]
    pub fn endpoints(&self) -> ModelEndpoints {
        let mut endpoints = ModelEndpoints::new(self.idle_timeout);
        for provider in self.providers.iter().filter(|provider| provider.is_usable()) {
            if let Ok(usual) = provider.route(None) {
                let own = provider.models.iter().filter(|model| model.has_own_route());
                let own = own.filter_map(|model| {
                    Some((model.info.id.clone(), provider.route(Some(model)).ok()?))
                });
                endpoints.insert(&provider.name, usual, own.collect());
            }
        }
        endpoints
    }

    /// Returns the instructions for a user without a model, and the problems that may be the reason.
    #[must_use]
    pub fn missing(&self) -> String {
        let mut text = "No model is configured. Do one of these:\n\
         - set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY in this shell; the next `quack say` passes it on\n\
         - store a key once: `quack login openai`, or another provider\n\
         - use a local server: `quack config set model.provider ollama`, `quack config set model.name qwen3`, `quack restart`; also lmstudio and llama.cpp\n\
         - use any other server: set model.base_url, model.name and model.key with `quack config set`, then run `quack restart`\n\
         - use the models of Pi: quackd reads ~/.pi/agent/models.json and the API keys in ~/.pi/agent/auth.json\n\
         `quack models --test` then sends a short request"
            .to_owned();

        for problem in &self.problems {
            text.push_str("\nProblem: ");
            text.push_str(problem);
        }
        text
    }
}

fn is_same(model: &ModelInfo, other: &ModelInfo) -> bool {
    model.provider == other.provider && model.id == other.id
}

/// Returns the provider with this name, and adds it if necessary.
fn entry<'a>(providers: &'a mut Vec<Provider>, name: &str) -> &'a mut Provider {
    let at = providers.iter().position(|known| known.name == name).unwrap_or_else(|| {
        providers.push(Provider::named(name));
        providers.len() - 1
    });
    // `at` is the index of an existing element.
    #[expect(clippy::indexing_slicing, reason = "found or pushed just now")]
    &mut providers[at]
}

#[cfg(test)]
mod tests;
