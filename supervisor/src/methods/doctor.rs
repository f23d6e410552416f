//! `doctor`: checks of the daemon and its surroundings, with hints for the user.
//!
//! Names and order are upstream's where they exist there. Each check is one function. The file system is read once on
//! the blocking pool, before the checks run.

use super::directories::held;
use super::doctor_results::{fail, ok, warn};
use super::{Caller, Serve, doctor_far, doctor_mcp, doctor_obeyed, doctor_supervision};
use crate::errors::MethodError;
use crate::health::Health;
use crate::retention::{Lost, gone};
use crate::services::Services;
use crate::session::agent::Failure;
use quackd_egress::models::{Chosen, ModelCatalog};
use quackd_protocol::agent::Engine;
use quackd_protocol::client::{
    Check, CheckStatus, DoctorData, DoctorParams, ExecutableInfo, ExecutableState, ProcessState,
    RemoteStatus, SessionInfo, WorkerInfo,
};
use quackd_protocol::environment::{LoginSource, LoginState};
use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use quackd_protocol::plain::without_numbers;
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use quackd_rubber_duck::Watching;
use quackd_store::Origin;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Hint for a login shell that ran without confinement.
const UNCONFINED_SHELL: &str = "keep files that your start files run out of workspaces, or set environment.login_shell = false";

/// Timeout for file system access.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

impl Serve<DoctorParams> for Caller {
    async fn serve(&self, params: DoctorParams) -> Result<DoctorData, MethodError> {
        let DoctorParams { refresh_environment } = params;
        let services = &self.services;
        if refresh_environment {
            services.sessions.children.login.refresh().await;
        }

        // Without the registry, the checks of everything else still help.
        let snapshot = self.snapshot().await.ok();
        let (workers, known) = snapshot
            .as_ref()
            .map(|it| (it.workers(&services.sessions), it.session_count()))
            .unwrap_or_default();
        let on_disk = look(services).await;
        services.sessions.pool.disk.check().await;

        let mut checks = vec![daemon(services)];
        let settings = &services.daemon.config.sandbox;
        let writable = snapshot.as_ref().map(|it| it.writable(settings)).unwrap_or_default();
        let held = held(self, writable.clone()).await;
        checks.extend(crate::session::agent::pi::checks(&services.sessions, writable).await);
        checks.extend(match &on_disk {
            None => vec![fail(
                "disk",
                "the state directory does not answer".to_owned(),
                "check the disk that contains it",
            )],
            Some(on_disk) => {
                let (modified, other) = on_disk.config.clone();
                vec![
                    socket(services, on_disk),
                    doctor_obeyed::config(services, modified, other),
                    log(services, on_disk),
                    services.sessions.pool.disk.report(services.retention.last()),
                ]
            }
        });
        checks.push(metadata(&services.health, known));
        checks.push(sandbox(&workers));
        checks.push(processes(services));
        checks.push(environment(services));
        checks.push(doctor_obeyed::obeyed(&held));
        checks.push(providers(&services.health));
        checks.push(model(
            &*services.sessions.models.catalog().await,
            services.sessions.agent_failure.get(Engine::Native),
        ));
        checks.extend(doctor_mcp::check(services, &workers));
        checks.extend(doctor_far::check(services, &workers).await);
        checks.push(web_search(&services.health));
        checks.push(sessions(&workers, gone(&services.sessions, &self.registry).await));
        checks.push(doctor_supervision::check(services));
        checks.push(remote(&services.remote.status().await));
        checks.extend(services.metrics_endpoint.check());
        checks.push(executable(&super::daemon::executable(services).await));

        for check in &mut checks {
            check.message = without_numbers(&check.message);
        }
        Ok(DoctorData { checks })
    }
}

/// State of files on disk.
#[derive(Debug)]
struct OnDisk {
    socket: bool,
    /// Time of the last change of the file that was read, or that the next daemon reads in its place, with its path.
    config: (Option<SystemTime>, Option<PathBuf>),
    log: bool,
    rival: Option<PathBuf>,
}

async fn look(services: &Services) -> Option<OnDisk> {
    let socket = services.daemon.socket.clone();
    let (used, home) = (services.daemon.config_file.path.clone(), services.daemon.home.clone());
    let is_default = services.daemon.config_file.is_default;
    let read = move || OnDisk {
        socket: socket.symlink_metadata().is_ok(),
        config: {
            // The next daemon reads a file that was created at the other path since the start.
            let next = if is_default { home.config_blocking() } else { used.clone() };
            let modified = next.metadata().and_then(|metadata| metadata.modified()).ok();
            (modified, (next != used).then_some(next))
        },
        log: home.log_file().is_file(),
        rival: home.rival().map(Path::to_owned),
    };

    // A disk that hangs is reported as a failed check.
    tokio::time::timeout(LOOKUP_TIMEOUT, actix_rt::task::spawn_blocking(read)).await.ok()?.ok()
}

fn daemon(services: &Services) -> Check {
    let (pid, uptime) = (std::process::id(), services.daemon.started.elapsed().as_secs());
    ok("daemon", format!("Running (pid {pid}, uptime {uptime}s)"))
}

fn executable(info: &ExecutableInfo) -> Check {
    const NAME: &str = "executable";
    let path = &info.path;
    match info.state {
        ExecutableState::Current => ok(NAME, path.clone()),
        ExecutableState::Replaced => warn(
            NAME,
            format!("another program stands at {path} since the daemon was started"),
            "`quack restart` starts that one when nothing is at work",
        ),
        ExecutableState::Deleted => warn(
            NAME,
            format!("{path} was deleted; the daemon keeps running with its open file"),
            "`quack restart`, from where the program is now",
        ),
        ExecutableState::Unknown => {
            warn(NAME, format!("{path} cannot be looked at"), "check the disk that contains it")
        }
    }
}

fn socket(services: &Services, on_disk: &OnDisk) -> Check {
    let path = services.daemon.socket.display();
    if !on_disk.socket {
        let pid = std::process::id();
        return fail(
            "socket",
            format!("Socket file missing: {path}"),
            format!("it is created again within 5 s; if not, `kill {pid}`, then `quack`"),
        );
    }
    match &on_disk.rival {
        None => ok("socket", path.to_string()),
        Some(rival) => warn(
            "socket",
            format!("{path}; another state directory exists and is not used: {}", rival.display()),
            "move or delete one of them, or set RUBBER_DUCK_APP_SUPPORT",
        ),
    }
}

fn log(services: &Services, on_disk: &OnDisk) -> Check {
    let path = services.daemon.home.log_file().display().to_string();
    if on_disk.log {
        return ok("log", path);
    }
    warn(
        "log",
        format!("Log file missing: {path}"),
        "it is made again with the next line; if not, look at the directory's permissions",
    )
}

fn metadata(health: &Health, known: usize) -> Check {
    const NAME: &str = "metadata";
    for (file, loaded) in
        [("metadata.json", &health.metadata), ("quackd-state.json", &health.state)]
    {
        match loaded {
            Err(why) => {
                return fail(
                    NAME,
                    format!("{file} is not written: {why}"),
                    "use the program that wrote it, or move the file away and restart the daemon",
                );
            }
            Ok(Origin::Lost { quarantined, reason }) => {
                return fail(
                    NAME,
                    format!("{file} was damaged and there was no copy: {reason}"),
                    format!(
                        "it is kept as {}; you can restore its content by hand",
                        quarantined.display()
                    ),
                );
            }
            Ok(Origin::Backup { quarantined, reason, .. }) => {
                const MISSING: &str = "the newest changes may be missing";
                let kept = match quarantined {
                    None => format!("{MISSING}; attach again what you miss"),
                    Some(path) => format!("it is kept as {}; {MISSING}", path.display()),
                };
                let message = format!("{file} was restored from quackd's own copy: {reason}");
                return fail(NAME, message, kept);
            }
            Ok(Origin::Fresh | Origin::File) => {}
        }
    }
    if let Some(why) = &*health.save_failed.borrow() {
        return fail(
            NAME,
            format!("the last change could not be saved: {why}"),
            "free disk space or fix the permissions; the next change tries again",
        );
    }
    if let Some((path, reason)) = &*health.set_aside.borrow() {
        return fail(
            NAME,
            format!(
                "another program made metadata.json unusable, so quackd wrote it again: {reason}"
            ),
            format!("it is kept as {path}; you can restore its content by hand"),
        );
    }

    let known = format!("{known} session{}", if known == 1 { "" } else { "s" });
    match health.watch_mode.as_ref().map(|watching| watching.borrow().clone()) {
        Some(Watching::Polling { why }) => warn(
            NAME,
            format!("{known}; polled every second instead of watched: {why}"),
            "raise fs.inotify.max_user_watches or max_user_instances; a watch is tried every minute",
        ),
        Some(Watching::Starting | Watching::Told) | None => ok(NAME, known),
    }
}

fn sandbox(workers: &[WorkerInfo]) -> Check {
    const NAME: &str = "sandbox";
    let mut tiers: BTreeMap<&str, usize> = BTreeMap::new();
    for tier in workers.iter().filter_map(|worker| worker.tier) {
        *tiers.entry(tier.in_words()).or_default() += 1;
    }
    let counts: Vec<String> = tiers.iter().map(|(words, n)| format!("{n} {words}")).collect();
    let counts = counts.join(", ");

    let mut unconfined = workers.iter().filter(|worker| worker.tier == Some(Tier::Unconfined));
    if tiers.is_empty() {
        return ok(
            NAME,
            "no worker runs; `quack sandbox show` shows the policy of the next one".to_owned(),
        );
    }
    if unconfined.clone().any(|worker| worker.policy != Some(Profile::FullAccess)) {
        return fail(
            NAME,
            format!("{counts}: this system cannot confine commands, so they are refused"),
            "`quack sandbox show` shows why; `quack sandbox set full-access` runs them without confinement",
        );
    }
    if unconfined.next().is_some() {
        return warn(
            NAME,
            format!("{counts}: commands that are not confined run with all your rights"),
            "full-access is set; `quack sandbox show` shows where",
        );
    }
    if workers.iter().any(|worker| worker.tier == Some(Tier::D)) {
        return warn(
            NAME,
            format!("{counts}: without namespaces, so some things stay visible"),
            "docs/security.md#tier-d says what stays visible",
        );
    }
    ok(NAME, counts)
}

fn processes(services: &Services) -> Check {
    const NAME: &str = "processes";
    let metrics = &services.sessions.metrics;
    let (survivors, strays) = (metrics.survivors.get(), metrics.strays_killed.get());
    let ended = match strays {
        0 => String::new(),
        n => format!("; {n} had to be ended after their worker was gone"),
    };
    let kept = match (&services.sessions.children.cgroups, &services.health.no_cgroups) {
        (Some(base), _) => {
            let memory = match services.daemon.config.limits.session_memory_mb.value {
                Some(0) => "the memory of sessions has no limit",
                _ if base.limits_memory() => "the kernel limits the memory of sessions",
                _ => "workers sample the memory of sessions",
            };
            let counted = match base.total() {
                Some(total) => format!("at most {total} processes"),
                None => "processes are not counted".to_owned(),
            };
            format!("control groups, {counted}, {memory}")
        }
        (None, Some(why)) => format!("no control groups ({why})"),
        (None, None) => "no control groups".to_owned(),
    };
    match survivors {
        0 => ok(NAME, format!("nothing survived its command{ended}; {kept}")),
        n => warn(
            NAME,
            format!("{n} processes of commands could not be ended{ended}"),
            "they hang in the kernel or have other rights; `quack logs` says of which session, `ps` which",
        ),
    }
}

fn environment(services: &Services) -> Check {
    const NAME: &str = "environment";
    let LoginState { source, shell, captured_at, error, path_entries, confined, .. } =
        services.sessions.children.login.state();
    let shell = shell.unwrap_or_else(|| "the login shell".to_owned());
    let at = captured_at.unwrap_or_default();
    let path = format!("{} entries", path_entries.len());
    let entries = path_entries.join(":");
    let again = "fix the shell's startup files, then `quack doctor --refresh-environment`";

    let mut check = match (source, error) {
        (LoginSource::Off, _) => {
            ok(NAME, format!("the daemon's own, login_shell is off, PATH of {path}"))
        }
        (LoginSource::Fresh, None) => ok(NAME, format!("of {shell}, {at}, PATH of {path}")),
        (LoginSource::Cached, None) => {
            ok(NAME, format!("of {shell}, kept since {at}, PATH of {path}"))
        }
        (LoginSource::None, None) => {
            ok(NAME, format!("the daemon's own, {shell} is being asked, PATH of {path}"))
        }
        (LoginSource::None, Some(error)) => {
            warn(NAME, format!("the daemon's own, {shell} failed: {error}; PATH of {path}"), again)
        }
        (_, Some(error)) => warn(
            NAME,
            format!("of {shell}, {at}; the last capture failed: {error}; PATH of {path}"),
            again,
        ),
    };

    if check.status == CheckStatus::Ok && source == LoginSource::Fresh && confined == Some(false) {
        let message = format!("{}; this system could not confine the shell", check.message);
        check = warn(NAME, message, UNCONFINED_SHELL);
    }
    // The list is at the end of the message, because the command line shows it on a separate line.
    check.message.push_str(&format!("; they are {entries}"));
    check
}

fn providers(health: &Health) -> Check {
    match health.providers.as_slice() {
        [] => warn(
            "providers",
            "No API keys found. Set OPENAI_API_KEY or ANTHROPIC_API_KEY".to_owned(),
            "only needed for an agent; tools work without it",
        ),
        found => ok("providers", found.join(", ")),
    }
}

fn model(catalog: &ModelCatalog, failure: Option<Failure>) -> Check {
    const NAME: &str = "model";
    /// Most problems that are listed.
    const MAX_PROBLEMS: usize = 8;
    let (first, rest) = catalog.problems().split_at(catalog.problems().len().min(MAX_PROBLEMS));
    let mut problems: String = first.iter().map(|problem| format!("; {problem}")).collect();
    if !rest.is_empty() {
        problems.push_str(&format!("; {} more, `quack models` lists them", rest.len()));
    }

    match catalog.chosen() {
        Some(Chosen { model, why, thinking, key_source, .. }) => {
            let text = format!(
                "{}/{} at {}, thinking {}, because of {why}; key: {key_source}{problems}",
                model.provider,
                model.id,
                model.base_url,
                thinking.name()
            );
            match failure {
                None => ok(NAME, text),
                Some(failure) => warn(
                    NAME,
                    format!("{text}; {failure}"),
                    "`quack logs` shows details; the next successful `quack say` clears this",
                ),
            }
        }
        None => warn(
            NAME,
            format!("none for quackd's own agent{problems}"),
            "`quack login PROVIDER`, or set OPENAI_API_KEY or ANTHROPIC_API_KEY, or `quack config set model.provider \
             NAME`; `quack models` shows every way",
        ),
    }
}

fn web_search(health: &Health) -> Check {
    let web = &health.web_search;
    if web.has_key {
        return ok("web_search", format!("key found, asks {}", web.endpoint));
    }
    warn(
        "web_search",
        "EXA_API_KEY not configured".to_owned(),
        "set EXA_API_KEY in the daemon's environment and restart it; only web_search needs it",
    )
}

fn remote(status: &RemoteStatus) -> Check {
    const NAME: &str = "remote";
    let n_clients = match status.connected_clients {
        1 => "1 client".to_owned(),
        n => format!("{n} clients"),
    };
    let url = match (&status.http_url, &status.last_error) {
        (Some(url), _) => url,
        (None, None) => return ok(NAME, "Disabled".to_owned()),
        (None, Some(why)) if status.enabled => {
            let message = format!("Configured but not listening: {why}");
            return warn(NAME, message, "`quack remote enable` tries again");
        }
        (None, Some(why)) => {
            let message = format!("Disabled: {why}");
            return warn(NAME, message, "`quack remote enable` creates it again");
        }
    };

    if status.token_is_short {
        return warn(
            NAME,
            format!(
                "{url} ({n_clients}), the token has less than {MIN_REMOTE_TOKEN_BYTES} characters"
            ),
            "`quack remote token --rotate` makes another one; pair your phone again afterwards",
        );
    }
    let is_local = ["127.", "localhost", "::1"].iter().any(|local| status.host.starts_with(local));
    if !status.tls_enabled && !is_local {
        return warn(
            NAME,
            format!("{url} ({n_clients}), not encrypted"),
            "`quack remote enable --host 127.0.0.1` behind a proxy with TLS, or --tls-cert and --tls-key",
        );
    }
    ok(NAME, format!("{url} ({n_clients})"))
}

fn sessions(workers: &[WorkerInfo], gone: Option<Vec<(SessionInfo, Lost)>>) -> Check {
    let gone = gone.unwrap_or_default();
    let is_gone = |worker: &WorkerInfo| gone.iter().any(|(one, _)| one.id == worker.session_id);
    let running = workers.iter().filter(|worker| worker.monitor_pid.is_some()).count();
    let failed: Vec<&WorkerInfo> =
        workers.iter().filter(|w| w.state == ProcessState::Failed && !is_gone(w)).collect();

    match failed.first() {
        None if !gone.is_empty() => {
            let path = gone.first().map_or("", |(session, _)| session.workspace_path.as_str());
            let is_refused = gone.iter().any(|(_, why)| *why == Lost::Refused);
            let what = match (gone.len(), is_refused) {
                (1, false) => format!("the directory of 1 session does not exist: {path}"),
                (1, true) => format!("the directory of 1 session is refused to sessions: {path}"),
                (n, _) => {
                    let refused = if is_refused { " or are refused to sessions" } else { "" };
                    format!("the directories of {n} sessions do not exist{refused}, such as {path}")
                }
            };
            warn(
                "sessions",
                format!("{running} running; {what}"),
                "`quack sessions prune` removes such sessions; -n lists them first",
            )
        }
        None => ok("sessions", format!("{running} running")),
        Some(first) => {
            let why = first.last_death.as_deref().unwrap_or("unknown cause");
            fail(
                "sessions",
                format!("{running} running, {} failed: {} ({why})", failed.len(), first.label),
                "`quack logs` shows details; `quack DIR` tries again",
            )
        }
    }
}
