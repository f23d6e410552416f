//! One row of the table of obeyed names: the name, its program, and how the name is protected.

/// Kind of program that obeys a name. Refusals name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The `.git` node, settings or hooks of a repository.
    Git,
    /// Hooks that a tool runs on commits.
    Hooks,
    /// Settings of an editor or of its tasks.
    Editor,
    /// Settings of an agent: its permissions and programs.
    Agent,
    /// File that a shell or a tool reads when it starts.
    StartUp,
    /// Project settings of the daemon.
    Own,
    /// Settings of a program that the table does not have.
    Unlisted,
}

impl Rule {
    /// Effect of such a file, to be read after its name.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Git => "decides what git runs",
            Self::Hooks => "is run on commits",
            Self::Editor => "decides what an editor runs",
            Self::Agent => "decides what an agent may do",
            Self::StartUp => "is run when a shell or a tool starts",
            Self::Own => "decides what this daemon allows",
            Self::Unlisted => "may decide what a program runs that quackd does not list",
        }
    }
}

/// Protection of a name. Commands can write all of these names: the kernel only protects names in `.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// File tools refuse it at any depth, and changes are reported. A program runs it although the user started
    /// another command.
    Refused,
    /// File tools refuse it at any depth. Changes are not reported, because ordinary commands change it.
    RefusedOnly,
    /// Changes are reported at any depth. Agents edit it in ordinary work.
    Reported,
    /// Changes are reported at the top of the workspace only: packages contain it too.
    ReportedAtTop,
}

impl Held {
    /// Returns true if file tools refuse to write the name.
    #[must_use]
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Refused | Self::RefusedOnly)
    }

    /// Returns true if changes are reported after commands and by the audit.
    #[must_use]
    pub fn is_reported(self) -> bool {
        !matches!(self, Self::RefusedOnly)
    }
}

/// A name that programs obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obeyed {
    /// One name, or several separated by `/`. The last one may contain one `*`.
    pub name: &'static str,
    /// Program that obeys the name.
    pub program: &'static str,
    /// Effect of the name on the program, as a short clause.
    pub reason: &'static str,
    /// Kind of the program.
    pub rule: Rule,
    /// Protection of the name.
    pub held: Held,
}
