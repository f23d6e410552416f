//! What `doctor` says of Pi: which program would be started, its version, and with which model.

use super::environment;
use super::error::PiError;
use super::find::{choose, find_blocking, version_blocking};
use super::outside::Writable;
use crate::registry::{ListWritable, Registry};
use crate::services::Services;
use actix::Addr;
use quackd_protocol::client::{Check, CheckStatus};
use std::time::Duration;

/// What is known is enough here: nobody waits for a login shell.
const NO_WAIT: Duration = Duration::ZERO;

/// A disk may hang.
const LOOK_LIMIT: Duration = Duration::from_secs(3);

/// The checks `pi` and `pi_model`.
pub(crate) async fn checks(services: &Services, registry: &Addr<Registry>) -> [Check; 2] {
    let writable = registry.send(ListWritable).await.unwrap_or_default();
    let commands = services.login.environment_for_worker(NO_WAIT).await;
    let login = services.login.environment_for_pi(NO_WAIT).await;
    let mut env = environment::merge(std::env::vars_os(), &commands, &login);
    let model = Check {
        name: "pi_model".to_owned(),
        status: CheckStatus::Ok,
        message: choose(&services.config.pi, &env).shown(),
        hint: None,
    };
    let binary = services.config.pi.binary.clone();
    let config = services.config_file.path.clone();
    let user_home = services.user_home.clone();
    let look = move || {
        let writable = Writable::of_blocking(writable, &user_home);
        writable.clean_blocking(&mut env);
        let path = crate::environment::of(&env, "PATH");
        let program = find_blocking(&binary, path, &config, &writable)?;
        let version = version_blocking(&program);
        Ok((program, version))
    };
    let look = tokio::time::timeout(LOOK_LIMIT, actix_rt::task::spawn_blocking(look)).await;
    let (status, message, hint) = match look {
        Ok(Ok(Ok((program, Some(version))))) => {
            (CheckStatus::Ok, format!("{program} {version}"), None)
        }
        Ok(Ok(Ok((program, None)))) => (CheckStatus::Ok, program, None),
        Ok(Ok(Err(PiError::NotFound { config }))) => (
            CheckStatus::Warn,
            "Pi not found. Install it with npm install -g @earendil-works/pi-coding-agent, \
             or set RUBBER_DUCK_PI_BINARY."
                .to_owned(),
            Some(format!("only `say` needs it; `pi.binary` in {config} names it too")),
        ),
        Ok(Ok(Err(error))) => {
            let hint = "`quack config show --origin` says where it is set";
            (CheckStatus::Fail, error.to_string(), Some(hint.to_owned()))
        }
        _ => (
            CheckStatus::Fail,
            "the disk that holds it does not answer".to_owned(),
            Some("look at the disk that holds it".to_owned()),
        ),
    };
    [Check { name: "pi".to_owned(), status, message, hint }, model]
}
