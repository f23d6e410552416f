//! Text of an audit report.

use quackd_protocol::client::{
    AuditChange, AuditReport, AuditRepository, RepositoryKind, RepositoryState,
};

/// Returns the text: findings that need a review first, unchanged state last.
pub(super) fn text(report: &AuditReport) -> String {
    let (known, news): (Vec<_>, Vec<_>) =
        report.repositories.iter().partition(|one| !needs_a_look(one));
    let (fresh, known): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|one| one.commands.is_empty());

    let since =
        if report.since_ms.is_some() { "since the given time" } else { "since the worker began" };
    let mut lines = vec![match report.found {
        0 => format!("No change was found {since}. {}", checked(report)),
        1 => "1 thing to look at before this workspace is trusted:".to_owned(),
        n => format!("{n} things to look at before this workspace is trusted:"),
    }];

    for file in &report.files {
        lines.push(format!("{} was {}: it {}", file.path, file.change.name(), file.why));
    }
    for one in &report.planted {
        let what = one.kind.name();
        lines.push(format!("{} is {what}: git may write to another file by it", one.path));
    }
    if report.planted_not_listed != 0 {
        lines.push(format!("[{} more such names are not listed]", report.planted_not_listed));
    }

    for one in news {
        repository(one, &mut lines);
    }
    if !fresh.is_empty() {
        lines.push("Repositories that run nothing:".to_owned());
        fresh.iter().for_each(|one| repository(one, &mut lines));
    }
    if !known.is_empty() {
        lines.push(match report.since_ms {
            Some(_) => format!("Unchanged {since}:"),
            None => "As it was when the worker began:".to_owned(),
        });
        known.iter().for_each(|one| repository(one, &mut lines));
    }

    if report.not_listed != 0 {
        lines.push(format!("[{} more repositories are not listed]", report.not_listed));
    }
    if !report.complete {
        let entries = report.entries;
        lines.push(format!("[Not complete: not all could be looked at, only {entries} entries]"));
    }
    lines.join("\n")
}

/// Describes what an audit checks and what it does not check.
fn checked(report: &AuditReport) -> String {
    let earlier = match report.since_ms {
        Some(_) => "names that were removed before the worker began",
        None => "changes before the worker began (--since)",
    };
    format!(
        "Checked: the {} names that quackd knows, other dot files, rc files and config files near the top, settings, \
         hooks and unknown names of git, and files that these name\n\
         Not checked: files that you run yourself, such as a Makefile, names of programs that quackd does not know, and \
         {earlier}",
        report.names
    )
}

fn needs_a_look(one: &AuditRepository) -> bool {
    let is_news = one.state != RepositoryState::Same || one.kind == RepositoryKind::Bare;
    is_news && !one.commands.is_empty()
}

fn repository(one: &AuditRepository, lines: &mut Vec<String>) {
    let state = match one.state {
        RepositoryState::New => " is new",
        RepositoryState::Changed => " was changed",
        RepositoryState::Unknown => " may be new",
        RepositoryState::Same => "",
    };
    let kind = match one.kind {
        RepositoryKind::Bare => " (a directory that git takes for a repository)",
        RepositoryKind::Git | RepositoryKind::GitFile | RepositoryKind::Other => "",
    };
    lines.push(format!("{}{state}{kind}", one.path));

    for command in &one.commands {
        let value = match command.value.as_str() {
            "" => String::new(),
            value => format!(" = {value}"),
        };
        lines.push(format!("  {}  {}{value}", command.file, command.key));
        for named in &command.named {
            let change = named.change.map_or("unchanged", AuditChange::name);
            lines.push(format!("    {}  {change}", named.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::{AuditCommand, AuditFile, AuditNamed, AuditPlanted};

    fn one(path: &str, state: RepositoryState, keys: &[&str]) -> AuditRepository {
        let command = |key: &&str| AuditCommand {
            file: format!("{path}/config"),
            key: (*key).to_owned(),
            value: "evil".to_owned(),
            named: Vec::new(),
        };
        let commands = keys.iter().map(command).collect();
        AuditRepository { path: path.to_owned(), kind: RepositoryKind::Git, state, commands }
    }

    #[test]
    fn what_needs_a_look_comes_first() {
        let file = AuditFile {
            path: ".envrc".into(),
            change: AuditChange::Made,
            why: "is run when a shell or a tool starts".into(),
        };
        let report = AuditReport {
            found: 2,
            complete: true,
            entries: 10,
            names: 500,
            since_ms: None,
            files: vec![file],
            repositories: vec![
                one("x/.git", RepositoryState::New, &["core.fsmonitor"]),
                one(".git", RepositoryState::Same, &["core.pager"]),
                one("y/.git", RepositoryState::New, &[]),
            ],
            not_listed: 0,
            planted: Vec::new(),
            planted_not_listed: 0,
            obeyed: Vec::new(),
        };
        assert_eq!(
            text(&report),
            "2 things to look at before this workspace is trusted:\n\
             .envrc was made: it is run when a shell or a tool starts\n\
             x/.git is new\n  x/.git/config  core.fsmonitor = evil\n\
             Repositories that run nothing:\ny/.git is new\n\
             As it was when the worker began:\n.git\n  .git/config  core.pager = evil"
        );
        let kind = quackd_protocol::client::PlantedKind::Link;
        let planted =
            vec![AuditPlanted { path: ".git/COMMIT_EDITMSG".into(), kind, removed: false }];
        let report = AuditReport {
            found: 3,
            complete: true,
            planted,
            planted_not_listed: 2,
            ..AuditReport::default()
        };
        assert_eq!(
            text(&report),
            "3 things to look at before this workspace is trusted:\n\
             .git/COMMIT_EDITMSG is a symbolic link: git may write to another file by it\n\
             [2 more such names are not listed]"
        );
        let mut known = one(".git", RepositoryState::Same, &["core.fsmonitor"]);
        let path = "tools/fsm.sh".to_owned();
        known.commands[0].named = vec![AuditNamed { path, change: None }];
        let repositories = vec![known];
        let nothing =
            AuditReport { complete: true, names: 500, repositories, ..AuditReport::default() };
        assert_eq!(
            text(&nothing),
            "No change was found since the worker began. Checked: the 500 names that quackd knows, other dot files, \
             rc files and config files near the top, settings, hooks and unknown names of git, and files that these \
             name\n\
             Not checked: files that you run yourself, such as a Makefile, names of programs that quackd does not know, \
             and changes before the worker began (--since)\n\
             As it was when the worker began:\n.git\n  .git/config  core.fsmonitor = evil\n    tools/fsm.sh  unchanged"
        );
        assert!(text(&AuditReport::default()).ends_with("only 0 entries]"));
    }
}
