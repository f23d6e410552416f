//! From a row to the argument lists of one session.

use crate::bootstrap::BOOTSTRAP;
use crate::engine::{COMMAND, CREATED, OPTIONS, PROGRAM, SESSION, TARGET, USER, VALUE};
use crate::quote::quote;
use crate::{Engine, EngineError, Program, TargetRule};
use quackd_protocol::far::{FarError, check_target};

/// Argument lists for one session. `{digest}` and `{size}` in them stand for those of the program; the link process
/// replaces them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineArgv {
    /// As [`quackd_protocol::far::FarStart::start`].
    pub start: Vec<String>,
    /// As [`quackd_protocol::far::FarStart::resume`].
    pub resume: Vec<String>,
    /// As [`quackd_protocol::far::FarStart::stop`].
    pub stop: Vec<String>,
    /// As [`quackd_protocol::far::FarStart::poll`].
    pub poll: Vec<String>,
    /// Argument list that creates what the session needs. Empty if nothing is created.
    pub create: Vec<String>,
    /// Argument list that deletes it. Empty if nothing is to delete, or if it needs `{created}`, which is unknown.
    pub destroy: Vec<String>,
    /// File of the program that the far side may ask for.
    pub program: Option<String>,
}

/// Values of the placeholders for one session.
#[derive(Debug, Clone, Copy)]
pub struct Filling<'a> {
    /// Target of the user. Empty if they name none.
    pub target: &'a str,
    /// Id of the session.
    pub session: &'a str,
    /// Text that `create` printed. Empty if it is unknown.
    pub created: &'a str,
    /// File of quackd's program on this machine.
    pub program: &'a str,
}

/// Longest output of `create` that is read, in bytes.
pub const MAX_CREATED_OUTPUT: usize = 16 * 1024;

/// Returns `{created}`: the last line of what `create` printed that is not empty. Empty if it printed nothing.
///
/// # Errors
/// The line is no target: it has white space or control characters, begins with `-`, or is too long.
pub fn created(output: &str) -> Result<String, FarError> {
    let line = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    check_target(line).map(|()| line.to_owned())
}

impl Engine {
    /// Returns the argument lists for a session. `start`, `resume` and `poll` are empty if they need `{created}`, which is
    /// unknown.
    ///
    /// # Errors
    /// `Target` if the target is missing, malformed, or has an unknown option.
    pub fn argv(&self, filling: Filling<'_>) -> Result<EngineArgv, EngineError> {
        let Filling { target, session, created, program } = filling;
        self.check_presence(target)?;
        check_target(target).map_err(|error| EngineError::Target(error.to_string()))?;
        let options =
            if self.options.is_empty() { Vec::new() } else { self.option_arguments(target)? };

        let uid = rustix::process::getuid().to_string();
        let values = [
            (TARGET, target),
            (SESSION, session),
            (CREATED, created),
            (USER, uid.as_str()),
            (PROGRAM, program),
        ];
        let is_unknown = |word: &String| created.is_empty() && word.contains(CREATED);
        let fill = |list: &[String], last_words: &[&str]| {
            if list.iter().any(is_unknown) {
                return Vec::new();
            }
            let mut arguments = Vec::with_capacity(list.len());
            for word in list {
                match word.as_str() {
                    COMMAND => arguments.extend(self.far_command(last_words)),
                    OPTIONS => arguments.extend_from_slice(&options),
                    TARGET if target.is_empty() => (),
                    word => arguments.push(filled(word, &values)),
                }
            }
            arguments
        };
        Ok(EngineArgv {
            start: fill(&self.start, &[]),
            resume: fill(&self.resume, &["--resume", session]),
            stop: fill(&self.stop, &[]),
            poll: fill(&self.poll, &[]),
            create: fill(&self.create, &[]),
            destroy: fill(&self.destroy, &[]),
            program: (self.program == Program::Send).then(|| program.to_owned()),
        })
    }

    fn check_presence(&self, target: &str) -> Result<(), EngineError> {
        let name = &self.name;
        match (self.target, target.is_empty()) {
            (TargetRule::Required, true) => {
                Err(EngineError::Target(format!("{name} needs a target: --on {name}:TARGET")))
            }
            (TargetRule::None, false) => {
                Err(EngineError::Target(format!("{name} has no target: --on {name}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the arguments of a target such as `partition=main,cpus=2`.
    fn option_arguments(&self, target: &str) -> Result<Vec<String>, EngineError> {
        let mut arguments = Vec::new();
        let mut seen = Vec::new();
        for option in target.split(',').filter(|_| !target.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let known = self.options.iter().find(|(known, _)| known == name);
            let (_, argument) = known.ok_or_else(|| {
                let known: Vec<_> = self.options.iter().map(|(name, _)| name.as_str()).collect();
                let known = known.join(", ");
                EngineError::Target(format!("{} has no option `{name}`; it has {known}", self.name))
            })?;
            if value.is_empty() || seen.contains(&name) {
                return Err(EngineError::Target(format!("give `{name}` once, as {name}=VALUE")));
            }

            seen.push(name);
            arguments.push(filled(argument, &[(VALUE, value)]));
        }
        Ok(arguments)
    }

    /// Returns the arguments that start the far worker.
    fn far_command(&self, last_words: &[&str]) -> Vec<String> {
        let mut words = match &self.program {
            // An absolute path, since some engines pass no `PATH`.
            Program::Send => vec!["/bin/sh", "-c", BOOTSTRAP, "quackd", "{digest}", "{size}"],
            Program::At(path) => vec![path.as_str()],
        };
        words.extend(["worker", "--stdio"]);
        words.extend_from_slice(last_words);

        if self.joins_words {
            // `exec` leaves no shell between the client and the worker.
            let quoted: Vec<_> = words.into_iter().map(quote).collect();
            return vec![format!("exec {}", quoted.join(" "))];
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

/// Replaces placeholders. A value is not searched for further placeholders.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, from)) = rest.find('{').and_then(|at| rest.split_at_checked(at)) {
        text.push_str(before);
        let found = values
            .iter()
            .find_map(|(name, value)| from.strip_prefix(name).map(|after| (*value, after)));
        let (value, after) =
            found.unwrap_or_else(|| from.split_at_checked(1).unwrap_or((from, "")));
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    fn argv(engine: &str, target: &str) -> Result<EngineArgv, EngineError> {
        let rows = built_in();
        let row = rows.iter().find(|row| row.name == engine).unwrap();
        row.argv(Filling { target, session: "s1", created: "", program: "/opt/quack" })
    }

    fn refusal(engine: &str, target: &str) -> String {
        argv(engine, target).unwrap_err().to_string()
    }

    #[test]
    fn ssh_gets_one_line_for_the_far_shell() {
        let made = argv("ssh", "me@build1").unwrap();
        let (line, client) = made.start.split_last().unwrap();
        assert_eq!(client[client.len() - 2..], ["--", "me@build1"]);
        assert!(line.starts_with("exec '/bin/sh' '-c' '") && !line.contains('\n'), "{line}");
        assert!(line.ends_with(" 'quackd' '{digest}' '{size}' 'worker' '--stdio'"), "{line}");
        assert!(made.resume.last().unwrap().ends_with(" 'worker' '--stdio' '--resume' 's1'"));
        assert_eq!(made.program.as_deref(), Some("/opt/quack"));
    }

    #[test]
    fn slurm_gets_the_options_of_the_target() {
        let made = argv("slurm", "partition=main,cpus=2,time=1:00:00").unwrap();
        let options = ["--partition=main", "--cpus-per-task=2", "--time=1:00:00", "/bin/sh", "-c"];
        assert!(made.start.windows(5).any(|words| words == options), "{:?}", made.start);
        assert!(made.start.contains(&"--job-name=quackd-s1".to_owned()));
        assert_eq!(made.stop.last().unwrap(), "--name=quackd-s1");
        let uid = format!("--user={}", rustix::process::getuid());
        assert!(made.stop.contains(&uid), "{:?}", made.stop);
        assert!(argv("slurm", "").is_ok() && made.resume.is_empty());

        let unknown =
            "slurm has no option `gpu`; it has partition, cpus, mem, time, account, qos, gpus";
        assert_eq!(refusal("slurm", "gpu=1"), unknown);
        for target in ["cpus", "cpus=", "cpus=1,cpus=2"] {
            assert_eq!(refusal("slurm", target), "give `cpus` once, as cpus=VALUE");
        }
    }

    #[test]
    fn a_mounted_program_is_not_sent() {
        let made = argv("podman", "debian:12").unwrap();
        let words = ["debian:12", "/run/quackd/quack", "worker", "--stdio"];
        assert!(made.start.ends_with(&words.map(str::to_owned)), "{:?}", made.start);
        assert!(made.start.contains(&"/opt/quack:/run/quackd/quack:ro".to_owned()));
        assert_eq!(made.program, None);
    }

    #[test]
    fn targets_are_checked() {
        assert_eq!(refusal("ssh", ""), "ssh needs a target: --on ssh:TARGET");
        for target in ["-oProxyCommand=x", "a b", "a\n"] {
            assert!(argv("ssh", target).is_err(), "{target:?}");
        }
        let none = Engine { target: TargetRule::None, ..built_in().remove(0) };
        assert_eq!(
            none.argv(Filling { target: "x", session: "s", created: "", program: "p" })
                .unwrap_err()
                .to_string(),
            "ssh has no target: --on ssh"
        );
    }

    #[test]
    fn the_created_name_is_the_last_line_and_lists_that_need_it_are_empty_without_it() {
        assert_eq!(created("pulling\npod-7\n\n"), Ok("pod-7".to_owned()));
        assert_eq!(created(""), Ok(String::new()));
        for bad in ["-x", "a b", "a\u{1b}[2J", &"x".repeat(300)] {
            assert!(created(bad).is_err(), "{bad:?}");
        }
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let row = Engine {
            create: words(&["make", "quackd-{session}"]),
            start: words(&["enter", "pod/{created}", "{command}"]),
            destroy: words(&["unmake", "quackd-{session}"]),
            stop: words(&["kill", "{created}"]),
            ..built_in().remove(3)
        };
        assert_eq!(row.check(), Ok(()));
        let filling = Filling { target: "x", session: "s1", created: "pod-7", program: "/q" };
        let made = row.argv(filling).unwrap();
        assert_eq!((made.start[1].as_str(), made.stop[1].as_str()), ("pod/pod-7", "pod-7"));
        let unknown = row.argv(Filling { created: "", ..filling }).unwrap();
        assert!(unknown.start.is_empty() && unknown.stop.is_empty());
        assert_eq!(unknown.create, ["make", "quackd-s1"]);
        assert_eq!(unknown.destroy, ["unmake", "quackd-s1"]);
    }

    #[test]
    fn placeholders_are_replaced_once() {
        let values = [("{target}", "{session}"), ("{session}", "s")];
        let filled = filled("a{target}{session}{x}{{session}{ä{", &values);
        assert_eq!(filled, "a{session}s{x}{s{ä{");
    }
}
