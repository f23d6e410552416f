//! Configuration file and variables with random content. An accepted configuration can be written as an equal
//! file. An error is one line and names a line of the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_config::{Config, ConfigError, Entry, keys, load_blocking};
use quackd_fuzz::scratch;
use std::fs;

/// Loads the configuration from a file and one value for all variables.
fn load(text: &[u8], variables: Option<&str>) -> Result<Config, ConfigError> {
    let path = scratch().join("quackd.toml");
    fs::write(&path, text).expect("write the file");
    let is_ours = |name: &str| keys().iter().any(|key| key.variable() == Some(name));
    load_blocking(&path, true, &|name| variables.filter(|_| is_ours(name)).map(str::to_owned))
}

/// Returns keys and values without their sources.
fn values(config: &Config) -> Vec<(String, String)> {
    config.entries().iter().map(|entry| (entry.key.to_string(), entry.value.to_string())).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((which, content)) = data.split_first() else { return };
    let loaded = match which % 2 {
        0 => load(content, None),
        _ => match str::from_utf8(content) {
            Ok(variable) => load(b"", Some(variable)),
            Err(_) => return,
        },
    };
    match loaded {
        Ok(config) => {
            let lines: Vec<String> = config.entries().iter().map(Entry::to_toml).collect();
            let again = load(lines.join("\n").as_bytes(), None).expect("what is shown can be read");
            assert_eq!(values(&again), values(&config));
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.contains(char::is_control), "{told:?} is not one line");
            let n_lines = content.iter().filter(|byte| **byte == b'\n').count() + 1;
            match error {
                ConfigError::Syntax { line, .. }
                | ConfigError::UnknownKey { line, .. }
                | ConfigError::Value { line, .. } => {
                    assert!((1..=n_lines).contains(&line), "{told}")
                }
                ConfigError::Environment { .. } => assert!(which % 2 == 1, "{told}"),
                ConfigError::TooBig { .. } => {}
                other => panic!("{other}"),
            }
        }
    }
});
