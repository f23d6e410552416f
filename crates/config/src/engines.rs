//! The tables `[engines.NAME]`: the user's engines for far workers. A row may be a changed copy of a built-in row.

use crate::error::{excerpt, quoted};
use crate::mcp_servers::{EntryError, table, text};
use crate::value_kind::{ValueError, refusal, words};
use crate::{Config, Entry, Origin, Setting, validate};
use quackd_engines::{Engine, Program, TargetRule, built_in};
use serde_json::{Map, Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Name of the table that has a table for each engine.
pub(crate) const TABLE: &str = "engines";

/// Most tables.
const MAX_ENGINES: usize = 32;

/// Value of `program` for a program that the far shell receives.
const SEND: &str = "send";

impl Config {
    /// Returns the engines of the user, then the built-in ones that they do not replace.
    #[must_use]
    pub fn engines(&self) -> Vec<Engine> {
        let mut engines: Vec<Engine> =
            self.engine_rows.iter().map(|row| row.value.clone()).collect();
        for row in built_in() {
            if !engines.iter().any(|own| own.name == row.name) {
                engines.push(row);
            }
        }
        engines
    }
}

/// Reads the tables. `origin` returns the origin of a position.
pub(crate) fn read(
    value: &Spanned<DeValue<'_>>,
    origin: impl Fn(usize) -> Origin,
) -> Result<Vec<Setting<Engine>>, EntryError> {
    let tables = table(value, TABLE, "must have a table for each engine: write `[engines.NAME]`")?;
    if MAX_ENGINES < tables.len() {
        let message = format!("must have at most {MAX_ENGINES} engines, not {}", tables.len());
        return Err(refused(TABLE, value.span().start, message));
    }

    let mut engines = Vec::with_capacity(tables.len());
    for (name, value) in tables {
        let (key, at) = (format!("{TABLE}.{}", quoted(name.get_ref())), name.span().start);
        let engine = engine(name.get_ref(), &key, value)?;
        engine.check().map_err(|error| refused(&key, at, error.to_string()))?;
        engines.push((at, Setting { value: engine, origin: origin(at) }));
    }

    engines.sort_by_key(|(at, _)| *at);
    Ok(engines.into_iter().map(|(_, engine)| engine).collect())
}

/// Reads the table of one engine. Every unknown key is an error.
fn engine(name: &str, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Engine, EntryError> {
    let entries = table(value, key, "must be a table with `like` or `start`")?;
    let mut engine = Engine { name: name.to_owned(), ..model(entries, key)? };

    let mut target = None;
    for (name, value) in entries {
        let key = format!("{key}.{}", quoted(name.get_ref()));
        match &**name.get_ref() {
            // Read before the others.
            "like" => (),
            "about" => engine.about = plain(value, &key)?,
            "start" => engine.start = arguments(value, &key)?,
            "resume" => engine.resume = arguments(value, &key)?,
            "stop" => engine.stop = arguments(value, &key)?,
            "poll" => engine.poll = arguments(value, &key)?,
            "create" => engine.create = arguments(value, &key)?,
            "destroy" => engine.destroy = arguments(value, &key)?,
            "probe" => engine.probe = arguments(value, &key)?,
            "joins_words" => {
                let wrong = || of_value(&key, refusal(value, "must be true or false"));
                engine.joins_words = value.get_ref().as_bool().ok_or_else(wrong)?;
            }
            "keeps_files" => {
                let wrong = || of_value(&key, refusal(value, "must be true or false"));
                engine.keeps_files = value.get_ref().as_bool().ok_or_else(wrong)?;
            }
            "program" => {
                let place = plain(value, &key)?;
                engine.program = if place == SEND { Program::Send } else { Program::At(place) };
            }
            "target" => target = Some(target_rule(value, &key)?),
            "options" => engine.options = options(value, &key)?,
            _ => return Err(EntryError { key, message: None, at: name.span().start }),
        }
    }

    if let Some(rule) = target {
        engine.target = rule;
    } else if engine.like.is_none() {
        engine.target = used_target(&engine);
    }
    Ok(engine)
}

/// Returns the built-in row that `like` names, or an empty row.
fn model(entries: &DeTable<'_>, key: &str) -> Result<Engine, EntryError> {
    let Some((_, value)) = entries.iter().find(|(name, _)| *name.get_ref() == "like") else {
        return Ok(Engine {
            name: String::new(),
            like: None,
            about: "an engine of the configuration".to_owned(),
            start: Vec::new(),
            resume: Vec::new(),
            stop: Vec::new(),
            poll: Vec::new(),
            create: Vec::new(),
            destroy: Vec::new(),
            probe: Vec::new(),
            joins_words: false,
            program: Program::Send,
            keeps_files: false,
            target: TargetRule::None,
            options: Vec::new(),
            promises: Vec::new(),
        });
    };

    let key = format!("{key}.like");
    let like = text(value, &key)?;
    let row = built_in().into_iter().find(|row| row.name == like).ok_or_else(|| {
        let known: Vec<_> = built_in().into_iter().map(|row| row.name).collect();
        let message = format!("must be one of {}, not `{}`", known.join(", "), excerpt(&like));
        refused(&key, value.span().start, message)
    })?;
    Ok(Engine { like: Some(like), ..row })
}

/// Returns the rule of a row without `target`: a target is needed if `start` or `create` uses it.
fn used_target(engine: &Engine) -> TargetRule {
    if engine.start.iter().chain(&engine.create).any(|word| word.contains("{target}")) {
        TargetRule::Required
    } else if engine.options.is_empty() {
        TargetRule::None
    } else {
        TargetRule::Optional
    }
}

fn target_rule(value: &Spanned<DeValue<'_>>, key: &str) -> Result<TargetRule, EntryError> {
    let word = text(value, key)?;
    TargetRule::ALL.into_iter().find(|rule| rule.word() == word).ok_or_else(|| {
        let known = TargetRule::ALL.map(TargetRule::word).join(", ");
        let message = format!("must be one of {known}, not `{}`", excerpt(&word));
        refused(key, value.span().start, message)
    })
}

fn options(value: &Spanned<DeValue<'_>>, key: &str) -> Result<Vec<(String, String)>, EntryError> {
    let options = table(value, key, "must be a table of strings")?;
    if quackd_engines::MAX_WORDS < options.len() {
        let message = format!("must have at most {} options", quackd_engines::MAX_WORDS);
        return Err(refused(key, value.span().start, message));
    }
    let read = options.iter().map(|(name, value)| -> Result<_, EntryError> {
        let key = format!("{key}.{}", quoted(name.get_ref()));
        Ok((name.get_ref().to_string(), plain(value, &key)?))
    });
    read.collect()
}

fn arguments(value: &Spanned<DeValue<'_>>, key: &str) -> Result<Vec<String>, EntryError> {
    words(value, validate::argument).map_err(|error| of_value(key, error))
}

/// Reads a text without control characters.
fn plain(value: &Spanned<DeValue<'_>>, key: &str) -> Result<String, EntryError> {
    let text = text(value, key)?;
    validate::plain(&text).map_err(|message| refused(key, value.span().start, message))?;
    Ok(text)
}

fn of_value(key: &str, ValueError { at, message }: ValueError) -> EntryError {
    refused(key, at, message)
}

fn refused(key: &str, at: usize, message: String) -> EntryError {
    EntryError { key: key.to_owned(), message: Some(message), at }
}

/// Returns the entries of an engine of the user, complete.
pub(crate) fn entries(engine: &Setting<Engine>) -> Vec<Entry> {
    let Setting { value: engine, origin } = engine;
    let program = match &engine.program {
        Program::Send => SEND,
        Program::At(path) => path.as_str(),
    };
    let options = engine.options.iter().map(|(name, argument)| (name.clone(), json!(argument)));
    let options = Json::Object(options.collect::<Map<_, _>>());

    let like = engine.like.iter().map(|like| ("like", json!(like)));
    let others = [
        ("about", json!(engine.about)),
        ("start", json!(engine.start)),
        ("resume", json!(engine.resume)),
        ("stop", json!(engine.stop)),
        ("poll", json!(engine.poll)),
        ("create", json!(engine.create)),
        ("destroy", json!(engine.destroy)),
        ("probe", json!(engine.probe)),
        ("joins_words", json!(engine.joins_words)),
        ("program", json!(program)),
        ("keeps_files", json!(engine.keeps_files)),
        ("target", json!(engine.target.word())),
        ("options", options),
    ];
    let entry = |(key, value): (&str, Json)| Entry {
        key: format!("{TABLE}.{}.{key}", engine.name).into(),
        value,
        origin: origin.to_string(),
    };
    like.chain(others).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use std::path::Path;

    fn loaded(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let read = document::apply(&mut config, Path::new("/x/quackd.toml"), text);
        read.map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_of_the_user_come_first_and_replace_built_in_ones() {
        let text = "[engines.ssh]\nlike = \"ssh\"\nresume = []\n\n[engines.box]\n\
            start = [\"box\", \"{target}\", \"{command}\"]\nprogram = \"/usr/bin/quack\"\n\
            create = [\"box\", \"make\"]\ndestroy = [\"box\", \"unmake\"]\n";
        let config = loaded(text).unwrap();
        let engines = config.engines();
        let names: Vec<_> = engines.iter().map(|engine| engine.name.as_str()).collect();
        assert_eq!(names, ["ssh", "box", "slurm", "podman", "kubectl"]);
        assert!(engines[0].resume.is_empty() && engines[0].joins_words);
        assert_eq!(engines[1].target, TargetRule::Required);
        assert_eq!(engines[1].program, Program::At("/usr/bin/quack".to_owned()));

        let shown: Vec<_> = config.entries().iter().map(Entry::to_toml).collect();
        let again = loaded(&shown.join("\n")).unwrap();
        assert_eq!(again.engines(), engines);
    }

    #[test]
    fn malformed_rows_are_refused() {
        for (text, error) in [
            ("[engines.A]\nlike = \"ssh\"", "`engines.A` must have another name"),
            (
                "[engines.a]\nlike = \"tcp\"",
                "must be one of ssh, slurm, podman, kubectl, not `tcp`",
            ),
            ("[engines.a]\nstart = [\"x\"]", "must have `{command}` as one argument"),
            ("[engines.a]\nlike = \"ssh\"\ntarget = \"any\"", "must be one of required, optional"),
            ("[engines.a]\nlike = \"ssh\"\nstop = [1]", "`engines.a.stop` must hold strings only"),
            ("[engines.a]\nlike = \"ssh\"\njoins_words = 1", "must be true or false"),
            ("[engines.a]\nlike = \"ssh\"\nbegin = []", "unknown key `engines.a.begin`"),
            ("engines = 1", "must have a table for each engine"),
        ] {
            let refused = loaded(text).unwrap_err();
            assert!(refused.contains(error), "{text}: {refused}");
        }
    }
}
