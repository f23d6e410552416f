//! `quack grep` from a shell, with few and many matching lines, compared with ripgrep in the same order and GNU grep.

use super::Effort;
use super::compare::{Lane, Programs, in_turn, read_all};
use crate::daemon::Daemon;
use crate::report::Row;
use quackd_testkit::program;
use std::fs;
use std::path::Path;

/// Matching lines of the trees, with one such line in 8.
const MATCHES: [usize; 2] = [7_700, 116_000];

/// Matching lines per file.
const PER_FILE: usize = 58;

/// Limits of the ratios of `quack grep`.
const GOALS: &[(&str, Option<f64>)] = &[("rg --sort path", Some(2.0)), ("grep -rn", None)];

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let programs = Programs::find();
    let mut rows = Vec::new();
    for n in MATCHES {
        let n = if effort.quick { n / 20 } else { n };
        let root = daemon.repo(&format!("lines{n}"))?;
        plant(&root, n)?;
        let (daemon, root) = (&daemon, root.as_path());
        let mut lanes = vec![Lane::new("quack grep", move || {
            let mut quack = daemon.quack();
            quack.args(["grep", "matching_word"]).current_dir(root);
            read_all(quack)
        })];
        if let Some(rg) = &programs.rg {
            let sorted = Lane::new("rg --sort path", move || {
                let mut rg = program(&rg.path);
                rg.args(["--no-config", "-n", "--sort", "path", "matching_word"]);
                rg.current_dir(root);
                read_all(rg)
            });
            lanes.push(sorted.of(programs.rg.as_ref()));
        }
        let grep = Lane::new("grep -rn", move || {
            let mut grep = program("grep");
            grep.args(["-rn", "matching_word"]).current_dir(root);
            read_all(grep)
        });
        lanes.push(grep.of(programs.grep.as_ref()));
        let label = format!("{n} matching lines");
        rows.extend(in_turn(effort.rounds(15), &label, lanes, "quack grep", GOALS)?);
    }
    daemon.stop()?;
    Ok(rows)
}

fn plant(root: &Path, n_matches: usize) -> anyhow::Result<()> {
    for n in 0..n_matches.div_ceil(PER_FILE) {
        let directory = root.join(format!("src/part{}", n / 50));
        fs::create_dir_all(&directory)?;
        let mut text = String::new();
        for line in 0..PER_FILE * 8 {
            let word = if line % 8 == 3 { "matching_word" } else { "another_one" };
            text.push_str(&format!("    let value_{line} = {word}(self.index, {n});\n"));
        }
        fs::write(directory.join(format!("file{n}.rs")), text)?;
    }
    Ok(())
}
