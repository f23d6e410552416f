//! The rows that quackd has.

use crate::{Engine, Program, Promise, TargetRule};

/// Returns the rows that quackd has.
#[must_use]
pub fn built_in() -> Vec<Engine> {
    vec![ssh(), slurm(), podman(), kubectl()]
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn ssh() -> Engine {
    // Nothing is forwarded, and keep-alives end the client within 15 s after the network is lost. `RemoteCommand=none`
    // overrides a setting of the user for the host, with which ssh refuses a command.
    let start = words(&[
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveInterval=5",
        "-o",
        "ServerAliveCountMax=2",
        // The end of a session must not end a connection that others share. An existing one is used.
        "-o",
        "ControlMaster=no",
        "-o",
        "ClearAllForwardings=yes",
        "-o",
        "ForwardAgent=no",
        "-o",
        "ForwardX11=no",
        "-o",
        "PermitLocalCommand=no",
        "-o",
        "RemoteCommand=none",
        "--",
        "{target}",
        "{command}",
    ]);
    Engine {
        name: "ssh".to_owned(),
        like: None,
        about: "a host of your ssh, such as ssh:me@build1".to_owned(),
        resume: start.clone(),
        start,
        stop: Vec::new(),
        poll: Vec::new(),
        create: Vec::new(),
        destroy: Vec::new(),
        probe: words(&["ssh", "-V"]),
        joins_words: true,
        program: Program::Send,
        keeps_files: true,
        target: TargetRule::Required,
        options: Vec::new(),
        promises: vec![Promise::Survives],
    }
}

fn slurm() -> Engine {
    let option = |name: &str, argument: &str| (name.to_owned(), argument.to_owned());
    Engine {
        name: "slurm".to_owned(),
        like: None,
        about: "a job of Slurm, such as slurm or slurm:partition=main,cpus=2,mem=4G,time=60"
            .to_owned(),
        // `srun` ends the job when it ends, also by a kill. The user's variables may be secrets, and stay here.
        start: words(&[
            "srun",
            "--unbuffered",
            "--quiet",
            "--export=NONE",
            "--ntasks=1",
            "--nodes=1",
            "--job-name=quackd-{session}",
            "{options}",
            "{command}",
        ]),
        resume: Vec::new(),
        // Without `--user` it would act on jobs of others for an operator. Slurm 22.05 has no `--me` here.
        stop: words(&["scancel", "--quiet", "--user={uid}", "--name=quackd-{session}"]),
        poll: words(&["squeue", "-h", "--me", "--name=quackd-{session}", "-o", "job %i %T (%r)"]),
        create: Vec::new(),
        destroy: Vec::new(),
        probe: words(&["sinfo", "-h"]),
        joins_words: false,
        program: Program::Send,
        keeps_files: true,
        target: TargetRule::Optional,
        options: vec![
            option("partition", "--partition={value}"),
            option("cpus", "--cpus-per-task={value}"),
            option("mem", "--mem={value}"),
            option("time", "--time={value}"),
            option("account", "--account={value}"),
            option("qos", "--qos={value}"),
            option("gpus", "--gpus={value}"),
        ],
        promises: vec![Promise::Places, Promise::Limits],
    }
}

/// The worker confines itself. For that it creates namespaces and mounts its own `/proc`, which podman's filter and its
/// covers over parts of `/proc` prevent. Its commands get the worker's filter.
fn podman() -> Engine {
    Engine {
        name: "podman".to_owned(),
        like: None,
        about: "a new container of an image, such as podman:debian:12".to_owned(),
        start: words(&[
            "podman",
            "run",
            "--rm",
            "-i",
            "--security-opt=seccomp=unconfined",
            "--security-opt=unmask=ALL",
            "--name=quackd-{session}",
            "-v",
            "{program}:/run/quackd/quack:ro",
            "--",
            "{target}",
            "{command}",
        ]),
        resume: Vec::new(),
        stop: words(&["podman", "rm", "-f", "--ignore", "-t", "1", "quackd-{session}"]),
        poll: Vec::new(),
        create: Vec::new(),
        destroy: Vec::new(),
        probe: words(&["podman", "info"]),
        joins_words: false,
        program: Program::At("/run/quackd/quack".to_owned()),
        keeps_files: false,
        target: TargetRule::Required,
        options: Vec::new(),
        promises: vec![Promise::OwnFiles],
    }
}

fn kubectl() -> Engine {
    let start = words(&["kubectl", "exec", "-i", "{target}", "--", "{command}"]);
    Engine {
        name: "kubectl".to_owned(),
        like: None,
        about: "a running pod, such as kubectl:dev-0 or kubectl:deploy/dev".to_owned(),
        resume: start.clone(),
        start,
        stop: Vec::new(),
        poll: Vec::new(),
        create: Vec::new(),
        destroy: Vec::new(),
        probe: words(&["kubectl", "version"]),
        joins_words: false,
        program: Program::Send,
        keeps_files: true,
        target: TargetRule::Required,
        options: Vec::new(),
        promises: vec![Promise::Limits, Promise::OwnFiles, Promise::Survives],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineError;

    #[test]
    fn every_row_passes_the_check_of_rows() {
        for row in built_in() {
            assert_eq!(row.check(), Ok(()), "{}", row.name);
        }
    }

    #[test]
    fn malformed_rows_are_refused() {
        let broken = |change: fn(&mut Engine)| {
            let mut row = slurm();
            change(&mut row);
            matches!(row.check(), Err(EngineError::Row(text)) if text.starts_with("must "))
        };
        assert!(broken(|row| row.name = "A".to_owned()));
        assert!(broken(|row| row.start = Vec::new()));
        assert!(broken(|row| row.start = words(&["x"])));
        assert!(broken(|row| row.start = words(&["{command}"])));
        assert!(broken(|row| row.resume = words(&["x", "{command}", "{command}"])));
        assert!(broken(|row| row.stop = words(&["", "x"])));
        assert!(broken(|row| row.poll = vec!["x".to_owned(); 65]));
        assert!(broken(|row| row.create = words(&["x"])));
        assert!(broken(|row| row.destroy = words(&["x"])));
        assert!(broken(|row| row.stop = words(&["x", "{created}"])));
        assert!(broken(|row| {
            (row.create, row.destroy) = (words(&["x", "{created}"]), words(&["y"]));
        }));
        assert!(broken(|row| row.program = Program::At("quack".to_owned())));
        assert!(broken(|row| row.target = TargetRule::None));
        assert!(broken(|row| row.options.push(("a b".to_owned(), "{value}".to_owned()))));
        assert!(broken(|row| row.options.push(("a".to_owned(), "b".to_owned()))));
    }
}
