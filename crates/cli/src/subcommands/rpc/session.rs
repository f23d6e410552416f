//! The session that the client follows, and the commands that select another one.

use super::calls::{abort, delete, refused, send};
use super::finding::{Lookup, find_path};
use super::output::note;
use crate::subcommands::follow::follow_connection::FollowConnection;
use quackd_client::{Client, ClientError};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::client::{ForkParams, SessionNewParams, SessionSetParams};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commands whose settings Pi keeps in new sessions.
const SETTINGS: [&str; 8] = [
    "set_steering_mode",
    "set_follow_up_mode",
    "set_auto_compaction",
    "set_auto_retry",
    "set_model",
    "cycle_model",
    "set_thinking_level",
    "cycle_thinking_level",
];

/// Options of the command line for new sessions.
#[derive(Debug, Clone)]
pub(super) struct ForNew {
    pub(super) engine: Option<String>,
    /// Model of new sessions, as `provider/model` or as a name.
    pub(super) model: Option<String>,
    /// Name of the thinking level of new sessions.
    pub(super) thinking: Option<String>,
}

/// Whether a command sets something that new sessions keep.
pub(super) fn is_setting(name: &str) -> bool {
    SETTINGS.contains(&name)
}

/// Returns the setting that a command has made: its name, and the command that repeats it in another session. `fields`
/// and `data` are those of the command and its response. `None` if it cannot be repeated.
pub(super) fn setting(
    name: &str,
    fields: &Map<String, Value>,
    data: Option<&Value>,
) -> Option<(&'static str, Value)> {
    let of_data = |path: &str| data.and_then(|data| data.pointer(path)).cloned();
    let model = |at: &str| {
        let (provider, id) = (of_data(&format!("{at}/provider"))?, of_data(&format!("{at}/id"))?);
        let command = json!({ "type": "set_model", "provider": provider, "modelId": id });
        Some(("set_model", command))
    };
    let level = |level: Option<Value>| {
        let command = json!({ "type": "set_thinking_level", "level": level? });
        Some(("set_thinking_level", command))
    };

    match name {
        "set_model" => model(""),
        "cycle_model" => model("/model"),
        "set_thinking_level" => level(fields.get("level").cloned()),
        "cycle_thinking_level" => level(of_data("/level")),
        name => {
            let name = SETTINGS.into_iter().find(|known| *known == name)?;
            Some((name, Value::Object(fields.clone())))
        }
    }
}

/// The followed session.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    pub(super) follow: FollowConnection,
    /// Options of the agents of all sessions that this client follows, as long as it does.
    pub(super) options: AgentOptions,
    pub(super) for_new: ForNew,
    /// Settings of the client: the commands that repeat them, by their names.
    pub(super) settings: BTreeMap<&'static str, Value>,
    /// Sessions that this client creates are deleted at the end.
    pub(super) is_temporary: bool,
    /// Whether this client has created it.
    pub(super) is_created: bool,
    /// Whether this client has begun work in it.
    pub(super) has_worked: bool,
}

impl Session {
    pub(super) fn id(&self) -> String {
        self.follow.session().to_owned()
    }

    /// Ends what this program has begun. A turn of another client goes on.
    pub(super) async fn abort(&self) {
        if self.has_worked {
            abort(&self.client, &self.id()).await;
        }
    }

    /// Gives a session the options of the command line, if there are any.
    pub(super) async fn limit(&self, session: &str) -> Result<(), ClientError> {
        self.set_options(session, self.options.clone()).await
    }

    async fn set_options(&self, session: &str, options: AgentOptions) -> Result<(), ClientError> {
        // Without options, those of other clients stay.
        if self.options == AgentOptions::default() {
            return Ok(());
        }

        let params = SessionSetParams {
            session_id: session.into(),
            agent_options: Some(options),
            ..SessionSetParams::default()
        };
        self.client.call(params).await.map(drop)
    }

    /// Takes the options of the command line from a session that is followed no more. Deletes it if it is temporary.
    async fn leave(&self, session: &str, is_created: bool) {
        // The session may be gone.
        self.set_options(session, AgentOptions::default()).await.ok();
        if self.is_temporary && is_created {
            delete(&self.client, session.to_owned()).await;
        }
    }

    pub(super) async fn end(&self) {
        self.abort().await;
        self.leave(self.follow.session(), self.is_created).await;
    }

    /// Follows another session.
    async fn follow(&mut self, id: String, is_created: bool) -> Result<(), ClientError> {
        let begin = |id| FollowConnection::begin(Arc::clone(&self.client), id, None, true);

        let attempt = match self.limit(&id).await {
            Ok(()) => begin(id.clone()).await,
            Err(error) => Err(error),
        };

        let next = match attempt {
            Ok(next) => next,
            Err(error) => {
                if id != self.id() {
                    self.leave(&id, is_created).await;
                }
                // The attempt has ended the old subscription.
                self.follow = begin(self.id()).await?;
                return Err(error);
            }
        };

        let old = std::mem::replace(&mut self.follow, next);
        let was_created = std::mem::replace(&mut self.is_created, is_created);
        self.has_worked = false;
        if old.session() != self.follow.session() {
            self.leave(old.session(), was_created).await;
        }
        Ok(())
    }

    /// Gives the followed session the settings of the client. A new one also gets its model and level, unless the
    /// command line names them.
    async fn settle(&self, is_new: bool) {
        let ForNew { model, thinking, .. } = &self.for_new;
        let level = thinking.as_ref().filter(|_| is_new);
        let level = level.map(|level| json!({ "type": "set_thinking_level", "level": level }));

        // A session that exists keeps its model and its level.
        let settings = self.settings.iter().filter(|(name, _)| match **name {
            "set_model" => is_new && model.is_none(),
            "set_thinking_level" => is_new && thinking.is_none(),
            _ => true,
        });

        for command in settings.map(|(_, command)| command.clone()).chain(level) {
            let name = command.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Err(error) = send(&self.client, &self.id(), command).await {
                note(&format!("{name} of the session before does not hold here: {error}"));
            }
        }
    }

    /// Creates a session of the workspace with the restrictions of this one, and follows it.
    async fn begin_new(&mut self, conversation_id: Option<String>) -> Result<(), ClientError> {
        let ForNew { engine, model, .. } = self.for_new.clone();
        let params = SessionNewParams {
            path: Some(self.follow.followed().workspace_path.clone()),
            restrictions_of: Some(self.id()),
            engine,
            model,
            conversation_id,
            ..SessionNewParams::default()
        };

        let data = self.client.call(params).await?;
        self.follow(data.session.id.0, true).await?;
        self.settle(true).await;
        Ok(())
    }

    /// Runs a command that selects another session.
    pub(super) async fn switch(
        &mut self,
        name: &str,
        fields: &Map<String, Value>,
    ) -> Result<Value, ClientError> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let cancelled = json!({ "cancelled": false });

        match name {
            "switch_session" => {
                let path = text("sessionPath");
                if path.is_empty() {
                    return Err(refused("sessionPath is missing"));
                }

                let workspace = self.follow.followed().workspace_path.clone();
                match find_path(&self.client, path, &workspace).await? {
                    Lookup::Known(id) => {
                        // A session that this client left may belong to others by now: it is not deleted.
                        let is_created = self.is_created && id == self.id();
                        self.follow(id, is_created).await?;
                        self.settle(false).await;
                    }
                    Lookup::Missing(id) => self.begin_new(id).await?,
                }
                Ok(cancelled)
            }
            "fork" | "clone" => {
                let entry_id = (name == "fork").then(|| text("entryId").to_owned());
                let session_id = self.id().into();
                let params = ForkParams { session_id, entry_id, ..ForkParams::default() };
                let data = self.client.call(params).await?;
                self.follow(data.session_id.0, true).await?;
                self.settle(false).await;
                Ok(match name {
                    "fork" => json!({ "text": data.text.unwrap_or_default(), "cancelled": false }),
                    _ => cancelled,
                })
            }
            _ => {
                self.begin_new(None).await?;
                Ok(cancelled)
            }
        }
    }
}
