//! Check of the installed service for `quack doctor`. Asks the service manager with a short timeout. A missing reply is
//! not a failure.

use super::context::ServiceContext;
use super::{install, present};
use crate::display::plain;
use crate::run_program::ask;
use quackd_protocol::client::{Check, CheckStatus};
use quackd_service::{Manager, place};
use std::time::Duration;

const NAME: &str = "service";

/// Timeout for each of the two requests. The second one is about lingering after logout.
const LIMIT: Duration = Duration::from_secs(2);

/// Report of the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enabled {
    Yes,
    No,
    Unknown,
}

/// Runs the check. `None` if quackd's service is not installed.
pub(crate) async fn check() -> Option<Check> {
    let here = ServiceContext::find(Manager::CURRENT).ok()?;
    if present(&here).is_empty() {
        return None;
    }
    let enabled = tokio::time::timeout(LIMIT, enabled(&here)).await.unwrap_or(Enabled::Unknown);
    // A manager that did not answer is not asked about lingering either.
    let lingers = match enabled {
        Enabled::Unknown => None,
        _ => tokio::time::timeout(LIMIT, install::lingers(&here, true)).await.ok().flatten(),
    };
    Some(tell(here.manager, enabled, lingers))
}

async fn enabled(here: &ServiceContext) -> Enabled {
    let uid = rustix::process::getuid().as_raw();
    let answer = match here.manager {
        Manager::Systemd => {
            ask(&["systemctl", "--user", "show", place::UNIT, "--property=UnitFileState"]).await
        }
        Manager::Launchd => {
            ask(&["launchctl", "print", &format!("gui/{uid}/{}", place::LABEL)]).await
        }
    };

    match (here.manager, answer) {
        (_, Err(_not_there)) => Enabled::Unknown,
        (Manager::Launchd, Ok(answer)) if answer.succeeded => Enabled::Yes,
        (Manager::Launchd, Ok(_)) => Enabled::No,
        (Manager::Systemd, Ok(answer)) if !answer.succeeded => Enabled::Unknown,
        (Manager::Systemd, Ok(answer)) => match answer.stdout.trim() {
            "UnitFileState=enabled" => Enabled::Yes,
            _ => Enabled::No,
        },
    }
}

fn tell(manager: Manager, enabled: Enabled, lingers: Option<bool>) -> Check {
    let name = manager.name();
    let of = |status, message: String, hint: Option<&str>| Check {
        name: NAME.to_owned(),
        status,
        message,
        hint: hint.map(str::to_owned),
    };

    match enabled {
        Enabled::Unknown => of(
            CheckStatus::Warn,
            format!("installed; {name} does not say whether it is enabled"),
            Some("`quack service status` says why"),
        ),
        Enabled::No => of(
            CheckStatus::Warn,
            format!("installed, but not enabled: {name} does not start it when you log in"),
            Some("`quack service install` enables it, `quack service uninstall` removes it"),
        ),
        Enabled::Yes => {
            let ends = match lingers {
                Some(false) => format!(". {}", plain(install::logout(manager, lingers).trim_end())),
                _ => String::new(),
            };
            of(CheckStatus::Ok, format!("installed and enabled, of {name}{ends}"), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_warns_at_most_and_says_how_it_goes_on_after_a_logout() {
        let ok = tell(Manager::Systemd, Enabled::Yes, Some(true));
        assert_eq!(
            (ok.status, ok.message.as_str()),
            (CheckStatus::Ok, "installed and enabled, of systemd")
        );
        let ends = tell(Manager::Systemd, Enabled::Yes, Some(false));
        assert!(ends.message.ends_with("`loginctl enable-linger` keeps it."), "{ends:?}");
        assert_eq!((ends.status, ends.hint), (CheckStatus::Ok, None));
        for enabled in [Enabled::No, Enabled::Unknown] {
            let check = tell(Manager::Launchd, enabled, None);
            assert_eq!((check.status, check.hint.is_some()), (CheckStatus::Warn, true));
        }
    }
}
