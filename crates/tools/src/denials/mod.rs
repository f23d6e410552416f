//! Detects in a command's output which operations the kernel denied.
//!
//! Decides which part of the output is searched, and which matches count. The result is a guess from well-known
//! texts: every match is marked as likely. Attempts to use the network are certain if the worker recorded them
//! ([`crate::attempts`]). Called by `bash` and by jobs, for commands in a confined worker. [`phrases`] contains
//! the texts, [`names`] parses paths and hosts.

mod hidden;
mod names;
mod phrases;
mod unseen;

use crate::Confinement;
use crate::attempts::{Refused, Span};
use crate::command_line::CommandLine;
use crate::lost_files::{self, LostFiles};
use crate::os_denial::{AccessMode, is_mounted_read_only_blocking, is_ordinary_blocking};
use crate::sandbox_tools::normalise;
use crate::temporary_files::{self, TemporaryFiles};
use crate::unsigned_commits::{self, UnsignedCommits};
use crate::upstreams::{self, Upstreams};
use crate::watched_names::{ReportedChanges, RunningCommand, WatchedFiles};
use hidden::CommandDirs;
pub(crate) use hidden::hidden_line_blocking;
use memchr::memmem;
use phrases::{DenialCause, Hit};
use quackd_process::{Captured, Exit, Finished};
use quackd_protocol::denial::{Denial, DenialKind, MAX_NAMED_HOSTS, MAX_TARGET_BYTES, RefusedHost};
use quackd_protocol::policy::Profile;
use quackd_protocol::worker::MAX_LISTED;
use quackd_sandbox::protected_name;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Number of bytes that are searched at each end of each stream.
const MAX_END_BYTES: usize = 32 * 1024;

/// Timeout for checking the permissions of files in the output. They may be on a dead file system.
const PATIENCE: Duration = Duration::from_millis(500);

/// Exit code of a shell that found a program but could not run it.
const NOT_EXECUTABLE: i32 = 126;

/// Detects denials for the commands of one session.
#[derive(Debug, Clone)]
pub(crate) struct DenialDetector {
    confinement: Arc<Confinement>,
    workspace: PathBuf,
    watched: WatchedFiles,
    /// Counts the command as running until it is dropped.
    #[expect(dead_code, reason = "only its drop matters")]
    running: Option<Arc<RunningCommand>>,
    lost: LostFiles,
    temporary: TemporaryFiles,
    /// Text of the command.
    command: String,
    dirs: CommandDirs,
    has_agent: bool,
    unsigned: Option<UnsignedCommits>,
    upstreams: Option<Upstreams>,
    /// Span of the command.
    span: Option<Arc<Span>>,
}

/// Operations that the confinement probably denied to a command.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// At most [`MAX_LISTED`].
    pub(crate) denials: Vec<Denial>,
    /// Explanation for the answer text.
    pub(crate) line: Option<String>,
    /// Absolute path outside of the workspace whose directory does not exist in the worker's view. The user may have it.
    pub(crate) missing: Option<String>,
}

impl Found {
    /// Adds a line to the explanation, once.
    fn with_line(mut self, line: String) -> Self {
        self.line = Some(match self.line {
            Some(known) if known.lines().any(|it| it == line) => known,
            Some(known) => format!("{known}\n{line}"),
            None => line,
        });
        self
    }
}

impl DenialDetector {
    pub(crate) fn new(confinement: &Arc<Confinement>, workspace: &Path) -> Self {
        Self {
            confinement: Arc::clone(confinement),
            workspace: workspace.to_path_buf(),
            watched: WatchedFiles::default(),
            running: None,
            lost: LostFiles::default(),
            temporary: TemporaryFiles::default(),
            command: String::new(),
            dirs: CommandDirs::default(),
            has_agent: false,
            unsigned: None,
            upstreams: None,
            span: None,
        }
    }

    /// Also stores the upstreams that git could not write.
    pub(crate) fn keeping(self, upstreams: &Upstreams) -> Self {
        Self { upstreams: Some(upstreams.clone()), ..self }
    }

    /// Also reports changes to the watched files. Call it before the command starts.
    pub(crate) fn watching(self, watched: &WatchedFiles) -> Self {
        let running = Some(Arc::new(watched.running()));
        Self { watched: watched.clone(), running, ..self }
    }

    /// Also reports files that will be lost.
    pub(crate) fn losing(self, lost: &LostFiles) -> Self {
        Self { lost: lost.clone(), ..self }
    }

    /// Also reports results that this command leaves in private directories for temporary files, and hidden paths that its
    /// text names.
    pub(crate) fn leaving(self, temporary: &TemporaryFiles, command: &CommandLine) -> Self {
        let dirs = CommandDirs::of(command);
        let has_agent = command.env.iter().any(|(name, _)| name == unseen::AGENT_VARIABLE);
        let (temporary, command) = (temporary.clone(), command.line.clone());
        Self { temporary, command, dirs, has_agent, ..self }
    }

    /// Also reports commits without a signature, if there is a record of commits.
    pub(crate) fn signing(self, unsigned: Option<UnsignedCommits>) -> Self {
        Self { unsigned, ..self }
    }

    /// Also reports the attempts to use the network during `span`.
    pub(crate) fn during(self, span: Span) -> Self {
        Self { span: Some(Arc::new(span)), ..self }
    }

    /// Reports changes to files that later programs run or obey, files that will be lost, and commits without a signature.
    /// Called when a command exits.
    pub(crate) async fn look_at_watched(&self, finished: Option<&Finished>) -> ReportedChanges {
        // At the same time: each waits for a blocking thread.
        let unsigned = async { self.unsigned.clone()?.any().await };
        let watched = self.watched.look(&self.confinement);
        let output = finished.map(|it| [ends(&it.stderr), ends(&it.stdout)].join(&b'\n'));
        let left = self.temporary.left_by(&self.command, output.unwrap_or_default());

        let (changes, lost, left, unsigned) =
            tokio::join!(watched, self.lost.changed(), left, unsigned);
        let changes = lost_files::add_to(changes, &lost, &self.confinement);
        let changes = temporary_files::add_to(changes, &left, &self.confinement.session);
        unsigned_commits::add_to(changes, unsigned)
    }

    /// Finds the operations that were denied to a command. Empty if the command is not confined. After exit
    /// code 0, only two kinds count: attempts to use the network or a credential, recorded by the worker, and refused writes
    /// to git settings, which git itself ignores.
    pub(crate) async fn find(&self, finished: &Finished) -> Found {
        if !self.confinement.is_enforced() {
            return Found::default();
        }
        let refused = self.span.as_ref().and_then(|span| span.refused());
        let needs_hosts = refused.as_ref().is_some_and(|refused| refused.hosts.is_empty());
        let detected = self.find_in_output(finished, refused.is_some(), needs_hosts).await;
        let (detected, from_output) = detected.unwrap_or_default();

        let detected = match refused {
            Some(refused) => self.add_network(detected, from_output, refused),
            None => detected,
        };

        let hidden = self.hidden().await;
        let credentials = self.span.iter().flat_map(|span| span.credentials());
        credentials.chain(hidden).fold(detected, Found::with_line)
    }

    /// Returns the line about a hidden path that the command's text names. `None` also on a timeout.
    async fn hidden(&self) -> Option<String> {
        if self.confinement.policy.hidden.is_empty() {
            return None;
        }
        let finder = self.clone();
        let look = tokio::task::spawn_blocking(move || {
            let hidden = &finder.confinement.policy.hidden;
            let path = hidden::named(&finder.command, &finder.dirs, hidden)?;
            hidden::line_blocking(path, &finder.workspace, &finder.confinement)
        });
        tokio::time::timeout(PATIENCE, look).await.ok()?.ok()?
    }

    /// Returns the line about the first hidden path that a failure names.
    fn hidden_in_output_blocking(&self, text: &str) -> Option<String> {
        let hidden = &self.confinement.policy.hidden;
        if hidden.is_empty() {
            return None;
        }
        let hits = phrases::hits(text);
        let mut names = hits.iter().flat_map(names::candidates);
        let path = names
            .find_map(|name| hidden::beneath(&normalise(&self.dirs.cwd.join(name)), hidden))?;
        hidden::line_blocking(path, &self.workspace, &self.confinement)
    }

    /// Explains the attempts to use the network or a credential so far, of a command that still runs.
    pub(crate) fn network_so_far(&self) -> Option<String> {
        let span = self.span.as_ref().filter(|_| self.confinement.is_enforced())?;
        let network = span.refused().map(|Refused { hosts, is_shared }| {
            self.confinement.explain_network(&hosts, is_shared)
        });
        let lines: Vec<_> = network.into_iter().chain(span.credentials()).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Adds the recorded attempts. If an attempt has no host, the command's output may name it.
    fn add_network(
        &self,
        Found { mut denials, line, missing }: Found,
        from_output: Vec<Denial>,
        Refused { mut hosts, is_shared }: Refused,
    ) -> Found {
        if hosts.is_empty() {
            let named = from_output.into_iter().filter_map(|denial| denial.target);
            hosts = named.map(|host| RefusedHost { host, ..RefusedHost::default() }).collect();
        }

        let network = self.confinement.explain_network(&hosts, is_shared);

        let new = |host: Option<&str>| Denial::new(DenialKind::Network, host, is_shared);
        if hosts.is_empty() {
            denials.push(new(None));
        }
        let denied = hosts.iter().filter(|host| host.approved.is_none());
        let named = denied.take(MAX_NAMED_HOSTS).map(ToString::to_string);
        denials.extend(named.map(|host| new(Some(&host))));
        denials.truncate(MAX_LISTED);

        let line = line.into_iter().chain([network]).collect::<Vec<_>>().join("\n");
        Found { denials, line: Some(line), missing }
    }

    /// Finds the likely denials in a command's output. If attempts were recorded, network denials are returned
    /// separately. `None` on a timeout.
    async fn find_in_output(
        &self,
        finished: &Finished,
        has_attempts: bool,
        needs_hosts: bool,
    ) -> Option<(Found, Vec<Denial>)> {
        let (finder, exit) = (self.clone(), finished.exit);
        // stderr first, because programs report errors there. stdout may contain text that they read.
        let text = [ends(&finished.stderr), ends(&finished.stdout)].join(&b'\n');

        let has_failed = exit != Exit::Code(0);
        if !has_failed && !needs_hosts && memmem::find(&text, phrases::SETTINGS).is_none() {
            return None;
        }

        let finding = tokio::task::spawn_blocking(move || {
            let text = String::from_utf8_lossy(&text);
            let all = finder.find_blocking(&text, exit, needs_hosts);
            let is_recorded = |denial: &Denial| has_attempts && denial.kind == DenialKind::Network;
            // Recorded attempts replace the guesses of a missing network. Only their hosts are used.
            let (network, denials): (Vec<_>, Vec<_>) = all.into_iter().partition(is_recorded);

            let line = if has_failed { finder.hidden_in_output_blocking(&text) } else { None };
            let alternate = phrases::unseen_alternate(&text)
                .filter(|directory| !Path::new(directory).starts_with(&finder.workspace));
            let line = line.or_else(|| alternate.map(unseen::alternate_line));
            let line = line.or_else(|| finder.explain_blocking(&denials, &text));
            let line = line
                .or_else(|| finder.unseen_blocking(&text).filter(|_| has_failed && !has_attempts));

            let missing = if has_failed { finder.missing_blocking(&text) } else { None };
            (Found { denials, line, missing }, network)
        });
        tokio::time::timeout(PATIENCE, finding).await.ok()?.ok()
    }

    /// Returns the lines for an answer text: the first denial, and the stored upstreams.
    fn explain_blocking(&self, denials: &[Denial], text: &str) -> Option<String> {
        let first = self.at_workspace(denials.first()?);
        let line = self.confinement.explain(&first);
        let settings = denials.iter().find(|denial| denial.is_about_git_settings());
        let kept = settings.and_then(|denial| denial.target.as_ref()).and_then(|settings| {
            let settings = self.workspace.join(settings);
            Some(self.upstreams.as_ref()?.keep_blocking(text, &settings))
        });
        Some(match kept.as_deref().and_then(upstreams::line) {
            Some(kept) => format!("{line}\n{kept}"),
            None => line,
        })
    }

    fn unseen_blocking(&self, text: &str) -> Option<String> {
        // The line about a refused credential names the reason.
        let is_told = self.span.as_ref().is_some_and(|span| !span.credentials().is_empty());
        unseen::line_blocking(text, &self.workspace, self.has_agent, &self.confinement)
            .filter(|_| !is_told)
    }

    /// Returns a denial with an absolute path, so that the command in its text works in every directory.
    fn at_workspace(&self, denial: &Denial) -> Denial {
        let target = denial.target.as_ref().filter(|target| target.starts_with("../"));
        let absolute = target.map(|target| normalise(&self.workspace.join(target)));
        match absolute.as_deref().and_then(Path::to_str) {
            Some(path) => Denial::new(denial.kind, Some(path), denial.likely),
            None => denial.clone(),
        }
    }

    fn find_blocking(&self, text: &str, exit: Exit, needs_hosts: bool) -> Vec<Denial> {
        let mut denials: Vec<Denial> = Vec::new();
        for hit in phrases::hits(text) {
            let counts_anyway = || {
                needs_hosts && hit.cause == DenialCause::Network
                    || self.is_refused_setting_blocking(&hit)
            };
            if exit == Exit::Code(0) && !counts_anyway() {
                continue;
            }
            let Some(denial) = self.judge_blocking(&hit, exit) else { continue };
            // A denial without a name adds nothing to the same denial with a name, in either order.
            let is_known = |known: &Denial| {
                known.kind == denial.kind
                    && (denial.target.is_none() || known.target == denial.target)
            };
            if denials.iter().any(is_known) {
                continue;
            }

            match denials
                .iter_mut()
                .find(|known| known.kind == denial.kind && known.target.is_none())
            {
                Some(known) => *known = denial,
                None => denials.push(denial),
            }
            if MAX_LISTED <= denials.len() {
                break;
            }
        }
        denials
    }

    /// The first path outside of the workspace whose directory is missing, and that no program only wanted to read.
    fn missing_blocking(&self, text: &str) -> Option<String> {
        let hits = phrases::hits(text).into_iter();
        let missing = hits.filter(|hit| hit.cause == DenialCause::Missing && !hit.is_reading());
        missing.filter_map(|hit| self.name(&hit)).find(|name| {
            let path = Path::new(name);
            name.len() <= MAX_TARGET_BYTES
                && path.is_absolute()
                && !path.starts_with(&self.workspace)
                && path.parent().is_some_and(|above| !above.exists())
        })
    }

    /// Whether git could not write a settings file that is mounted read-only.
    fn is_refused_setting_blocking(&self, hit: &Hit<'_>) -> bool {
        let file = names::settings_file(hit).map(|file| self.workspace.join(file));
        file.is_some_and(|file| is_mounted_read_only_blocking(&file))
    }

    fn judge_blocking(&self, hit: &Hit<'_>, exit: Exit) -> Option<Denial> {
        match hit.cause {
            DenialCause::Network => self.network(hit),
            DenialCause::NoRight if hit.is_about_login() => None,
            DenialCause::NoRight | DenialCause::NotPermitted if hit.is_about_sockets() => {
                self.network(hit)
            }
            DenialCause::NoRight => {
                let name = self.name(hit);
                let path = name.as_deref().map(Path::new);
                let mode = if hit.is_reading() { AccessMode::Read } else { AccessMode::Write };
                if path.is_some_and(|path| self.is_ordinary_blocking(path, mode, exit)) {
                    return None;
                }
                let kind = match mode {
                    AccessMode::Read => DenialKind::Read,
                    AccessMode::Write => self.writing_blocking(path),
                };
                Some(Denial::new(kind, name.as_deref(), true))
            }
            DenialCause::NotPermitted if hit.is_about_owners() => None,
            DenialCause::NotPermitted => {
                let name = self.name(hit).filter(|_| hit.is_writing());
                let Some(name) = name else { return Some(denial(DenialKind::SystemCall, None)) };
                let path = Path::new(&name);
                if is_ordinary_blocking(&self.workspace.join(path), AccessMode::Write) {
                    return None;
                }
                Some(denial(self.writing_blocking(Some(path)), Some(&name)))
            }
            DenialCause::ReadOnly => {
                let name = self.name(hit);
                if name.as_deref().is_some_and(|it| self.is_mounted_outside_blocking(it)) {
                    return None;
                }
                Some(denial(self.writing_blocking(name.as_deref().map(Path::new)), name.as_deref()))
            }
            DenialCause::Busy if self.is_refused_setting_blocking(hit) => {
                Some(denial(DenialKind::Protected, names::settings_file(hit)))
            }
            // Only pinned names are mounts, and only protected names are pinned.
            DenialCause::Busy => {
                let name = self.name(hit).filter(|name| self.is_protected(Path::new(name)))?;
                Some(denial(DenialKind::Protected, Some(&name)))
            }
            DenialCause::SystemCall => Some(denial(DenialKind::SystemCall, None)),
            DenialCause::Missing => None,
        }
    }

    fn network(&self, hit: &Hit<'_>) -> Option<Denial> {
        let host = names::host(hit.line);
        let is_near = host.is_some_and(names::is_loopback);
        let is_denied = !self.confinement.policy.network && !is_near;
        is_denied.then(|| denial(DenialKind::Network, host))
    }

    /// Returns the name in an error line. Prefers a protected name.
    fn name(&self, hit: &Hit<'_>) -> Option<String> {
        let names = names::candidates(hit);
        let protected = names.iter().find(|name| self.is_protected(Path::new(name)));
        protected.or_else(|| names.first()).cloned()
    }

    fn writing_blocking(&self, path: Option<&Path>) -> DenialKind {
        let is_pinned = path.is_some_and(|path| {
            let real = normalise(&self.workspace.join(path));
            // Only protected names in the workspace are read-only. Git's own settings are an example.
            (path.is_absolute() && real.starts_with(&self.workspace))
                || self.is_protected(path)
                || (real.starts_with(&self.workspace) && is_mounted_read_only_blocking(&real))
        });
        match self.confinement.policy.profile {
            Profile::WorkspaceWrite if is_pinned => DenialKind::Protected,
            _ => DenialKind::Write,
        }
    }

    /// Whether a name in the workspace is on a file system that the user has mounted read-only there.
    fn is_mounted_outside_blocking(&self, name: &str) -> bool {
        let path = Path::new(name);
        let real = normalise(&self.workspace.join(path));
        real.starts_with(&self.workspace)
            && !self.is_protected(path)
            && self.confinement.is_read_only_outside(&real)
            && is_mounted_read_only_blocking(&real)
    }

    /// Whether the name is protected. A relative name is interpreted in the workspace, where most commands run.
    fn is_protected(&self, path: &Path) -> bool {
        let beneath = path.strip_prefix(&self.workspace).ok();
        let beneath = beneath.or_else(|| path.is_relative().then_some(path));
        beneath.is_some_and(|path| protected_name(path).is_some())
    }

    /// Whether "Permission denied" would also occur without confinement.
    fn is_ordinary_blocking(&self, path: &Path, mode: AccessMode, exit: Exit) -> bool {
        let is_in_workspace = path.is_relative() || path.starts_with(&self.workspace);
        let may_write = self.confinement.policy.may_write();
        // The policy allows running every file in the workspace, so this file is not executable.
        let is_no_program = exit == Exit::Code(NOT_EXECUTABLE) && is_in_workspace;
        let is_ours = path.starts_with(&self.workspace) && may_write && !self.is_protected(path);
        is_no_program || is_ours || is_ordinary_blocking(&self.workspace.join(path), mode)
    }
}

fn denial(kind: DenialKind, target: Option<&str>) -> Denial {
    Denial::new(kind, target, true)
}

/// Returns both ends of a stream, with a line end in place of the missing middle.
fn ends(stream: &Captured) -> Vec<u8> {
    let gap: &[u8] = if stream.is_whole() { b"" } else { b"\n" };
    let kept = [&*stream.head, gap, &stream.tail].concat();
    match (kept.get(..MAX_END_BYTES), kept.len().checked_sub(2 * MAX_END_BYTES)) {
        (Some(head), Some(skipped)) => {
            let tail = kept.get(MAX_END_BYTES + skipped..).unwrap_or_default();
            [head, b"\n", tail].concat()
        }
        _ => kept,
    }
}

#[cfg(test)]
mod tests;
