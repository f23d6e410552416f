//! Resolves links on the way to the user's home and to the daemon's state directory. Mounts follow no link, so that a
//! program cannot redirect them; the links of the user are followed here, before any command of the session runs.

use quackd_protocol::policy::Profile;
use quackd_protocol::worker::Start;
use std::path::{Component, Path, PathBuf};

/// Most links on the way to a directory. The kernel follows 40.
const MAX_LINKS: usize = 40;

/// A link on the way to the home, and the directory to which it leads.
pub(crate) type HomeLink = (PathBuf, PathBuf);

/// Replaces the home, the run directory, the state directory and the directories of package caches and agents by their
/// paths without links, also in the environment of commands. Returns the links on the way to the home: programs may have
/// its other path in their settings.
pub(crate) fn resolve_blocking(start: &mut Start) -> Vec<HomeLink> {
    let sandbox = &mut start.sandbox;
    let of_state = [&mut start.run_dir, &mut sandbox.state_dir].into_iter();
    let agents = sandbox.agents.as_mut().map(|agents| &mut agents.directory);
    let of_workspace = sandbox.caches.iter_mut().chain(agents);
    let isolated = sandbox.isolated.as_mut().map(|isolated| &mut isolated.directory);
    for path in of_state.chain(of_workspace).chain(isolated) {
        if let Some(real) = real_blocking(path) {
            *path = real;
        }
    }

    // Without a sandbox there are no mounts, so the links work as they are.
    if sandbox.policy.profile == Profile::FullAccess {
        return Vec::new();
    }
    let Some(real) = real_blocking(&sandbox.home) else { return Vec::new() };

    let configured = std::mem::replace(&mut sandbox.home, real);
    for (_, value) in &mut start.env {
        if value.contains(&configured) {
            *value = moved(value, &configured, &sandbox.home);
        }
    }
    links_blocking(Path::new(&configured))
}

/// Returns the path without links, if it exists and differs.
fn real_blocking(path: &str) -> Option<String> {
    let real = Path::new(path).canonicalize().ok()?.into_os_string().into_string().ok()?;
    (real != path).then_some(real)
}

/// Replaces the directory `from` at the beginning of each path in a list of paths.
fn moved(list: &str, from: &str, real: &str) -> String {
    let part = |part: &str| match part.strip_prefix(from) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{real}{rest}"),
        _ => part.to_owned(),
    };
    list.split(':').map(part).collect::<Vec<_>>().join(":")
}

/// Returns the links on the way to `path`, each with the real directory to which it leads.
fn links_blocking(path: &Path) -> Vec<HomeLink> {
    let mut links = Vec::new();
    let (mut at, mut rest): (PathBuf, Vec<_>) = (PathBuf::new(), path.components().rev().collect());
    while let Some(part) = rest.pop() {
        at.push(part);
        if part == Component::RootDir || !at.is_symlink() {
            continue;
        }

        // A broken link, or a loop: the kernel follows it no further either.
        let Ok(real) = at.canonicalize() else { break };
        // The rest of the path is resolved in the real directory.
        links.push((std::mem::replace(&mut at, real.clone()), real));
        if MAX_LINKS <= links.len() {
            break;
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_home_behind_links_is_found_with_its_links() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let at = |path: &str| base.join(path);
        std::fs::create_dir_all(at("disk/homes/me/state/run")).unwrap();
        symlink("disk/homes", at("home")).unwrap();
        symlink("me", at("disk/homes/alias")).unwrap();
        let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
        let mut start = Start {
            run_dir: text(at("home/me/state/run")),
            env: vec![
                ("HOME".into(), text(at("home/alias"))),
                ("PATH".into(), format!("/bin:{0}/bin:{0}s", text(at("home/alias")))),
            ],
            ..serde_json::from_value(serde_json::json!({
                "proto": 1, "session_id": "s", "workspace": "/w", "run_dir": "", "env": [], "safe_mode": false,
                "sandbox": {"home": text(at("home/alias")), "state_dir": text(at("gone"))},
            }))
            .unwrap()
        };
        let links = resolve_blocking(&mut start);
        let real = at("disk/homes/me");
        assert_eq!(links, [(at("home"), at("disk/homes")), (at("disk/homes/alias"), real.clone())]);
        assert_eq!(start.sandbox.home, text(real.clone()));
        assert_eq!(start.run_dir, text(real.join("state/run")));
        assert_eq!(start.sandbox.state_dir, text(at("gone")), "what does not exist stays");
        assert_eq!(start.env[0].1, text(real.clone()));
        assert_eq!(
            start.env[1].1,
            format!("/bin:{}/bin:{}s", text(real), text(at("home/alias"))),
            "another directory with the same beginning stays"
        );
        // A second time there is nothing to do.
        assert_eq!(resolve_blocking(&mut start), []);
    }
}
