//! Arguments of `quack forward`.

use super::{REF, SessionArgs, reference};
use crate::exit::CliError;
use clap::Args;

/// Make a server of a session reachable on this machine
///
/// Listens on 127.0.0.1 and passes connections on to a port of the session. Ends with the session or with --close.
/// With --link the session has a name for browsers, so that several sessions can serve on the same port.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack forward 3000             http://127.0.0.1:3000 is port 3000 of your session here\n  \
    quack forward web 3000         the same of web\n  \
    quack forward web 3000:8080    http://127.0.0.1:8080 is port 3000 of web\n  \
    quack forward web 3000 --link  prints http://3000.web.localhost:43112\n  quack forward --list\n  \
    quack forward web 3000 --close"
)]
pub(crate) struct ForwardArgs {
    /// Session, such as api or api/review [default: yours of the current directory]
    #[arg(value_name = REF, value_parser = reference, required_unless_present = "list", conflicts_with = "dir")]
    reference: Option<String>,
    /// Port in the session, and after a colon the port of this machine; 0 for any
    #[arg(value_name = "PORT[:LOCAL]", value_parser = ports)]
    ports: Option<Ports>,
    #[command(flatten)]
    which: SessionArgs,
    /// Print a link by name in place of a forward; it stays until the daemon stops
    #[arg(long, conflicts_with_all = ["list", "close"])]
    pub(crate) link: bool,
    /// Close the forward
    #[arg(long, conflicts_with = "list")]
    pub(crate) close: bool,
    /// List the forwards, of all sessions or of one
    #[arg(long, conflicts_with = "ports")]
    pub(crate) list: bool,
}

/// Port in a session, and the port of this machine if it was given.
type Ports = (u16, Option<u16>);

impl ForwardArgs {
    /// Returns the session and the ports. A single word is a port if it looks like one.
    ///
    /// # Errors
    /// If there is no port, or the session is given twice.
    pub(crate) fn take(&mut self) -> Result<(SessionArgs, Option<Ports>), CliError> {
        let SessionArgs { session, dir } = std::mem::take(&mut self.which);
        let word = self.reference.take();
        let (word, ports) = match (word, self.ports) {
            (Some(word), None) if !self.list => {
                let ports = ports(&word).map_err(|_error| {
                    CliError::usage(format!("give a port, such as `quack forward {word} 3000`"))
                })?;
                (None, Some(ports))
            }
            other => other,
        };

        if self.link && ports.is_some_and(|(_, local)| local.is_some()) {
            return Err(CliError::usage("a link has no port of this machine: give PORT alone"));
        }

        match (word, session) {
            (Some(_), Some(_)) => Err(CliError::usage("the session is given twice")),
            (word, session) => Ok((SessionArgs { session: word.or(session), dir }, ports)),
        }
    }
}

fn ports(text: &str) -> Result<Ports, String> {
    let (port, local) = match text.split_once(':') {
        Some((port, local)) => (port, Some(local)),
        None => (text, None),
    };

    let number =
        |text: &str| text.parse::<u16>().map_err(|_error| format!("{text:?} is not a port"));

    let port = number(port)?;
    if port == 0 {
        return Err("0 is not a port of a session".to_owned());
    }
    Ok((port, local.map(number).transpose()?))
}
