//! One provider while the catalog is built: its address, its key, its headers and its models, with their sources.

use super::builtin::{self, Builtin, KeySource};
use super::known::{describe, is_openai_reasoning};
use super::pi_files::{PiFacts, PiModel, PiProvider, apply, merged, resolve};
use super::settings::{Given, ModelLists, ModelSettings};
use crate::{Key, ListedModel, Route, RouteError, RouteSettings};
use quackd_protocol::foreign_text::{first_unsafe, stripped_line};
use quackd_protocol::model::{MAX_MODELS, ModelApi, ModelCompat, ModelInfo, Price};
use secrecy::ExposeSecret;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum length of the id of a model or provider, in bytes.
const MAX_ID_BYTES: usize = 256;

/// A provider.
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) api: ModelApi,
    /// Whether the user has named the API.
    has_own_api: bool,
    base_url: String,
    /// The user named the base URL, so that a server without a key is wanted.
    is_named: bool,
    key: Option<Key>,
    pub(super) key_source: KeySource,
    headers: Vec<(String, String)>,
    with_bearer: bool,
    compat: Option<ModelCompat>,
    pub(super) models: Vec<Model>,
    /// Reason why the provider cannot be used.
    broken: bool,
    /// The base URL of the description of models, without a secret.
    pub(super) shown_base: String,
    /// Price of models that have no separate price.
    usual_price: Price,
    /// Models in the last answer of the provider. Empty if it was not asked.
    listed: Vec<ListedModel>,
    /// The model that stands in for the usual one, which the provider no longer offers, and the text for the user.
    pub(super) retired: Option<(String, String)>,
}

/// A model of a provider.
pub(super) struct Model {
    pub(super) info: ModelInfo,
    base_url: Option<String>,
    headers: Vec<(String, String)>,
    /// Whether the user has said whether it reasons, and which limits it has.
    says_reasoning: bool,
    says_window: bool,
    says_max_tokens: bool,
}

impl Model {
    fn plain(info: ModelInfo) -> Self {
        Self {
            info,
            base_url: None,
            headers: Vec::new(),
            says_reasoning: false,
            says_window: false,
            says_max_tokens: false,
        }
    }

    fn note(&mut self, facts: &PiFacts) {
        self.says_reasoning |= facts.reasoning.is_some();
        self.says_window |= facts.context_window.is_some();
        self.says_max_tokens |= facts.max_tokens.is_some();
    }

    /// Returns whether requests to this model take another route than those to the other ones.
    pub(super) fn has_own_route(&self) -> bool {
        self.base_url.is_some() || !self.headers.is_empty()
    }
}

/// Returns a variable that is not blank.
pub(super) fn variable<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let text = env.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim());
    text.filter(|value| !value.is_empty())
}

impl Provider {
    /// Creates a provider without anything but the address of a well-known one.
    pub(super) fn named(name: &str) -> Self {
        let is_local = builtin::LOCAL_SERVERS.iter().any(|(local, _)| *local == name);
        Self {
            name: name.to_owned(),
            api: builtin::builtin(name).map_or(ModelApi::OpenAiCompletions, |it| it.api),
            base_url: builtin::base_url(name).unwrap_or_default().to_owned(),
            has_own_api: false,
            is_named: is_local,
            key: None,
            key_source: KeySource::None,
            headers: Vec::new(),
            with_bearer: false,
            compat: None,
            models: Vec::new(),
            broken: false,
            shown_base: String::new(),
            usual_price: Price::Unknown,
            listed: Vec::new(),
            retired: None,
        }
    }

    /// Creates a well-known provider with the key of its variables. `of_shell` are the names of those that a client
    /// passed on.
    pub(super) fn of_builtin(
        builtin: &Builtin,
        env: &[(String, String)],
        of_shell: &[String],
        problems: &mut Vec<String>,
    ) -> Self {
        let mut provider = Self::named(builtin.name);
        let base = builtin.base_variable.and_then(|name| variable(env, name));
        if let Some(base) = base {
            base.clone_into(&mut provider.base_url);
            // Without a key, only a server without encryption is one that may need none.
            provider.is_named = base.starts_with("http://");
        }

        for &name in builtin.keys {
            if let Some(value) = variable(env, name)
                && provider.key.is_none()
            {
                match Key::parse(value) {
                    Ok(key) => {
                        provider.key = key;
                        let is_of_shell = of_shell.iter().any(|known| known == name);
                        provider.key_source = if is_of_shell {
                            KeySource::ShellVariable(name)
                        } else {
                            KeySource::Variable(name)
                        };
                    }
                    Err(_unusable) => problems.push(format!(
                        "{name} cannot be sent in a header: it has spaces or other unusual characters"
                    )),
                }
            }
        }
        provider
    }

    /// Applies a key of a file. A source that is stronger than the earlier ones.
    pub(super) fn take_key(
        &mut self,
        value: &str,
        source: KeySource,
        env: &[(String, String)],
        problems: &mut Vec<String>,
    ) {
        match resolve(value, env).map(|key| Key::parse(&key)) {
            Ok(Ok(Some(key))) => {
                self.key = Some(key);
                self.key_source = source;
            }
            Ok(Ok(None)) => {}
            Ok(Err(_unusable)) => {
                problems
                    .push(format!("{source}: the key of {} cannot be sent in a header", self.name));
            }
            Err(why) => problems.push(format!("{source}: the key of {} {why}", self.name)),
        }
    }

    /// Applies an entry of `models.json`.
    pub(super) fn take_file(
        &mut self,
        given: PiProvider,
        env: &[(String, String)],
        problems: &mut Vec<String>,
    ) {
        const SOURCE: &str = "models.json of Pi";
        let api = self.api_named(given.api.as_deref(), problems);
        let is_foreign = given.api.is_some() && api.is_none();
        // The provider has an API that quackd does not have, and so have all of its models.
        if is_foreign && given.models.iter().all(|model| model.api.is_none()) {
            return;
        }

        if let Some(base) = given.base_url {
            self.base_url = base.trim().to_owned();
            self.is_named = true;
        }
        if let Some(api) = api {
            self.api = api;
            self.has_own_api = true;
        }

        if let Some(key) = given.api_key {
            let is_plain = self.base_url.starts_with("http://");
            // Pi requires a key, also for servers that need none.
            if !(is_plain && builtin::is_placeholder(key.trim())) {
                self.take_key(&key, KeySource::PiModels, env, problems);
            }
        }

        self.headers = self.resolved(given.headers, env, problems);
        self.with_bearer |= given.auth_header;
        self.compat = given.compat;

        for PiModel { id, api, base_url, headers, facts } in
            given.models.into_iter().take(MAX_MODELS)
        {
            if id.is_empty() || MAX_ID_BYTES < id.len() || first_unsafe(&id).is_some() {
                problems.push(format!("{SOURCE}: a model of {} has no usable id", self.name));
                continue;
            }
            let own = match api {
                None => (!is_foreign).then(|| self.api_of(&id)),
                Some(api) => self.api_named(Some(&api), problems),
            };
            let Some(api) = own else { continue };

            let headers = self.resolved(headers, env, problems);
            let mut info = describe(&self.name, &id, api, "");
            apply(&mut info, &facts);
            // Of several entries with one id, the last applies.
            self.models.retain(|known| known.info.id != id);
            let mut model = Model { base_url, headers, ..Model::plain(info) };
            model.note(&facts);
            self.models.push(model);
        }

        for (id, facts) in given.model_overrides.into_iter().take(MAX_MODELS) {
            if !self.models.iter().any(|known| known.info.id == id) {
                let info = describe(&self.name, &id, self.api_of(&id), "");
                self.models.push(Model::plain(info));
            }
            if let Some(model) = self.models.iter_mut().find(|known| known.info.id == id) {
                model.note(&facts);
                apply(&mut model.info, &facts);
            }
        }
    }

    /// Applies `[model]` of the configuration.
    pub(super) fn take_settings(&mut self, settings: &ModelSettings, problems: &mut Vec<String>) {
        if let Some(Given { value, .. }) = &settings.base_url {
            value.trim().clone_into(&mut self.base_url);
            self.is_named = true;
        }
        if let Some(api) = settings.api {
            self.api = api;
            self.has_own_api = true;
        }

        let key = settings.key.as_ref().and_then(|key| key.as_ref().ok());
        match key.map(|key| Key::parse(key.expose_secret())) {
            Some(Ok(Some(key))) => {
                self.key = Some(key);
                self.key_source = KeySource::Config;
            }
            Some(Err(_unusable)) => {
                problems.push("model.key cannot be sent in a header".to_owned());
            }
            Some(Ok(None)) | None => {}
        }
    }

    /// Checks the address, and completes the models. Called once, after all sources.
    pub(super) fn seal(&mut self, lists: &ModelLists, problems: &mut Vec<String>) {
        let has_any = self.key.is_some() || self.is_named || !self.models.is_empty();
        if self.base_url.is_empty() {
            if has_any {
                problems.push(format!("the provider {} has no base URL", self.name));
            }
            self.broken = true;
            return;
        }

        match self.route(None) {
            Ok(route) => {
                self.shown_base = route.shown_base();
                self.usual_price = self.price_at(&route);
                problems.extend(route.refusal().map(|text| format!("{}: {text}", self.name)));
            }
            Err(error) => {
                problems.push(format!("the provider {} is not used: {error}", self.name));
                self.broken = true;
                return;
            }
        }

        self.listed = lists.of(&self.name, &self.shown_base).to_vec();
        let usual = builtin::builtin(&self.name).map_or(&[][..], |known| known.models);
        let is_there =
            |id: &&str| self.listed.is_empty() || self.listed.iter().any(|known| known.id == *id);
        let mut there: Vec<_> = usual.iter().copied().filter(is_there).map(str::to_owned).collect();

        // A server of the user often has one model.
        if let ([], [only], false) = (&*there, &*self.listed, usual.is_empty()) {
            there.push(only.id.clone());
        }

        if let Some(default) = usual.first().filter(|id| !is_there(id)) {
            let next = there.first().map(|next| format!("{next} is used"));
            let next = next.unwrap_or_else(|| "none is used: set model.name".to_owned());
            let text = format!("{} offers its usual model {default} no more; {next}", self.name);
            self.retired = there.first().map(|next| (next.clone(), text.clone()));
            problems.push(text);
        }

        for id in there {
            if !self.models.iter().any(|known| known.info.id == id) {
                let info = describe(&self.name, &id, self.api_of(&id), "");
                self.models.push(Model::plain(info));
            }
        }

        // Taken out, because the closure also reads the other fields.
        let mut models = std::mem::take(&mut self.models);
        models.retain_mut(|model| {
            let own = model.base_url.is_some().then(|| self.route(Some(model)));
            model.info.base_url = match own {
                None => self.shown_base.clone(),
                Some(Ok(route)) => route.shown_base(),
                Some(Err(error)) => {
                    let (id, name) = (&model.info.id, &self.name);
                    problems.push(format!("the model {id} of {name} is not used: {error}"));
                    return false;
                }
            };
            self.complete(&mut model.info);
            self.limit(&mut model.info, model.says_window, model.says_max_tokens);
            if !model.says_max_tokens {
                // Without a statement, half of the window is for the input.
                let half = (model.info.context_window / 2).max(1);
                model.info.max_tokens = model.info.max_tokens.min(half);
            }
            true
        });
        self.models = models;
    }

    /// Applies the limits of a model from the provider's list, unless the user has stated them.
    fn limit(&self, info: &mut ModelInfo, says_window: bool, says_max_tokens: bool) {
        let Some(listed) = self.listed.iter().find(|known| known.is_called(&info.id)) else {
            return;
        };

        if let Some(window) = listed.window.filter(|_| !says_window) {
            info.context_window = window;
            if !says_max_tokens {
                // Without a statement, half of the window is for the input.
                info.max_tokens = info.max_tokens.min(window / 2).max(1);
            }
        }

        if let Some(max_tokens) = listed.max_tokens.filter(|_| !says_max_tokens) {
            info.max_tokens = max_tokens;
        }
    }

    /// Returns whether the user has stated the window of this model.
    pub(super) fn says_window(&self, id: &str) -> bool {
        self.models.iter().any(|known| known.info.id == id && known.says_window)
    }

    /// Returns the price of models without a stated price.
    fn price_at(&self, route: &Route) -> Price {
        let is_local =
            route.is_local() || builtin::LOCAL_SERVERS.iter().any(|(name, _)| *name == self.name);
        match self.name.as_str() {
            // Its answers have `usage.cost`: <https://openrouter.ai/docs/use-cases/usage-accounting>.
            "openrouter" => Price::Reported,
            _ if is_local && self.key.is_none() => Price::Free,
            _ => Price::Unknown,
        }
    }

    /// Returns whether requests can be made: with a key, or to a server that the user named.
    pub(super) fn is_usable(&self) -> bool {
        !self.broken && (self.key.is_some() || self.is_named)
    }

    /// Returns whether the user has stated whether this model reasons.
    pub(super) fn says_reasoning(&self, id: &str) -> bool {
        self.models.iter().any(|known| known.info.id == id && known.says_reasoning)
    }

    /// Returns whether the provider has a key.
    pub(super) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the route to the provider or to one of its models.
    pub(super) fn route(&self, model: Option<&Model>) -> Result<Route, RouteError> {
        let own_base = model.and_then(|model| model.base_url.as_deref());
        let own_headers = model.map_or(&[][..], |model| &model.headers);
        Route::new(RouteSettings {
            base_url: own_base.unwrap_or(&self.base_url).to_owned(),
            api: Some(self.api),
            key: self.key.clone(),
            with_bearer: self.with_bearer,
            headers: self.headers.iter().chain(own_headers).cloned().collect(),
        })
    }

    /// Describes a model of the provider, listed or not.
    pub(super) fn model(&self, id: &str) -> Option<ModelInfo> {
        if !self.is_usable()
            || id.is_empty()
            || MAX_ID_BYTES < id.len()
            || first_unsafe(id).is_some()
        {
            return None;
        }

        let listed = self.models.iter().find(|known| known.info.id == id);
        Some(listed.map_or_else(
            || {
                let mut info = describe(&self.name, id, self.api_of(id), &self.shown_base);
                self.complete(&mut info);
                self.limit(&mut info, false, false);
                info
            },
            |it| it.info.clone(),
        ))
    }

    /// Adds the facts of all models of the provider: the price if the model has none, and the
    /// differences of the server. The model's own ones win.
    fn complete(&self, info: &mut ModelInfo) {
        if info.price == Price::Unknown {
            info.price = self.usual_price;
        }
        let Some(usual) = &self.compat else { return };
        let own = std::mem::take(&mut info.compat);
        info.compat = merged(own, usual);
    }

    /// Returns the API of a model, unless the user has named one.
    fn api_of(&self, id: &str) -> ModelApi {
        if self.name == "openai" && !self.has_own_api && is_openai_reasoning(id) {
            ModelApi::OpenAiResponses
        } else {
            self.api
        }
    }

    fn api_named(&self, name: Option<&str>, problems: &mut Vec<String>) -> Option<ModelApi> {
        let name = name?;
        let api = ModelApi::named(name);
        if api.is_none() {
            let shown = stripped_line(name, 40);
            let known = ModelApi::ALL.map(ModelApi::name).join(", ");
            problems.push(format!(
                "models.json of Pi: {} has the API {shown}, quackd has {known}",
                self.name
            ));
        }
        api
    }

    /// Resolves the values of headers.
    fn resolved(
        &self,
        headers: BTreeMap<String, String>,
        env: &[(String, String)],
        problems: &mut Vec<String>,
    ) -> Vec<(String, String)> {
        let mut resolved = Vec::new();
        for (name, value) in headers {
            match resolve(&value, env) {
                Ok(value) => resolved.push((name, value)),
                Err(why) => {
                    problems.push(format!("models.json of Pi: a header of {} {why}", self.name));
                }
            }
        }
        resolved
    }
}

/// Shows neither keys nor headers nor addresses.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Provider");
        shown.field("name", &self.name).field("has_key", &self.key.is_some());
        shown.finish_non_exhaustive()
    }
}
