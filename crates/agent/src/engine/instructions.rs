//! Instructions and facts of the workspace, for the system prompt. [`super::loading`] reads them before each run.

use quackd_protocol::instructions::InstructionFile;
use serde::Deserialize;

/// Instructions for agents, and facts about the workspace.
#[derive(Debug, Clone, Default)]
pub(super) struct Instructions {
    /// Instructions from the user's home.
    pub(super) own: Vec<InstructionFile>,
    /// Instructions from the workspace.
    pub(super) project: Vec<InstructionFile>,
    /// Name of the shell that runs commands. Empty if it is not known.
    pub(super) shell: String,
    /// The repository. `None` without one.
    pub(super) git: Option<Git>,
    /// Path of the copy in which the session works. `None` if it is that of the workspace.
    pub(super) workspace: Option<String>,
}

/// The repository of the workspace when the agent first saw its current HEAD. Later states would change the system
/// prompt, and make the provider read the whole conversation again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Git {
    pub(super) head: String,
    #[serde(default)]
    pub(super) text: String,
}

impl Instructions {
    /// Returns the paths of the files.
    pub(super) fn files(&self) -> Vec<&str> {
        self.own.iter().chain(&self.project).map(|file| file.path.as_str()).collect()
    }

    /// Returns the facts for the system prompt.
    pub(super) fn facts(&self) -> impl Iterator<Item = String> {
        let shell = Some(&self.shell).filter(|shell| !shell.is_empty());
        let shell = shell.map(|shell| format!("The tool bash runs commands with {shell}."));
        let git = self.git.as_ref().map(|git| {
            format!(
                "Git, when you first saw this branch: {}. `git status` shows the present state.",
                git.text
            )
        });
        shell.into_iter().chain(git)
    }
}
