//! Directories with the state of coding agents that run inside of sessions: settings, logins and conversations.
//!
//! `agents/<workspace>/<agent>/<directory>`: sessions write only in the last one, which is mounted by itself. So they
//! change no name above it.

use super::Home;
use crate::HomeError;
use crate::ids::workspace_id;
use crate::ownership::{RUN_FLAGS, is_marked, mark_agents};
use crate::private_dir::{FinalLink, own_dir_blocking, restrict_blocking};
use rustix::fs::{CWD, Mode, openat};
use std::path::PathBuf;

impl Home {
    /// Name of the directory with shared logins. No workspace has this id.
    pub(crate) const SHARED_LOGINS: &str = "logins";

    /// Returns the directory with the state of agents of all workspaces.
    #[must_use]
    pub fn agents_dir(&self) -> PathBuf {
        self.dir.join("agents")
    }

    /// Returns the directory with the logins that all workspaces share. It has the layout of
    /// [`Self::workspace_agents_dir`], and no session sees it.
    #[must_use]
    pub fn shared_logins_dir(&self) -> PathBuf {
        self.agents_dir().join(Self::SHARED_LOGINS)
    }

    /// Returns the directory with the state of agents of the workspace at this path. An `isolated` session, named by its
    /// id, has its own: hooks in settings that it writes would otherwise run in sessions that change the workspace.
    #[must_use]
    pub fn workspace_agents_dir(&self, workspace: &str, isolated: Option<&str>) -> PathBuf {
        // No path contains the separator.
        let id = isolated.map_or_else(
            || workspace_id(workspace),
            |session| workspace_id(&format!("{workspace}\0{session}")),
        );
        self.agents_dir().join(id)
    }

    /// Creates the directories `names` in [`Self::workspace_agents_dir`], private. Each name has an agent and a
    /// directory of it. Returns [`Self::workspace_agents_dir`].
    ///
    /// # Errors
    /// [`HomeError::ForeignRun`] if quackd did not create `agents`, and as [`Home::prepare_blocking`]. Call the latter
    /// first.
    pub fn prepare_agents_blocking(
        &self,
        workspace: &str,
        isolated: Option<&str>,
        names: &[String],
    ) -> Result<PathBuf, HomeError> {
        let path = self.agents_dir();
        let agents = own_dir_blocking(&path, FinalLink::Refuse)?;
        mark_agents(&agents, &path)?;
        restrict_blocking(&agents, &path)?;

        let own = self.workspace_agents_dir(workspace, isolated);
        for name in names {
            let path = own.join(name);
            restrict_blocking(&own_dir_blocking(&path, FinalLink::Refuse)?, &path)?;
        }
        Ok(own)
    }

    /// Returns true if `agents` exists and quackd created it.
    #[must_use]
    pub fn owns_agents_blocking(&self) -> bool {
        openat(CWD, self.agents_dir(), RUN_FLAGS, Mode::empty()).is_ok_and(is_marked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn home(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        home
    }

    #[test]
    fn each_workspace_and_each_isolated_session_has_a_private_directory() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let names = ["claude/.claude".to_owned()];
        let of = |workspace, session| {
            let made = home.prepare_agents_blocking(workspace, session, &names).unwrap();
            assert_eq!(made, home.workspace_agents_dir(workspace, session));
            made
        };
        let made = [of("/a", None), of("/b", None), of("/a", Some("s")), of("/a", Some("t"))];
        for (number, one) in made.iter().enumerate() {
            for part in ["", "claude", "claude/.claude"] {
                let mode = fs::metadata(one.join(part)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o700, "{part}");
            }
            assert_eq!(made.iter().position(|other| other == one), Some(number));
        }
        assert!(home.owns_agents_blocking());
        assert_eq!(of("/a", None), made[0], "it is there already");
    }

    #[test]
    fn a_directory_of_the_user_and_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let names = ["claude/.claude".to_owned()];
        fs::create_dir(home.agents_dir()).unwrap();
        fs::write(home.agents_dir().join("notes"), "").unwrap();
        let refused = home.prepare_agents_blocking("/a", None, &names).unwrap_err();
        assert!(matches!(refused, HomeError::ForeignRun { .. }), "{refused}");
        assert!(!home.owns_agents_blocking());

        fs::remove_file(home.agents_dir().join("notes")).unwrap();
        let own = home.prepare_agents_blocking("/a", None, &names).unwrap();
        fs::remove_dir(own.join("claude/.claude")).unwrap();
        symlink(dir.path(), own.join("claude/.claude")).unwrap();
        home.prepare_agents_blocking("/a", None, &names).unwrap_err();
    }
}
