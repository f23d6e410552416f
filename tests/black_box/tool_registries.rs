//! Presets whose hosts come from the user's own tools: the tools are asked outside of every workspace, and their answers
//! become rules. The tools are scripts in the home of the test.

use crate::harness::{Cli, Daemon, Process, Repo, is_alive, wait_for, write_file, write_program};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

/// An npm with this registry. Like the real one it creates its cache, and prefers the `.npmrc` of its working directory.
const NPM: &str = "cache=\"$HOME/.npm\"\n\
    for word in \"$@\"; do case \"$word\" in --cache=*) cache=\"${word#--cache=}\";; esac; done\n\
    mkdir -p \"$cache\"\n\
    [ -e .npmrc ] && echo '{\"registry\": \"https://evil.test.example/\"}' && exit\n\
    echo '{\"registry\": \"https://me:s3cret-word@npm.test.example/r/?token=s3cret-word\", \
    \"@duck:registry\": \"http://scope.test.example:4873/\"}'\n";

/// A world whose daemon finds programs in `tools` of the home, and in no other place but the system's.
fn world(config: &str) -> Daemon {
    let world = Daemon::absent();
    let config = format!("[environment]\nlogin_shell = false\n{config}");
    world.configure(config);
    std::fs::create_dir(world.home().join("tools")).unwrap();
    world
}

fn boot(world: &mut Daemon, before: &str) {
    let path = format!("PATH={before}{}:/usr/bin:/bin", world.home().join("tools").display());
    world.boot_in(&[&path]);
}

fn restart(world: &mut Daemon) {
    world.signal(Signal::SIGTERM);
    assert_eq!(world.wait(), Some(0));
    boot(world, "");
}

/// Puts a program into a directory.
fn tool(dir: &Path, name: &str, script: &str) {
    std::fs::create_dir_all(dir).unwrap();
    let path = dir.join(name);
    write_program(&path, format!("#!/bin/sh\n{script}"));
}

fn write(world: &Daemon, name: &str, text: &str) {
    write_file(world.home().join(name), text);
}

fn sandbox(world: &Daemon, repo: &Repo, args: &[&str]) -> Cli {
    let at = repo.path().to_string_lossy().into_owned();
    world.quack(&[&["sandbox"], args, &["-C", &at]].concat())
}

fn explained(world: &Daemon, repo: &Repo, host: &str) -> String {
    sandbox(world, repo, &["explain", host]).ok()
}

/// The row of a preset, after its tools were asked.
fn preset(world: &Daemon, name: &str) -> Value {
    world.quack(&["sandbox", "presets", name, "--json"]).json()["presets"][0].clone()
}

fn rules(preset: &Value) -> Vec<&str> {
    preset["hosts"].as_array().unwrap().iter().map(|rule| rule.as_str().unwrap()).collect()
}

#[test]
fn a_preset_has_the_hosts_of_the_users_tool_whatever_the_workspace_says() {
    let mut world = world("");
    tool(&world.home().join("tools"), "npm", NPM);
    boot(&mut world, "");
    let repo = world.repo("a");
    repo.write(".npmrc", "registry=https://evil.test.example/\n");
    let at = sandbox(&world, &repo, &["explain", "npm.test.example"]).ok();
    assert!(at.contains("the network is off"), "{at}");
    let shown = sandbox(&world, &repo, &["allow", "@npm"]);
    assert!(shown.ok().contains("@npm"), "{shown:?}");
    // The user's home gets no cache, and the state directory keeps none.
    assert!(!world.home().join(".npm").exists());
    let run = std::fs::read_dir(world.app().join("run")).unwrap().flatten();
    let names: Vec<_> = run.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with("npm")), "{names:?}");
    for (host, text) in [
        ("npm.test.example", "is allowed by npm.test.example (grant g1, @npm)"),
        ("scope.test.example:4873", "is allowed by scope.test.example:4873 (grant g1, @npm)"),
        ("scope.test.example", "no rule names it"),
        ("evil.test.example", "no rule names it"),
    ] {
        let explained = explained(&world, &repo, host);
        assert!(explained.contains(text), "{explained}");
    }
    let npm = preset(&world, "npm");
    assert_eq!(rules(&npm), ["scope.test.example:4873", "npm.test.example"]);
    assert_eq!(npm["found"][1]["source"], "npm config get registry");
    assert!(npm["derived"] == true && npm["foundAt"].is_string() && npm["warning"].is_string());
    let listed = world.quack(&["sandbox", "presets"]).ok();
    assert!(listed.contains("npm.test.example  npm config get registry"), "{listed}");
    assert!(listed.contains("warning: npm also publishes"), "{listed}");
    assert!(listed.contains("@openrouter  OpenRouter's models\n"), "{listed}");
    // Credentials of a URL are dropped in the process that asks.
    let state = std::fs::read_to_string(world.app().join("quackd-state.json")).unwrap();
    assert!(state.contains("npm.test.example"));
    for text in [state, world.log(), listed, format!("{npm} {shown:?}")] {
        assert!(!text.contains("s3cret-word"), "{text}");
    }
}

#[test]
fn a_program_in_a_workspace_is_never_asked() {
    let mut world = world("");
    let repo = world.repo("a");
    let marker = world.home().join("ran");
    let evil = format!(
        "echo ran >>{}; echo '{{\"registry\": \"https://evil.test.example/\"}}'\n",
        marker.display()
    );
    tool(&repo.path().join("bin"), "npm", &evil);
    tool(&world.home().join("tools"), "npm", NPM);
    std::os::unix::fs::symlink(repo.path().join("bin"), world.home().join("link")).unwrap();
    let before =
        format!("bin:{}:{}/link:", repo.path().join("bin").display(), world.home().display());
    boot(&mut world, &before);
    world.wire().attach(repo.path());
    assert_eq!(rules(&preset(&world, "npm")), ["scope.test.example:4873", "npm.test.example"]);
    // A link outside of the workspace leads into it.
    std::fs::remove_file(world.home().join("tools/npm")).unwrap();
    std::os::unix::fs::symlink(repo.path().join("bin/npm"), world.home().join("tools/npm"))
        .unwrap();
    let npm = preset(&world, "npm");
    let problem = npm["problems"][0].as_str().unwrap();
    assert!(problem.contains("which sessions may write"), "{problem}");
    assert_eq!(npm["hosts"].as_array().unwrap().len(), 2, "the earlier hosts stay");
    // A link in the place of the user's file also leads into it.
    std::fs::remove_file(world.home().join("tools/npm")).unwrap();
    tool(&world.home().join("tools"), "npm", NPM);
    repo.write("dotfiles/npmrc", "registry=https://evil.test.example/\n");
    std::os::unix::fs::symlink(repo.path().join("dotfiles/npmrc"), world.home().join(".npmrc"))
        .unwrap();
    let problem = preset(&world, "npm")["problems"][0].clone();
    assert!(problem.as_str().unwrap().contains(".npmrc leads into "), "{problem}");
    assert!(!marker.exists());
}

#[test]
fn a_tool_that_hangs_is_killed_with_all_that_it_started_and_the_error_is_clear() {
    let mut world = world("");
    tool(
        &world.home().join("tools"),
        "npm",
        "trap '' TERM; setsid sleep 1000 & echo $! >>~/pids; echo $$ >>~/pids; sleep 1000\n",
    );
    boot(&mut world, "");
    let repo = world.repo("a");
    let refused = sandbox(&world, &repo, &["allow", "@npm"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    let error = refused.stderr();
    assert!(error.contains("@npm has no hosts: `npm config list --json"), "{error}");
    assert!(error.contains("did not answer within 10 s; name the host"), "{error}");
    let pids = std::fs::read_to_string(world.home().join("pids")).unwrap();
    let left: Vec<_> = pids.lines().filter_map(|pid| Process::find(pid.parse().ok()?)).collect();
    assert!(!left.iter().any(is_alive), "{left:?}");
    let shown = sandbox(&world, &repo, &["show"]).ok();
    assert!(!shown.contains("@npm"), "nothing was granted: {shown}");
}

#[test]
fn found_hosts_are_kept_over_a_restart_and_when_a_tool_is_gone() {
    let mut world = world("");
    let tools = world.home().join("tools");
    tool(&tools, "npm", NPM);
    boot(&mut world, "");
    let repo = world.repo("a");
    sandbox(&world, &repo, &["allow", "@npm"]).ok();
    tool(&tools, "npm", "exit 3\n");
    restart(&mut world);
    let allowed = explained(&world, &repo, "npm.test.example");
    assert!(allowed.contains("is allowed by"), "{allowed}");
    let again = sandbox(&world, &repo, &["allow", "@npm", "--workspace"]);
    again.ok();
    let note = again.stderr();
    assert!(note.contains("failed (exit code 3); the hosts of "), "{note}");
    // A new answer replaces the earlier one, also for rules that exist.
    tool(&tools, "npm", "echo '{\"registry\": \"https://new.test.example/\"}'\n");
    assert_eq!(rules(&preset(&world, "npm")), ["new.test.example"]);
    assert!(explained(&world, &repo, "new.test.example").contains("is allowed by"));
    assert!(explained(&world, &repo, "npm.test.example").contains("no rule names it"));
}

#[test]
fn a_preset_of_the_configuration_is_resolved_when_the_daemon_starts() {
    let mut world = world("[sandbox]\nnetwork = \"hosts\"\nhosts = [\"@npm\"]\n");
    tool(&world.home().join("tools"), "npm", NPM);
    boot(&mut world, "");
    let repo = world.repo("a");
    let text = wait_for("the answer of npm", || {
        let text = explained(&world, &repo, "npm.test.example");
        text.contains("is allowed by").then_some(text)
    });
    assert!(text.contains("(configuration, @npm)"), "{text}");
}

#[test]
fn a_daemon_of_a_service_manager_finds_the_tools_of_the_login_shell() {
    let mut world = world("");
    let config = "[sandbox]\nnetwork = \"hosts\"\nhosts = [\"@npm\"]\n";
    world.configure(config);
    tool(&world.home().join("tools"), "npm", NPM);
    for name in [".bash_profile", ".zprofile", ".profile"] {
        write(&world, name, "PATH=\"$HOME/tools:$PATH\"; export PATH\n");
    }
    world.boot_bare();
    let repo = world.repo("a");
    wait_for("the answer of npm", || {
        explained(&world, &repo, "npm.test.example").contains("is allowed by").then_some(())
    });
}

#[test]
fn a_daemon_that_stops_does_not_wait_for_a_tool() {
    let mut world = world("");
    let script = "setsid sleep 1000 & echo $! >>~/pids; echo $$ >>~/pids; sleep 1000\n";
    tool(&world.home().join("tools"), "npm", script);
    boot(&mut world, "");
    let repo = world.repo("a");
    let at = repo.path().to_string_lossy().into_owned();
    let mut asking = world.command(&["sandbox", "allow", "@npm", "-C", &at]);
    let mut asking = asking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let processes = wait_for("npm to run", || {
        let text = std::fs::read_to_string(world.home().join("pids")).ok()?;
        let found: Vec<_> =
            text.lines().filter_map(|pid| Process::find(pid.parse().ok()?)).collect();
        (found.len() == 2).then_some(found)
    });
    world.signal(Signal::SIGTERM);
    assert_eq!(world.wait(), Some(0));
    assert!(!processes.iter().any(is_alive), "{processes:?}");
    assert_eq!(asking.wait().unwrap().code(), Some(1));
}

#[test]
fn crates_io_is_known_to_a_cargo_that_has_not_downloaded_yet() {
    let mut world = world("");
    let log =
        "echo 'DEBUG x cache_path=\"/h/registry/index/index.crates.io-0f/.cache\"' >&2\nexit 101\n";
    tool(&world.home().join("tools"), "cargo", log);
    boot(&mut world, "");
    let preset = preset(&world, "crates");
    assert_eq!(rules(&preset), ["index.crates.io", "static.crates.io"], "{preset}");
}

#[test]
fn every_tool_is_asked_in_its_own_way() {
    let mut world = world("");
    let tools = world.home().join("tools");
    let log = "[ \"$PWD\" = / ] && echo 'DEBUG x cache_path=\"/h/registry/index/index.test.example-0f/.cache\"' >&2\nexit 101\n";
    tool(&tools, "cargo", log);
    write(
        &world,
        ".cargo/registry/index/index.test.example-0f/config.json",
        "{\"dl\":\"https://dl.test.example/{crate}\"}",
    );
    write(
        &world,
        ".cargo/registry/index/other.test.example-0f/config.json",
        "{\"dl\":\"https://no.test.example\"}",
    );
    for (dir, dl) in [("own.test.example-1a", "own-dl"), ("own.test.example-x-1a", "no")] {
        let config = format!("{{\"dl\":\"https://{dl}.test.example/\"}}");
        write(&world, &format!(".cargo/registry/index/{dir}/config.json"), &config);
    }
    write(
        &world,
        ".cargo/config.toml",
        "[registries.own]\nindex = \"sparse+https://me:pw@own.test.example/\"\n",
    );
    tool(
        &tools,
        "python3",
        "echo default.index-url=https://pip.test.example/simple\necho default.files=https://files.test.example\n",
    );
    write(&world, ".config/uv/uv.toml", "[[index]]\nurl = \"https://uv.test.example/simple\"\n");
    tool(
        &tools,
        "go",
        "[ \"$GOTOOLCHAIN\" = local ] && printf 'https://go.test.example,direct\\nsum.test.example\\n'\n",
    );
    write(
        &world,
        ".rustup/toolchains/stable/lib/rustlib/multirust-channel-manifest.toml",
        "[pkg.x]\nurl = \"https://rust.test.example/dist/x.tar.gz\"\n",
    );
    write(
        &world,
        ".nvm/nvm.sh",
        "m=\"${NVM_NODEJS_ORG_MIRROR:-https://node.test.example/dist}\"\n",
    );
    boot(&mut world, "");
    for (name, expected) in [
        (
            "crates",
            &["own.test.example", "own-dl.test.example", "index.test.example", "dl.test.example"][..],
        ),
        ("pypi", &["pip.test.example", "files.test.example", "uv.test.example"]),
        ("go", &["go.test.example", "sum.test.example"]),
        ("rust", &["rust.test.example"]),
        ("node", &["node.test.example"]),
    ] {
        let preset = preset(&world, name);
        assert_eq!(rules(&preset), expected, "{preset}");
    }
    // A preset of several tools needs an answer of one of them.
    let repo = world.repo("a");
    sandbox(&world, &repo, &["set", "--allow", "@registries"]).ok();
    assert!(explained(&world, &repo, "dl.test.example").contains("(session, @registries)"));
    assert!(explained(&world, &repo, "rust.test.example").contains("it is a host of @rust"));
    // Nothing is left in the directory of temporary files.
    let run_dir = world.app().join("run");
    let left = std::fs::read_dir(run_dir).unwrap().flatten();
    assert!(
        !left.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("cargo-"))
    );
}

#[test]
fn a_preset_without_an_answer_is_refused_with_the_reason() {
    let mut world = world("");
    let tools = world.home().join("tools");
    boot(&mut world, "");
    let repo = world.repo("a");
    for (name, script, why) in [
        (
            "npm",
            "echo '{\"registry\": \"http://localhost:4873/\"}'\n",
            "for a server of this machine, allow machine:PORT",
        ),
        (
            "npm",
            "echo '{\"registry\": \"http://machine:4873/\"}'\n",
            "for a server of this machine, allow machine:PORT",
        ),
        ("npm", "echo not json\n", "printed no JSON"),
        ("npm", "head -c 300000 /dev/zero\n", "printed more than can be read, or no text"),
        ("go", "printf 'off\\noff\\n'\n", "@go has no hosts"),
        ("cargo", "exit 0\n", "cargo's log"),
    ] {
        tool(&tools, name, script);
        let preset = match name {
            "cargo" => "@crates".to_owned(),
            name => format!("@{name}"),
        };
        for args in [["allow", &preset], ["allow", &format!("!{preset}")]] {
            let refused = sandbox(&world, &repo, &args);
            let error = refused.stderr();
            assert!(refused.code() == Some(1) && error.contains(why), "{script}: {error}");
        }
    }
    let unknown = sandbox(&world, &repo, &["allow", "@no-such"]);
    assert!(unknown.stderr().contains("No preset is called @no-such"), "{unknown:?}");
}
