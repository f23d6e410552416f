//! Names of sessions in links: `web` in `http://3000.web.localhost`. A label with other characters than those of a host
//! name gets hyphens for them; if that is the name of several sessions, each has its id.

use super::labels::Labels;
use super::snapshot::RegistrySnapshot;
use quackd_protocol::SessionId;
use std::collections::HashMap;

/// Longest part of a host name, in bytes.
const MAX_NAME: usize = 63;

/// Names of all sessions at one moment.
#[derive(Debug)]
pub(crate) struct LinkNames {
    /// `None` for a name of several sessions.
    by_name: HashMap<String, Option<SessionId>>,
    labels: HashMap<SessionId, String>,
}

/// Result of looking for a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    One(SessionId),
    Several,
    Nothing,
}

impl RegistrySnapshot {
    /// Returns the names of all sessions in links.
    pub(crate) fn link_names(&self) -> LinkNames {
        LinkNames::of(Labels::new(&self.metadata, &self.state).all())
    }
}

impl LinkNames {
    fn of(labels: HashMap<SessionId, String>) -> Self {
        let mut by_name: HashMap<String, Option<SessionId>> = HashMap::new();
        let mut ids: HashMap<String, Option<SessionId>> = HashMap::new();
        let add = |names: &mut HashMap<_, _>, name: Option<String>, id: &SessionId| {
            let Some(name) = name else { return };
            names.entry(name).and_modify(|known| *known = None).or_insert_with(|| Some(id.clone()));
        };

        for (id, label) in &labels {
            add(&mut by_name, host_label(label), id);
            add(&mut ids, host_label(&id.0), id);
        }

        // An id always means its own session, even if it is also the label of another one.
        by_name.extend(ids);
        Self { by_name, labels }
    }

    /// Returns the session with this name, which is in lower case.
    pub(crate) fn find(&self, name: &str) -> Named {
        match self.by_name.get(name) {
            Some(Some(id)) => Named::One(id.clone()),
            Some(None) => Named::Several,
            None => Named::Nothing,
        }
    }

    /// Returns the name of a session. `None` if it was deleted, or its id cannot be a part of a host name.
    pub(crate) fn of_session(&self, id: &SessionId) -> Option<String> {
        let by_label = host_label(self.labels.get(id)?);
        // The id is the second choice, for a label that several sessions share or that is too long.
        let names = [by_label, host_label(&id.0)].into_iter().flatten();
        names.into_iter().find(|name| self.find(name) == Named::One(id.clone()))
    }
}

/// Makes a label of a host name of a text. `None` if nothing is left, or the result is too long.
fn host_label(text: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(plain).collect();
    let name = name.trim_matches('-');
    (1..=MAX_NAME).contains(&name.len()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_session_and_two_sessions_with_one_name_have_their_ids() {
        let long = "x".repeat(64);
        let labels = [
            ("ID-1", "api"),
            ("id-2", "api/review"),
            ("id-3", "Über ente"),
            ("id-4", "a b"),
            ("id-5", "a/b"),
            ("id-6", "id-1"),
            ("id-7", "🦆"),
            ("id-8", long.as_str()),
            (long.as_str(), "-/-"),
        ];
        let labels = labels.map(|(id, label)| (id.into(), label.to_owned()));
        let names = LinkNames::of(labels.into_iter().collect());
        for (id, name) in [
            ("ID-1", Some("api")),
            ("id-2", Some("api-review")),
            ("id-3", Some("ber-ente")),
            ("id-4", Some("id-4")),
            ("id-5", Some("id-5")),
            ("id-6", Some("id-6")),
            ("id-7", Some("id-7")),
            ("id-8", Some("id-8")),
            (long.as_str(), None),
            ("deleted", None),
        ] {
            assert_eq!(names.of_session(&id.into()).as_deref(), name, "{id}");
            if let Some(name) = name {
                assert_eq!(names.find(name), Named::One(id.into()), "{name}");
            }
        }
        assert_eq!(names.find("id-1"), Named::One("ID-1".into()), "an id counts before a label");
        assert_eq!(names.find("a-b"), Named::Several);
        assert_eq!((names.find("web"), names.find("")), (Named::Nothing, Named::Nothing));
    }
}
