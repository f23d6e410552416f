//! The catalog as tables: sources in, models and the choice out.

use super::*;
use crate::ListedModel;
use quackd_protocol::model::ThinkingLevel;

struct Case {
    env: Vec<(String, String)>,
    settings: ModelSettings,
    models: &'static str,
    auth: &'static str,
    lists: ModelLists,
}

fn given(value: &str, source: &str) -> Option<Given> {
    Some(Given { value: value.to_owned(), source: source.to_owned() })
}

impl Case {
    fn new(env: &[(&str, &str)]) -> Self {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            env: env.collect(),
            settings: ModelSettings::default(),
            models: "",
            auth: "",
            lists: ModelLists::default(),
        }
    }

    fn named(mut self, provider: &str, name: &str) -> Self {
        let some = |value: &str, source| given(value, source).filter(|_| !value.is_empty());
        self.settings.provider = some(provider, "`model.provider`");
        self.settings.name = some(name, "`model.name`");
        self
    }

    fn at(mut self, base: &str) -> Self {
        self.settings.base_url = given(base, "`model.base_url`");
        self
    }

    fn key(mut self, key: &str) -> Self {
        self.settings.key = Some(Ok(key.into()));
        self
    }

    fn models(self, models: &'static str) -> Self {
        Self { models, ..self }
    }

    fn auth(self, auth: &'static str) -> Self {
        Self { auth, ..self }
    }

    fn load(self) -> ModelCatalog {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".pi/agent");
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in [("models.json", self.models), ("auth.json", self.auth)] {
            if !text.is_empty() {
                std::fs::write(directory.join(name), text).unwrap();
            }
        }
        let (env, settings) = (self.env, self.settings);
        ModelCatalog::load_blocking(&ModelSources {
            env,
            of_shell: Vec::new(),
            logins: Some(home.path().join("logins.json")),
            home: home.path().into(),
            settings,
            distrust: None,
            lists: self.lists,
        })
    }

    /// Returns the choice as `provider/id, reason, source of the key`.
    fn choice(self) -> String {
        let catalog = self.load();
        let chosen = catalog.chosen();
        chosen.map_or_else(
            || format!("none: {}", catalog.problems().join("; ")),
            |it| format!("{}/{}, {}, {}", it.model.provider, it.model.id, it.why, it.key_source),
        )
    }
}

const LOCAL: &str = r#"{"providers": {"box": {
    "baseUrl": "http://192.168.1.5:8080/v1", "api": "openai-completions", "apiKey": "ollama",
    "compat": {"supportsStore": false, "maxTokensField": "max_tokens"},
    "models": [
        {"id": "qwen3", "name": "Qwen 3", "reasoning": true, "contextWindow": 32768, "maxTokens": 4096,
         "compat": {"maxTokensField": "max_tokens"}},
        {"id": "a/b", "input": ["text", "image"], "headers": {"x-title": "duck"}},
    ], // the last comma is tolerated
}}}"#;

#[test]
fn the_strongest_source_names_the_model() {
    let openai = ("OPENAI_API_KEY", "sk-1");
    let anthropic = ("ANTHROPIC_API_KEY", "sk-ant-1");
    for (case, expected) in [
        (
            Case::new(&[openai, anthropic]),
            "openai/gpt-4o-mini, OPENAI_API_KEY is set, OPENAI_API_KEY",
        ),
        (
            Case::new(&[anthropic]),
            "anthropic/claude-sonnet-4-5, ANTHROPIC_API_KEY is set, ANTHROPIC_API_KEY",
        ),
        (
            Case::new(&[("GOOGLE_API_KEY", "k")]),
            "google/gemini-2.5-flash, GOOGLE_API_KEY is set, GOOGLE_API_KEY",
        ),
        (
            Case::new(&[("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")]),
            "openai/gpt-4o-mini, OPENAI_BASE_URL is set, no key",
        ),
        (
            Case::new(&[("ANTHROPIC_BASE_URL", "http://localhost:9")]),
            "anthropic/claude-sonnet-4-5, ANTHROPIC_BASE_URL is set, no key",
        ),
        (
            Case::new(&[anthropic]).models(LOCAL),
            "box/qwen3, first model in models.json of Pi, no key",
        ),
        (
            Case::new(&[]).models(
                r#"{"providers": {
                    "z": {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "first"}]},
                    "a": {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "second"}]}}}"#,
            ),
            "z/first, first model in models.json of Pi, no key",
        ),
        (
            Case::new(&[openai]).models(LOCAL),
            "openai/gpt-4o-mini, OPENAI_API_KEY is set, OPENAI_API_KEY",
        ),
        (
            Case::new(&[]).auth(r#"{"groq": {"type": "api_key", "key": "gsk_1"}}"#),
            "groq/openai/gpt-oss-120b, key in auth.json of Pi, auth.json of Pi",
        ),
    ] {
        assert_eq!(case.choice(), expected);
    }
}

#[test]
fn a_name_a_provider_an_address_or_a_key_selects_the_model() {
    let openai = ("OPENAI_API_KEY", "sk-1");
    let anthropic = ("ANTHROPIC_API_KEY", "sk-ant-1");
    for (case, expected) in [
        (Case::new(&[openai]).named("", "gpt-5"), "openai/gpt-5, `model.name`, OPENAI_API_KEY"),
        (
            Case::new(&[openai]).named("", "anything"),
            "openai/anything, `model.name`, OPENAI_API_KEY",
        ),
        (
            Case::new(&[openai, anthropic]).named("", "claude-opus-4-5"),
            "anthropic/claude-opus-4-5, `model.name`, ANTHROPIC_API_KEY",
        ),
        (
            Case::new(&[openai, anthropic]).named("", "anthropic/claude-x"),
            "anthropic/claude-x, `model.name`, ANTHROPIC_API_KEY",
        ),
        (Case::new(&[openai]).models(LOCAL).named("", "qwen3"), "box/qwen3, `model.name`, no key"),
        (Case::new(&[openai]).models(LOCAL).named("", "a/b"), "box/a/b, `model.name`, no key"),
        (
            Case::new(&[openai]).models(LOCAL).named("box", "other"),
            "box/other, `model.name`, no key",
        ),
        (Case::new(&[openai]).named("ollama", "qwen3"), "ollama/qwen3, `model.name`, no key"),
        (
            Case::new(&[openai, anthropic]).named("anthropic", ""),
            "anthropic/claude-sonnet-4-5, `model.provider`, ANTHROPIC_API_KEY",
        ),
        (
            Case::new(&[]).named("", "m").at("http://10.0.0.7:8080"),
            "llama.cpp/m, `model.name`, no key",
        ),
        (
            Case::new(&[openai]).named("", "org/m").at("https://llm.example/v1").key("k"),
            "custom/org/m, `model.name`, `model.key` of the configuration",
        ),
        (
            Case::new(&[]).key("sk-ant-1"),
            "anthropic/claude-sonnet-4-5, `model.key` of the configuration, `model.key` of the configuration",
        ),
        (
            Case::new(&[openai]).named("openai", "gpt-4o").key("own"),
            "openai/gpt-4o, `model.name`, `model.key` of the configuration",
        ),
    ] {
        assert_eq!(case.choice(), expected);
    }
}

#[test]
fn a_model_that_cannot_be_used_is_a_problem_and_nothing_else_is_chosen() {
    let openai = ("OPENAI_API_KEY", "sk-1");
    for (case, part) in [
        (Case::new(&[openai]).named("anthropic", "claude-x"), "no key"),
        (Case::new(&[openai]).named("nowhere", ""), "nowhere"),
        (Case::new(&[]).named("", "gpt-5"), "no provider has one"),
        (Case::new(&[openai]).named("ollama", ""), "set model.name"),
        (Case::new(&[]).at("nonsense").named("", "m"), "not a URL"),
        (Case::new(&[("OPENAI_BASE_URL", "https://proxy.example/v1")]), "none: "),
        (Case::new(&[]), "none: "),
    ] {
        let choice = case.choice();
        assert!(choice.starts_with("none: ") && choice.contains(part), "{choice}");
    }
    assert!((3..=7).contains(&Case::new(&[]).load().missing().lines().count()));
}

#[test]
fn the_facts_of_the_file_and_the_settings_are_kept() {
    let mut case = Case::new(&[]).models(LOCAL).named("box", "qwen3");
    case.settings.context_window = Some(9000);
    case.settings.thinking = given("high", "`model.thinking`");
    let catalog = case.load();
    assert_eq!(catalog.problems(), [""; 0]);
    let chosen = catalog.chosen().unwrap();
    let model = &chosen.model;
    assert_eq!((model.context_window, model.max_tokens, model.reasoning), (9000, 4096, true));
    let mut small = Case::new(&[]).models(LOCAL).named("box", "qwen3");
    small.settings.context_window = Some(4000);
    let half = small.load().chosen().map(|chosen| chosen.model.max_tokens);
    assert_eq!(half, Some(2000), "half of the window is for the input");
    assert_eq!((model.name.as_str(), chosen.thinking), ("Qwen 3", ThinkingLevel::High));
    assert_eq!(model.compat.supports_store, Some(false));
    assert_eq!(model.compat.max_tokens_field.as_deref(), Some("max_tokens"));
    assert_eq!(catalog.find(Some("box"), "qwen3").as_ref(), Some(model));
    assert_eq!(catalog.models().iter().filter(|it| it.id == "qwen3").count(), 1);
    let other = catalog.find(None, "a/b").unwrap();
    assert_eq!((other.provider.as_str(), other.input.len()), ("box", 2));
    let unlisted = catalog.find(Some("box"), "new").unwrap();
    assert_eq!(
        (unlisted.context_window, unlisted.max_tokens, unlisted.reasoning),
        (128_000, 16_384, false)
    );
    assert_eq!(unlisted.compat.max_tokens_field.as_deref(), Some("max_tokens"));
    assert_eq!(catalog.find(Some("openai"), "gpt-4o"), None);
}

#[test]
fn overrides_change_a_known_model_and_its_provider() {
    let models = r#"{"providers": {"openai": {"baseUrl": "https://u:hush@proxy.example/v1?k=hush",
        "apiKey": "$MY_KEY", "modelOverrides": {"gpt-4o": {"maxTokens": 7}}}}}"#;
    let catalog = Case::new(&[("MY_KEY", "hush-hush")]).models(models).load();
    let model = catalog.find(Some("openai"), "gpt-4o").unwrap();
    assert_eq!((model.max_tokens, model.context_window), (7, 128_000));
    assert_eq!(model.base_url, "https://proxy.example/v1");
    assert_eq!(catalog.chosen().unwrap().key_source, "models.json of Pi");
    let shown = format!("{catalog:?} {:?} {:?}", catalog.endpoints(), catalog.models());
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn every_problem_of_the_files_is_told_without_a_secret() {
    let models = r#"{"providers": {
        "a": {"baseUrl": "https://a", "apiKey": "!pass show hush", "models": [{"id": "m"}]},
        "b": {"baseUrl": "https://b", "apiKey": "B_KEY", "api": "google-generative-ai", "models": [{"id": "m"}]},
        "c": {"baseUrl": "http://10.0.0.1", "apiKey": "hush-hush", "models": [{"id": ""}]},
        "d": {"baseUrl": "https://d", "apiKey": "k", "headers": {"host": "hush"}, "models": [{"id": "m"}]},
        "e": {"apiKey": "k", "models": [{"id": "m"}]},
        "f": {"baseUrl": "https://f", "apiKey": "B_KEY", "models": [{"id": "m"}]}
    }}"#;
    let catalog = Case::new(&[]).models(models).auth("{\"x\": 7}").load();
    let told = catalog.problems().join("\n");
    for part in [
        "auth.json:1:",
        "the key of a is a command",
        "B_KEY, which is not set",
        "b has the API google-generative-ai",
        "would send the key to 10.0.0.1",
        "a model of c has no usable id",
        "its header host cannot be sent",
        "the provider e has no base URL",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    assert!(!told.contains("hush"), "{told}");
    assert!(catalog.find(Some("b"), "m").is_none(), "a provider whose API quackd does not speak");
    let invalid =
        Case::new(&[("OPENAI_API_KEY", "k")]).models("{\n\n \"providers\": [hush]}").load();
    assert!(invalid.problems()[0].contains("models.json:3:"), "{:?}", invalid.problems());
    assert!(invalid.chosen().is_some());
}

#[test]
fn the_list_is_bounded() {
    let model = |n: usize| format!("{{\"id\": \"m{n}\"}}");
    let all: Vec<String> = (0..MAX_MODELS + 10).map(model).collect();
    let text = format!(
        "{{\"providers\": {{\"p\": {{\"baseUrl\": \"http://127.0.0.1:1\", \"models\": [{}]}}}}}}",
        all.join(",")
    );
    let catalog = Case::new(&[("OPENAI_API_KEY", "k")]).models(text.leak()).load();
    assert_eq!(catalog.models().len(), MAX_MODELS);
    assert_eq!(catalog.models()[0].provider, "openai");
}

#[test]
fn a_key_with_spaces_in_a_variable_is_a_problem() {
    let catalog = Case::new(&[("OPENAI_API_KEY", "sk-a b")]).load();
    assert!(catalog.chosen().is_none());
    assert!(catalog.problems()[0].starts_with("OPENAI_API_KEY cannot be sent in a header"));
    assert!(
        !catalog.missing().contains("sk-a") && catalog.missing().contains("OPENAI_API_KEY cannot")
    );
}

#[test]
fn what_a_provider_lists_decides_existence_and_limits() {
    let listed =
        |id: &str, window, max_tokens| ListedModel { id: id.to_owned(), window, max_tokens };
    let list =
        |base: &str, models| ModelList { base: base.into(), day: "2026-11-27".into(), models };
    let case = |base: &str| {
        let models = vec![listed("gpt-4o", None, Some(9)), listed("new", Some(8000), None)];
        let mut case = Case::new(&[("OPENAI_API_KEY", "k")]);
        case.lists.0.insert("openai".into(), list(base, models));
        case.load()
    };
    let catalog = case("https://api.openai.com/v1");
    assert_eq!(catalog.chosen().unwrap().model.id, "gpt-4o");
    assert_eq!(catalog.chosen().unwrap().model.max_tokens, 9);
    let told = catalog.problems().join(" ");
    assert!(told.contains("usual model gpt-4o-mini no more; gpt-4o is used"), "{told}");
    let new = catalog.find(None, "openai/new").unwrap();
    assert_eq!((new.context_window, new.max_tokens), (8000, 4000));
    // A server of the user has one model, and no usual one.
    let mut one = Case::new(&[("OPENAI_API_KEY", "k")]);
    one.lists.0.insert(
        "openai".into(),
        list("https://api.openai.com/v1", vec![listed("qwen", None, None)]),
    );
    let one = one.load();
    assert_eq!(one.chosen().unwrap().model.id, "qwen");
    assert!(one.problems().join(" ").contains("gpt-4o-mini no more; qwen is used"));
    // The list of another address says nothing.
    assert_eq!(case("https://other/v1").chosen().unwrap().model.id, "gpt-4o-mini");
    // The user's own statement wins.
    let models = r#"{"providers": {"box": {"baseUrl": "http://127.0.0.1:1/v1", "models": [
        {"id": "m", "contextWindow": 5000}, {"id": "n"}]}}}"#;
    let mut case = Case::new(&[]).models(models);
    let said = vec![listed("m", Some(8192), None), listed("n", Some(8192), None)];
    case.lists.0.insert("box".into(), list("http://127.0.0.1:1/v1", said));
    let catalog = case.load();
    let window = |id: &str| catalog.find(Some("box"), id).unwrap().context_window;
    assert_eq!((window("m"), window("n")), (5000, 8192));
    assert!(catalog.is_stated(&catalog.find(Some("box"), "m").unwrap()));
}
