//! Requests of commands for credentials of the user. A process of the user's finds out what a request is for and carries it
//! out (`workers/credentials`). Here the rules of hosts and the user's grants decide, or the user.

use super::NetworkActor;
use super::credential_requests::{Choice, OpenRequest, choose};
use crate::approvals::{Outcome, Subject};
use crate::obeyed::Obeyed;
use crate::session::agent::pi::outside::clean_blocking;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_config::SSH_AGENT_AUTO;
use quackd_policy::hosts::{Decision as HostDecision, Host};
use quackd_process::Writable;
use quackd_protocol::approval::{AnswerScope, ApprovalKind, Decision};
use quackd_protocol::credentials::{
    CredentialAnswer, CredentialRefusal, CredentialRequest, CredentialStart, CredentialUse,
    CredentialUsed, MAX_KNOWN_HOSTS, RefusedCredential,
};
use quackd_protocol::network::{MAX_CONNECTION_WAIT, ToProxy};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest use that the user is asked about, in bytes. The question must show all of it.
const MAX_ASKED: usize = 160;

/// Most other names of a host in a question, and the longest of them, in bytes.
const MAX_OTHER_NAMES: usize = 3;
const MAX_OTHER_NAME: usize = 64;

/// Maximum wait for the login environment, and for reading the links of paths in it.
const ENVIRONMENT_TIMEOUT: Duration = Duration::from_secs(3);
const CLEAN_LIMIT: Duration = Duration::from_secs(5);

/// Variables of the daemon that git's credential helpers get in addition to those of commands: for the keyring of the
/// desktop, and for `gpg` and `pass`.
const OF_HELPERS: [&str; 7] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];

/// Decide about the use of a credential, of which there may be several by the names of a host. Asks the user if necessary.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), CredentialRefusal>")]
pub(super) struct DecideCredential {
    id: u64,
    /// The proxy that sent the request.
    generation: u64,
    uses: Vec<CredentialUse>,
}

impl NetworkActor {
    /// Handles a request of the proxy, which is hostile.
    pub(super) fn credential_requested(
        &mut self,
        id: u64,
        request: CredentialRequest,
        ctx: &mut Context<Self>,
    ) {
        if !self.credentials.may_open(id) {
            return self.proxy_broke("a request for a credential that it may not send", ctx);
        }

        let settings = &self.services.daemon.config.credentials;
        let is_on = match request {
            CredentialRequest::Git { .. } => settings.git.value,
            CredentialRequest::Keys {} | CredentialRequest::Sign(_) => settings.ssh.value,
        };
        let refusal = if is_on {
            // Each login and signature has asked for the keys before.
            let is_counted = !matches!(request, CredentialRequest::Keys {});
            let is_beyond = is_counted && !self.credentials.count(Instant::now());
            is_beyond.then_some(CredentialRefusal::TooMany)
        } else {
            Some(CredentialRefusal::Off)
        };
        if let Some(refusal) = refusal {
            self.note_refused(None, refusal);
            let done = ToProxy::CredentialDone { id, result: Err(refusal), used_as: None };
            return self.tell_proxy(&done, ctx);
        }

        self.credentials.open.insert(id, OpenRequest::default());
        let candidates = self.rules.hosts().known_hosts().take(MAX_KNOWN_HOSTS).collect();
        let (actor, generation) = (ctx.address(), self.child.generation);
        let decide = move |uses| async move {
            let decided = actor.send(DecideCredential { id, generation, uses }).await;
            decided.unwrap_or(Err(CredentialRefusal::Failed))
        };
        let services = Rc::clone(&self.services);
        let processes = Rc::clone(&self.credentials.processes);
        let carrying_out = async move {
            let _permit = processes.acquire().await.map_err(|_closed| CredentialRefusal::Failed)?;
            let start = start(&services, request, candidates).await;
            let start = start.ok_or(CredentialRefusal::Failed)?;
            Rc::clone(&services.children.credentials).carry_out(start, decide).await
        };
        ctx.spawn(carrying_out.into_actor(self).map(move |result, actor, ctx| {
            if actor.child.current(generation).is_some() {
                actor.credential_done(id, result, ctx);
            }
        }));
    }

    /// Passes the result on, and reports it if the purpose is known.
    fn credential_done(
        &mut self,
        id: u64,
        result: Result<CredentialAnswer, CredentialRefusal>,
        ctx: &mut Context<Self>,
    ) {
        let OpenRequest { uses, purpose, .. } =
            self.credentials.open.remove(&id).unwrap_or_default();
        // A grant may have been removed while git or the agent was asked.
        let result = result.and_then(|answer| match self.choose(&uses) {
            None | Some((_, Choice::Allow)) => Ok(answer),
            Some((_, Choice::Refuse(refusal))) => Err(refusal),
            Some((_, Choice::Ask)) => Err(CredentialRefusal::Denied),
        });
        let is_unsafe = self.is_safe && purpose.as_ref().is_some_and(CredentialUse::may_write);
        let result = if is_unsafe { result.and(Err(CredentialRefusal::SafeMode)) } else { result };

        let session = &self.session.id;
        let used_as = purpose.map(|purpose| purpose.to_string());
        match (&used_as, &result) {
            (Some(purpose), result) => {
                let words = result.as_ref().err().map(ToString::to_string);
                let result = words.unwrap_or_else(|| "allowed".to_owned());
                tracing::info!(%session, %purpose, result, "credential requested");
                let used = CredentialUsed { purpose: purpose.clone(), result };
                self.services.events.publish_typed(session, CredentialUsed::NAME, || used);
            }
            (None, Err(refusal)) => tracing::info!(%session, %refusal, "credential refused"),
            // The list of public keys.
            (None, Ok(_)) => {}
        }
        if let Err(refusal) = &result {
            self.note_refused(used_as.as_deref(), *refusal);
        }
        self.tell_proxy(&ToProxy::CredentialDone { id, result, used_as }, ctx);
    }

    /// Records a refusal for `quack sandbox denials`: a program on a terminal has no answer of a call that names it.
    fn note_refused(&self, used_as: Option<&str>, why: CredentialRefusal) {
        let (what, label) = (used_as.unwrap_or_default().to_owned(), self.session.label.clone());
        self.network.refuse_credential(&RefusedCredential { what, why, label });
    }

    /// Whether the rules allow the host of a use.
    fn may_reach(&self, purpose: &CredentialUse) -> bool {
        purpose.host().is_none_or(|(host, port)| {
            Host::read(host).is_ok_and(|host| {
                let decision = self.rules.hosts().decide(&host, port);
                matches!(decision, HostDecision::Allowed(_))
            })
        })
    }

    /// Returns the user's decision about a use. `None` if the user was not asked yet.
    fn decision_about(&self, purpose: &CredentialUse) -> Option<Decision> {
        let is_allowed_once = self.credentials.is_allowed_once(purpose, Instant::now());
        let of_once = is_allowed_once.then_some(Decision::Allow);
        self.rules.credentials().decide(purpose).or(of_once)
    }

    fn choose<'a>(&self, uses: &'a [CredentialUse]) -> Option<(&'a CredentialUse, Choice)> {
        choose(uses, |purpose| self.may_reach(purpose), |purpose| self.decision_about(purpose))
    }

    /// Handles the outcome of a question about the first of `uses` that the session may reach.
    fn credential_answered(
        &mut self,
        purpose: CredentialUse,
        uses: &[CredentialUse],
        outcome: Outcome,
    ) -> Result<(), CredentialRefusal> {
        match outcome {
            Outcome::Allowed(AnswerScope::Once) => {
                self.credentials.allow_once(purpose, Instant::now());
                Ok(())
            }
            // The grant is in the rules.
            Outcome::Allowed(_) => Ok(()),
            Outcome::Denied => Err(CredentialRefusal::Denied),
            Outcome::TimedOut => {
                self.credentials.not_answered(purpose, Instant::now());
                Err(CredentialRefusal::Timeout)
            }
            Outcome::TooMany => Err(CredentialRefusal::TooMany),
            Outcome::NoAnswerer | Outcome::Ended => Err(CredentialRefusal::NoAnswerer),
            Outcome::RulesChanged => match self.choose(uses) {
                Some((_, Choice::Allow)) => Ok(()),
                Some((_, Choice::Refuse(refusal))) => Err(refusal),
                Some((_, Choice::Ask)) | None => Err(CredentialRefusal::NoAnswerer),
            },
        }
    }

    /// Forgets the uses that the user allowed once, and the credentials that the proxy keeps.
    pub(super) fn forget_credentials(&mut self, ctx: &mut Context<Self>) {
        self.credentials.forget_once();
        if self.child.process.is_some() {
            self.tell_proxy(&ToProxy::ForgetCredentials {}, ctx);
        }
    }

    /// Closes open questions about which grants decide now. Forgets permissions if a grant was removed.
    pub(super) fn credential_grants_changed(&mut self, is_narrower: bool, ctx: &mut Context<Self>) {
        if is_narrower {
            self.forget_credentials(ctx);
        }
        for OpenRequest { uses, asked, .. } in self.credentials.open.values() {
            if let Some(subject) = asked
                && !matches!(self.choose(uses), Some((_, Choice::Ask)))
            {
                self.services.approvals.withdraw(subject);
            }
        }
    }

    /// Closes the questions of calls that have ended.
    pub(super) fn end_credential_questions(&self) {
        for open in self.credentials.open.values().filter(|open| open.is_of_calls) {
            if let Some(subject) = &open.asked {
                self.services.approvals.withdraw(subject);
            }
        }
    }
}

impl Handler<DecideCredential> for NetworkActor {
    type Result = ResponseActFuture<Self, Result<(), CredentialRefusal>>;

    fn handle(&mut self, msg: DecideCredential, _: &mut Self::Context) -> Self::Result {
        let DecideCredential { id, generation, uses } = msg;
        let ready = |result: Result<(), CredentialRefusal>| -> Self::Result {
            Box::pin(actix::fut::ready(result))
        };
        if self.child.current(generation).is_none() {
            return ready(Err(CredentialRefusal::Failed));
        }
        if self.is_safe && uses.iter().any(CredentialUse::may_write) {
            self.credentials.open.entry(id).or_default().purpose = uses.into_iter().next();
            return ready(Err(CredentialRefusal::SafeMode));
        }

        let Some((purpose, choice)) = self.choose(&uses) else {
            return ready(Err(CredentialRefusal::Failed));
        };
        let purpose = purpose.clone();
        let open = self.credentials.open.entry(id).or_default();
        (open.uses, open.purpose) = (uses.clone(), Some(purpose.clone()));
        match choice {
            Choice::Allow => ready(Ok(())),
            Choice::Ask => self.ask_about_credential(id, purpose, uses),
            Choice::Refuse(refusal) => ready(Err(refusal)),
        }
    }
}

impl NetworkActor {
    /// Asks the user about a use, which is one of `uses`.
    fn ask_about_credential(
        &mut self,
        id: u64,
        purpose: CredentialUse,
        uses: Vec<CredentialUse>,
    ) -> ResponseActFuture<Self, Result<(), CredentialRefusal>> {
        if self.credentials.was_unanswered(&purpose, Instant::now()) {
            return Box::pin(actix::fut::ready(Err(CredentialRefusal::Timeout)));
        }
        let target = purpose.to_string();
        let is_asked = self.services.daemon.config.sandbox.asks_about(ApprovalKind::Credential);
        if !is_asked || MAX_ASKED < target.len() {
            return Box::pin(actix::fut::ready(Err(CredentialRefusal::NoAnswerer)));
        }

        let (session, kind) = (self.session.id.clone(), ApprovalKind::Credential);
        let subject = Subject { session, kind, given: target.clone(), target };
        let others = uses.iter().filter(|other| **other != purpose && self.may_reach(other));
        let facts = format!("{}{}", in_words(&purpose), or_also(others));
        let asked = self.question(subject.clone(), "Allow the use of a credential?", &facts);
        let open = self.credentials.open.entry(id).or_default();
        (open.asked, open.is_of_calls) = (Some(subject), asked.is_of_calls);
        let outcome =
            self.services.approvals.ask(asked.question, asked.wait.min(MAX_CONNECTION_WAIT));
        let answered = move |outcome, actor: &mut Self, _: &mut Context<Self>| {
            actor.credential_answered(purpose, &uses, outcome)
        };
        Box::pin(outcome.into_actor(self).map(answered))
    }
}

/// Returns the first line of a question.
fn in_words(purpose: &CredentialUse) -> String {
    let text = purpose.to_string();
    let object = text.split_once(' ').map_or("", |(_, object)| object);
    match purpose {
        CredentialUse::Ssh { .. } => format!("uses your ssh key to log in to {object}"),
        CredentialUse::Fetch(_) => format!("reads {object} with your git credential"),
        CredentialUse::Push(_) => format!("pushes to {object} with your git credential"),
        CredentialUse::Sign => "signs commits with your ssh key".to_owned(),
    }
}

/// Returns the end of the first line of a question: other names of the host, which has the same key under each.
fn or_also<'a>(others: impl Iterator<Item = &'a CredentialUse>) -> String {
    let (mut shown, mut n_more) = (Vec::new(), 0);
    for (host, port) in others.filter_map(CredentialUse::host) {
        let name = if port == 22 { host.to_owned() } else { format!("{host}:{port}") };
        if shown.len() < MAX_OTHER_NAMES && name.len() <= MAX_OTHER_NAME {
            shown.push(name);
        } else {
            n_more += 1;
        }
    }
    if n_more != 0 {
        shown.push(format!("{n_more} more"));
    }
    let begin = if shown.is_empty() { "" } else { " or also " };
    format!("{begin}{}", shown.join(", "))
}

/// Returns the first frame for the process of the user's. `None` if the environment cannot be read in time.
async fn start(
    services: &SessionServices,
    request: CredentialRequest,
    candidates: Vec<String>,
) -> Option<CredentialStart> {
    let (daemon, login) = (&services.daemon, &services.children.login);
    let is_auto = daemon.config.credentials.ssh_agent.value == SSH_AGENT_AUTO;
    if is_auto && services.ssh_agent().is_none() {
        login.captured(ENVIRONMENT_TIMEOUT).await;
    }
    let agent = services.ssh_agent();

    let user_home = daemon.user_home.clone();
    let mut env = login.env_for_worker(ENVIRONMENT_TIMEOUT).await;
    env.retain(|(name, _)| name != "HOME" && !OF_HELPERS.contains(&name.as_str()));
    env.push(("HOME".to_owned(), user_home.to_string_lossy().into_owned()));
    let own = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok()?));
    env.extend(OF_HELPERS.iter().filter_map(own));

    let writable = login.writable().await?;
    let untrusted = writable.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let is_git = matches!(request, CredentialRequest::Git { .. });
    let clean = move || {
        // They prove the host to which the proxy sends the credential.
        if is_git && let Some(held) = Obeyed::held_certificates_blocking(writable.clone()) {
            return Err(held);
        }
        clean_blocking(&Writable::of_blocking(writable, &user_home), &mut env);
        Ok(env)
    };
    match services.look(CLEAN_LIMIT, clean).await.ok()? {
        Ok(env) => Some(CredentialStart { request, agent, candidates, env, untrusted }),
        Err(held) => {
            tracing::warn!(%held, "credentials of git are not used");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_lists_some_other_names_of_the_host() {
        let uses = |hosts: &[&str]| -> Vec<CredentialUse> {
            hosts.iter().map(|host| format!("ssh me@{host}").parse().unwrap()).collect()
        };
        let long = "x".repeat(MAX_OTHER_NAME + 1);
        assert_eq!(or_also(uses(&[]).iter()), "");
        assert_eq!(or_also(uses(&["a", "b:2222"]).iter()), " or also a, b:2222");
        let many = uses(&["a", &long, "b", "c", "d"]);
        assert_eq!(or_also(many.iter()), " or also a, b, c, 2 more");
    }

    #[test]
    fn a_question_names_the_use() {
        for (text, expected) in [
            ("ssh git@github.com", "uses your ssh key to log in to git@github.com"),
            ("ssh me@a.example:2222", "uses your ssh key to log in to me@a.example:2222"),
            ("fetch github.com/me/app", "reads github.com/me/app with your git credential"),
            ("push github.com/me/app", "pushes to github.com/me/app with your git credential"),
            ("sign commits", "signs commits with your ssh key"),
        ] {
            assert_eq!(in_words(&text.parse().unwrap()), expected);
        }
    }
}
