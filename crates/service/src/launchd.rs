//! The LaunchAgent of launchd. Made by the command line. Written and read back here; it has not been run.
//!
//! There is no `Sockets`: to take one over needs `launch_activate_socket`, which no safe and well kept
//! library has. Without it launchd starts the daemon at login, and a verb starts one where none runs.

use crate::description::{OPEN_FILES, STOP_TIMEOUT};
use crate::place::LABEL;
use crate::{Manager, Service, file};
use plist::{Dictionary, Value};

/// Where launchd puts what the daemon says on stderr before its log is there, in the state directory.
/// launchd never cuts it; the daemon writes there only why it cannot start, and panics.
pub const STDERR: &str = "launchd.log";

/// launchd's shortest time between two starts.
const THROTTLE_SECONDS: u64 = 10;

/// The text of the property list.
///
/// # Errors
/// The library refuses, which it has no reason to.
pub fn agent(service: &Service) -> Result<String, plist::Error> {
    let mut text = Vec::new();
    Value::Dictionary(dictionary(service)).to_writer_xml(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    // The mark is a comment, which stands behind the declaration of the document's kind.
    let (head, body) = match text.find("<plist") {
        Some(at) => text.split_at(at),
        None => ("", &*text),
    };
    Ok(format!("{head}{}\n{}\n", file::plist_mark(), body.trim_end()))
}

fn dictionary(service: &Service) -> Dictionary {
    let words = service.arguments(Manager::Launchd).map(|word| Value::from(word.to_owned()));
    let limits = Dictionary::from_iter([("NumberOfFiles", Value::from(OPEN_FILES))]);
    let stderr = format!("{}/{STDERR}", service.state_dir);
    let mut agent = Dictionary::from_iter([
        ("Label", Value::from(LABEL)),
        ("ProgramArguments", Value::Array(words.into())),
        ("RunAtLoad", Value::from(true)),
        // Started again after everything but a clean end.
        (
            "KeepAlive",
            Value::Dictionary(Dictionary::from_iter([("SuccessfulExit", Value::from(false))])),
        ),
        ("ThrottleInterval", Value::from(THROTTLE_SECONDS)),
        ("ExitTimeOut", Value::from(STOP_TIMEOUT.as_secs())),
        // Commands inherit it: what a person waits for is not slowed down.
        ("ProcessType", Value::from("Interactive")),
        ("LowPriorityIO", Value::from(false)),
        ("StandardErrorPath", Value::from(stderr)),
        ("SoftResourceLimits", Value::Dictionary(limits.clone())),
        ("HardResourceLimits", Value::Dictionary(limits)),
    ]);
    if !service.environment.is_empty() {
        let variables = service.environment.iter();
        let variables = variables.map(|(name, value)| (name.clone(), Value::from(value.clone())));
        let variables = Dictionary::from_iter(variables);
        agent.insert("EnvironmentVariables".to_owned(), Value::Dictionary(variables));
    }
    agent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::service;
    use proptest::prelude::*;
    use std::path::Path;

    proptest! {
        #[test]
        fn whatever_is_in_a_path_is_read_back_from_the_property_list(
            state in r#"/([a z/"'&<>\]!-]|[^\p{Cc}]){0,24}"#,
        ) {
            let variable = |name: &str| (name == "QUACKD_CONFIG").then(|| state.as_str().into());
            let path = Path::new(&state);
            let service = Service::new(path, path, path, false, &variable).unwrap();
            let text = agent(&service).unwrap();
            let read = Value::from_reader_xml(text.as_bytes()).unwrap();
            prop_assert_eq!(&read, &Value::Dictionary(dictionary(&service)), "{}", text);
        }
    }

    #[test]
    fn the_property_list_is_read_back_as_it_was_described() {
        let text = agent(&service()).unwrap();
        assert!(text.contains(file::MARK), "{text}");
        let read = Value::from_reader_xml(text.as_bytes()).unwrap();
        assert_eq!(read, Value::Dictionary(dictionary(&service())));
        let agent = read.as_dictionary().unwrap();
        let arguments = agent.get("ProgramArguments").unwrap().as_array().unwrap();
        let arguments: Vec<_> = arguments.iter().filter_map(Value::as_string).collect();
        assert_eq!(arguments, ["/opt/my tools/quack", "daemon", "--service", "launchd"]);
        let variables = agent.get("EnvironmentVariables").unwrap().as_dictionary().unwrap();
        let state = variables.get("RUBBER_DUCK_APP_SUPPORT").unwrap().as_string();
        assert_eq!(state, Some("/home/u/a 100% \"state\""));
        let keep = agent.get("KeepAlive").unwrap().as_dictionary().unwrap();
        assert_eq!(keep.get("SuccessfulExit").unwrap().as_boolean(), Some(false));
        assert_eq!(agent.get("ExitTimeOut").unwrap().as_unsigned_integer(), Some(20));
        assert!(!text.contains("secret") && !text.contains("Sockets"), "{text}");
    }
}
