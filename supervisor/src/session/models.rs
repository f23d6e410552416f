//! The models of all sessions: loads the catalog, keeps it current, and passes model requests to egress.
//!
//! The catalog depends on the configuration, the daemon's variables, those of the login shell, and two files of Pi. It is
//! loaded at the first use, and again after one of these changed.

use crate::children::ChildServices;
use crate::children::command_env::Variables;
use crate::children::login_env::LoginEnv;
use crate::children::pi_env;
use crate::children::tool_registries::ToolRegistries;
use crate::clock::now_text;
use crate::daemon_info::DaemonInfo;
use crate::obeyed::Obeyed;
use crate::session::agent::pi::outside::clean_blocking;
use crate::session::owner::Owner;
use quackd_config::{Config, Origin, Setting};
use quackd_egress::models::{
    Given, ModelCatalog, ModelList, ModelLists, ModelSettings, ModelSources, provider_variables,
};
use quackd_egress::{Egress, ListedModel};
use quackd_home::own_file::read_blocking;
use quackd_process::{Held, Writable};
use quackd_protocol::model::{ModelFailure, ModelInfo, ModelPart, ModelRequest};
use quackd_store::replace_file_blocking;
use secrecy::SecretString;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

/// Longest wait for the login shell, if no other source has a key.
const LOGIN_LIMIT: Duration = Duration::from_secs(3);

/// Timeout of reading the files. A disk that hangs must not stop a session.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// Time for which a failure of the keychain is kept.
const KEYCHAIN_INTERVAL: Duration = Duration::from_secs(30);

/// Longest wait for the list of a provider before an agent starts, and times after which one is asked again.
const ASK_LIMIT: Duration = Duration::from_secs(3);
const ASK_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// Largest file with the lists, in bytes.
const MAX_LISTS_BYTES: u64 = 16 * 1024 * 1024;

/// Reads the lists that the last daemon has kept. An unusable file counts as none.
pub(crate) fn load_lists_blocking(path: &Path) -> ModelLists {
    let read = read_blocking(path, MAX_LISTS_BYTES);
    let read = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    read.unwrap_or_default()
}

/// Shortest time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// State of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamps {
    /// Time of the last change and size of each file; `None` for a missing one.
    files: Vec<Option<(SystemTime, u64)>>,
    /// The directory of a session that could change them.
    held: Option<Held>,
    /// The reason why the keychain has no key, if it was asked.
    no_key: Option<String>,
}

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Models {
    daemon: Rc<DaemonInfo>,
    login: Rc<LoginEnv>,
    egress: Rc<Egress>,
    loaded: RefCell<Option<Loaded>>,
    /// What providers have said about their models, kept in a file, and the number of changes.
    lists: RefCell<ModelLists>,
    list_version: Cell<u64>,
    /// When each provider was asked by itself, and whether it answered.
    asked: RefCell<HashMap<String, (Instant, bool)>>,
    /// Counts the catalogs that differ from the one before.
    version: Cell<u64>,
    /// Reads the keychain.
    tools: Rc<ToolRegistries>,
    /// Result and time of the last read of the keychain.
    key: RefCell<Option<(Instant, Result<SecretString, String>)>>,
    /// Knows the directories that commands may write. Set once at the start.
    owner: OnceCell<Owner>,
    /// One permit, so that concurrent callers load the catalog once.
    turn: Semaphore,
    /// One permit, held while the files are read, so that a disk that hangs costs one thread.
    reading: Arc<Semaphore>,
}

/// The catalog and its sources.
#[derive(Debug)]
struct Loaded {
    catalog: Rc<ModelCatalog>,
    /// Time of the last check of the files. `None` if the next caller must check them.
    checked: Option<Instant>,
    /// Hash of the variables.
    env: u64,
    stamps: Stamps,
}

impl Models {
    pub(crate) fn new(
        daemon: &Rc<DaemonInfo>,
        children: &ChildServices,
        egress: Egress,
        lists: ModelLists,
    ) -> Self {
        Self {
            daemon: Rc::clone(daemon),
            login: Rc::clone(&children.login),
            tools: Rc::clone(&children.tool_registries),
            key: RefCell::default(),
            egress: Rc::new(egress),
            loaded: RefCell::default(),
            lists: RefCell::new(lists),
            list_version: Cell::new(0),
            asked: RefCell::default(),
            version: Cell::new(0),
            owner: OnceCell::new(),
            turn: Semaphore::new(1),
            reading: Arc::new(Semaphore::new(1)),
        }
    }

    /// Sets the owner of the sessions.
    pub(crate) fn set_owner(&self, owner: Owner) {
        // Set once: later calls change nothing.
        drop(self.owner.set(owner));
    }

    pub(crate) fn egress(&self) -> Rc<Egress> {
        Rc::clone(&self.egress)
    }

    /// Returns the current catalog. Waits at most about 6 s: for the login shell only if there is no key without it. The
    /// first look into a keychain takes longer if the user has to unlock it, see [`ToolRegistries::ask`].
    pub(crate) async fn catalog(&self) -> Rc<ModelCatalog> {
        // Never closed. Without a permit, the catalog would only be loaded twice.
        let _turn = self.turn.acquire().await.ok();
        let env = self.env().await;
        let hash = hash(&(&env, self.list_version.get()));

        let known = self.loaded.borrow().as_ref().filter(|it| it.env == hash).map(|it| {
            let is_recent = it.checked.is_some_and(|at| at.elapsed() < CHECK_INTERVAL);
            (Rc::clone(&it.catalog), it.stamps.clone(), is_recent)
        });
        if let Some((catalog, _, true)) = known {
            return catalog;
        }

        let known = known.map(|(catalog, stamps, _)| (catalog, stamps));
        let stamps = known.as_ref().map(|(_, stamps)| stamps.clone());
        let (catalog, stamps) = match (self.read(env.clone(), stamps).await, known) {
            (Ok(Some((catalog, stamps))), _) => {
                self.egress.set_models(catalog.endpoints());
                (Rc::new(catalog), stamps)
            }
            (_, Some(known)) => known,
            (unread, None) => return self.without_files(unread.err().unwrap_or_default()),
        };

        if let Some(before) = &*self.loaded.borrow()
            && (before.catalog.models(), before.catalog.chosen())
                != (catalog.models(), catalog.chosen())
        {
            self.version.set(self.version.get() + 1);
        }

        let (catalog_of_all, checked) = (Rc::clone(&catalog), Some(Instant::now()));
        let loaded = Loaded { catalog: catalog_of_all, checked, env: hash, stamps };
        self.loaded.replace(Some(loaded));
        catalog
    }

    /// Returns a number that changes with the models.
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Loads the catalog again if a file has changed, however short ago the files were checked.
    pub(crate) async fn reload(&self) {
        if let Some(loaded) = self.loaded.borrow_mut().as_mut() {
            loaded.checked = None;
        }
        self.catalog().await;
    }

    /// Returns the names of the variables of providers that have a value. Does not wait for the login shell.
    pub(crate) async fn variables(&self) -> Vec<String> {
        let login = self.login.env_for_pi(Duration::ZERO).await;
        let env = pi_env::merge(std::env::vars_os(), &[], &login);
        let has = |name: &&str| env.iter().any(|(set, v)| set == name && !v.trim().is_empty());
        provider_variables().flatten().filter(has).map(str::to_owned).collect()
    }

    /// Returns a catalog of the configuration, because a directory does not answer. Not kept. It has no keys of variables:
    /// a file in the directory may send them to another address than the usual one.
    fn without_files(&self, problem: String) -> Rc<ModelCatalog> {
        let env = Variables::default();
        let mut settings = settings(&self.daemon.config);
        if self.daemon.config.model.key.value.account().is_some() {
            settings.key = self.key.borrow().as_ref().map(|(_, read)| read.clone());
        }

        let (home, distrust) = (self.daemon.user_home.clone(), Some(problem));
        // Reads no file: this is the thread of the actors.
        let (of_shell, logins, lists) = (Vec::new(), None, ModelLists::default());
        let catalog = ModelCatalog::load_blocking(&ModelSources {
            env,
            of_shell,
            logins,
            home,
            settings,
            distrust,
            lists,
        });
        if catalog.chosen().is_some() {
            self.egress.set_models(catalog.endpoints());
        }
        Rc::new(catalog)
    }

    /// Stops encrypted requests if commands could change the certificates that variables of the daemon name. Called before
    /// a request may read them.
    pub(crate) async fn check_certificates(&self) {
        if !Obeyed::has_certificates() {
            return;
        }
        let Some(owner) = self.owner.get() else { return };
        let Some(writable) = owner.writable().await else { return };
        let look = move || Obeyed::held_certificates_blocking(writable);
        let held = timeout(READ_LIMIT, actix_rt::task::spawn_blocking(look)).await;
        let reason = match held {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(held))) => held.to_string(),
            _ => {
                "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names do not answer".to_owned()
            }
        };
        self.egress.distrust_certificates(reason);
    }

    /// Sends a request to a model of the current catalog. See [`Egress::model`].
    pub(crate) fn request(&self, request: ModelRequest) -> mpsc::Receiver<ModelPart> {
        self.egress.model(request)
    }

    /// Asks a provider for its models, and keeps the answer. See [`Egress::list_models`]. `model`: the one whose settings
    /// Ollama is asked for.
    pub(crate) async fn list(
        &self,
        provider: &str,
        model: Option<&str>,
    ) -> Result<Vec<ListedModel>, ModelFailure> {
        let catalog = self.catalog().await;
        let show = model.filter(|_| provider == "ollama").map(str::to_owned);
        let mut models = self.egress.list_models(provider, show).await?;
        let Some(base) = catalog.base_of(provider).filter(|_| !models.is_empty()) else {
            return Ok(models);
        };

        let base = base.to_owned();
        let day = now_text().chars().take(10).collect();
        let kept = {
            let mut lists = self.lists.borrow_mut();
            lists.0.retain(|name, _| catalog.providers().any(|known| known == name));
            // Limits of other models that Ollama reported before stay.
            let before = lists.0.get(provider).filter(|list| list.base == base);
            for known in before.iter().flat_map(|list| &list.models) {
                if let Some(same) = models.iter_mut().find(|it| it.id == known.id) {
                    same.window = same.window.or(known.window);
                }
            }
            let list = ModelList { base, day, models: models.clone() };
            let is_new = before.is_none_or(|before| before.models != list.models);
            if is_new {
                self.list_version.set(self.list_version.get() + 1);
            }
            lists.0.insert(provider.to_owned(), list);
            lists.clone()
        };

        let path = self.daemon.home.model_lists();
        let save = move || replace_file_blocking(&path, &serde_json::to_vec(&kept)?);
        if let Ok(Err(error)) = actix_rt::task::spawn_blocking(save).await {
            tracing::warn!(%error, "cannot save the lists of models");
        }
        Ok(models)
    }

    /// Asks the provider of a model once a day for its models, unless the user has stated what the model can do. A provider
    /// that does not answer within [`ASK_LIMIT`] is asked later.
    pub(crate) async fn ask_about(&self, catalog: &ModelCatalog, model: &ModelInfo) {
        if catalog.is_stated(model) {
            return;
        }
        let asked = self.asked.borrow().get(&model.provider).copied();
        // Ollama decides about the window when it loads a model.
        let is_settled = model.provider != "ollama";
        let interval =
            |has_answered| if has_answered && is_settled { ASK_INTERVAL } else { ASK_AGAIN };
        if asked.is_some_and(|(at, answered)| at.elapsed() < interval(answered)) {
            return;
        }
        let listing = timeout(ASK_LIMIT, self.list(&model.provider, Some(&model.id))).await;
        let has_answered = matches!(listing, Ok(Ok(_)));
        self.asked.borrow_mut().insert(model.provider.clone(), (Instant::now(), has_answered));
    }

    /// Returns the day on which each provider was asked for its models.
    pub(crate) fn days(&self) -> BTreeMap<String, String> {
        let lists = self.lists.borrow();
        lists.0.iter().map(|(name, list)| (name.clone(), list.day.clone())).collect()
    }

    /// Returns the daemon's variables, merged with the keys of the login shell and of clients' shells.
    async fn env(&self) -> Variables {
        let own = pi_env::merge(std::env::vars_os(), &[], &[]);
        let model = &self.daemon.config.model;
        let key = &model.key.value;
        let has_key = key.expose().is_some() || key.account().is_some();
        let is_configured = has_key || !model.base_url.value.is_empty();
        let has_key = is_configured || ModelSources::has_provider(&own);
        let limit = if has_key { Duration::ZERO } else { LOGIN_LIMIT };
        let login = self.login.env_for_pi(limit).await;
        pi_env::merge(std::env::vars_os(), &[], &login)
    }

    /// Reads the files on the blocking pool and builds the catalog. `None` if the files are as in `known`.
    async fn read(
        &self,
        env: Variables,
        known: Option<Stamps>,
    ) -> Result<Option<(ModelCatalog, Stamps)>, String> {
        self.check_certificates().await;
        let mut settings = settings(&self.daemon.config);
        let user_home = self.daemon.user_home.clone();
        let owner = self.owner.get().ok_or("the daemon is starting")?;
        let writable = owner.writable().await.ok_or("the daemon is shutting down")?;
        if let Some(account) = self.daemon.config.model.key.value.account() {
            settings.key = Some(self.key_of(account, &writable).await);
        }
        let no_key = settings.key.as_ref().and_then(|key| key.as_ref().err().cloned());

        let mut sources = ModelSources {
            env,
            of_shell: self.login.names_of_shell(),
            logins: Some(self.daemon.home.provider_keys()),
            home: user_home.clone(),
            settings,
            distrust: None,
            lists: self.lists.borrow().clone(),
        };

        let late = "the directory of Pi's files does not answer";
        let permit = Arc::clone(&self.reading).try_acquire_owned().map_err(|_held| late)?;

        let read = move || {
            let _permit = permit;
            // Before the files are read, so that a change in between is noticed the next time.
            // A command that could change them could send keys to another server.
            let mut files = sources.files();
            let writable = Writable::of_blocking(writable, &user_home);
            let held = files.iter().find_map(|file| writable.held_blocking(file));
            files.push(sources.settings_file());

            let stamps =
                Stamps { held, files: files.into_iter().map(stamp_blocking).collect(), no_key };
            sources.distrust = stamps.held.as_ref().map(|held| {
                format!(
                    "Pi's models.json and auth.json are not read: commands write {}",
                    held.directory().display()
                )
            });
            (known.as_ref() != Some(&stamps))
                .then(|| (ModelCatalog::load_blocking(&sources), stamps))
        };

        let read = timeout(READ_LIMIT, actix_rt::task::spawn_blocking(read)).await;
        read.map_err(|_late| late)?.map_err(|_gone| "the daemon is shutting down".to_owned())
    }

    /// Reads the key of an account from the keychain once. A failure is kept for [`KEYCHAIN_INTERVAL`].
    async fn key_of(&self, account: &str, writable: &[PathBuf]) -> Result<SecretString, String> {
        if let Some((at, read)) = &*self.key.borrow()
            && (read.is_ok() || at.elapsed() < KEYCHAIN_INTERVAL)
        {
            return read.clone();
        }

        let untrusted = writable.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let (directories, home) = (writable.to_vec(), self.daemon.user_home.clone());
        let mut env = self.tools.environment().await;
        // Programs that read the keychain use the session bus of the user.
        let of_session = |name: &&str| !env.iter().any(|(other, _)| other == *name);
        let missing =
            ["DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"].into_iter().filter(of_session);
        let missing: Vec<_> =
            missing.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
        env.extend(missing);
        let clean = move || {
            clean_blocking(&Writable::of_blocking(directories, &home), &mut env);
            env
        };

        let (tools, account) = (Rc::clone(&self.tools), account.to_owned());
        // A dropped future would not reap the process.
        let reading = actix::spawn(async move {
            let cleaned = timeout(READ_LIMIT, actix_rt::task::spawn_blocking(clean)).await;
            match cleaned {
                Ok(Ok(env)) => {
                    tools.read_key(account, env, untrusted).await.map_err(|error| error.to_string())
                }
                _ => Err("a directory of PATH does not answer".to_owned()),
            }
        });
        let read =
            reading.await.unwrap_or_else(|_gone| Err("the daemon is shutting down".to_owned()));
        self.key.replace(Some((Instant::now(), read.clone())));
        read
    }
}

fn stamp_blocking(path: PathBuf) -> Option<(SystemTime, u64)> {
    let found = path.metadata().ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Identifies variables and lists without keeping their values.
fn hash(sources: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    sources.hash(&mut hasher);
    hasher.finish()
}

/// Returns the settings of the catalog: `[model]`, and `[pi]` for everything that `[model]` leaves open.
fn settings(config: &Config) -> ModelSettings {
    let (model, pi) = (&config.model, &config.pi);
    let own_name = given(&model.name, "model.name");
    let own_provider = given(&model.provider, "model.provider");
    let base_url = given(&model.base_url, "model.base_url");
    let says_nothing = own_name.is_none() && own_provider.is_none() && base_url.is_none();
    let of_pi = |setting, key| given(setting, key).filter(|_| says_nothing);
    let tokens =
        |setting: &Setting<usize>| u64::try_from(setting.value).ok().filter(|tokens| *tokens != 0);
    ModelSettings {
        name: own_name.or_else(|| of_pi(&pi.model, "pi.model")),
        provider: own_provider.or_else(|| of_pi(&pi.provider, "pi.provider")),
        thinking: given(&model.thinking, "model.thinking")
            .or_else(|| given(&pi.thinking, "pi.thinking")),
        base_url,
        api: model.api.value,
        key: model.key.value.expose().map(|key| Ok(key.into())),
        context_window: tokens(&model.context_window),
        max_tokens: tokens(&model.max_tokens),
        idle_timeout: model.idle_timeout.value,
    }
}

/// Returns a value of the user with the name of its source.
fn given(setting: &Setting<String>, key: &str) -> Option<Given> {
    let value = setting.value.trim();
    let source = match &setting.origin {
        Origin::Default => return None,
        Origin::Environment { variable } => (*variable).to_owned(),
        Origin::File { path, .. } => format!("`{key}` in {}", path.display()),
        Origin::Flag { .. } => format!("`{key}` of the command line"),
    };
    (!value.is_empty()).then(|| Given { value: value.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(setting: &mut Setting<String>, value: &str, origin: Origin) {
        *setting = Setting { value: value.to_owned(), origin };
    }

    fn file() -> Origin {
        Origin::File { path: "/quackd.toml".into(), line: 1 }
    }

    #[test]
    fn pis_settings_apply_where_the_models_are_not_set() {
        let mut config = Config::default();
        let none = settings(&config);
        assert_eq!((none.name, none.provider, none.thinking), (None, None, None));
        let variable = Origin::Environment { variable: "RUBBER_DUCK_PI_MODEL" };
        set(&mut config.pi.model, " m ", variable);
        set(&mut config.pi.provider, "p", file());
        set(&mut config.pi.thinking, "high", file());
        let of_pi = settings(&config);
        let name = of_pi.name.unwrap();
        assert_eq!((name.value.as_str(), name.source.as_str()), ("m", "RUBBER_DUCK_PI_MODEL"));
        assert_eq!(of_pi.provider.unwrap().source, "`pi.provider` in /quackd.toml");
        assert_eq!(of_pi.thinking.unwrap().value, "high");
        set(&mut config.model.provider, "own", file());
        set(&mut config.model.thinking, "low", file());
        let own = settings(&config);
        assert_eq!((own.name, own.provider.unwrap().value.as_str()), (None, "own"));
        assert_eq!(own.thinking.unwrap().value, "low");
    }
}
