//! Moves the copy of a session: the far side. It writes one private directory, and starts the confined process
//! `quack isolate`, which packs or unpacks there.

use crate::far_files::{FarFiles, variable};
use crate::handshake::{CopyWork, Hello, PROTO};
use crate::transfer::{
    FarAnswer, Incoming, keep_alive, open_sent_blocking, send_answer, send_file,
};
use bytes::BytesMut;
use futures_util::{SinkExt as _, StreamExt as _};
use quackd_environment_worker::Account;
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::link;
use quackd_process::{SelfExe, spawn_worker_blocking};
use quackd_protocol::far_errand::SendLimits;
use quackd_protocol::isolate::{
    FROM_ISOLATE_TAGS, FromIsolate, IsolateRequest, IsolateTask, MAX_SENT_BYTES, SENT_DIRECTORY,
    SENT_FILE, ToIsolate,
};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt as _, Stdin, Stdout};
use tokio_util::codec::Framed;

/// Role of the process that packs and unpacks, on the command line.
const ISOLATE: &str = "isolate";

/// Deepest directory that is made writable before it is deleted.
const MAX_DEPTH: usize = 512;

/// Does the work, answers, and waits until the near side ends the link.
pub(crate) async fn serve(
    stdin: Stdin,
    mut stdout: Stdout,
    input: BytesMut,
    hello: &Hello,
    work: CopyWork,
) -> io::Result<()> {
    let mut incoming = Incoming::new(stdin, input);
    let done = if hello.proto == PROTO {
        let working = carry_out(&mut incoming, &hello.session, work);
        tokio::select! {
            done = working => done,
            error = keep_alive(&mut stdout) => return Err(error),
        }
    } else {
        Err(io::Error::other("the protocol of the link is another one"))
    };

    let (answer, file) = match done {
        Ok(Done { path, file, notes }) => {
            let bytes =
                file.as_ref().map_or(Ok(0), |file| file.metadata().map(|file| file.len()))?;
            (FarAnswer::Done { path: path.display().to_string(), bytes, notes }, file)
        }
        Err(error) => (FarAnswer::Failed { text: error.to_string() }, None),
    };
    let answering = async {
        send_answer(&mut stdout, &answer).await?;
        if let (FarAnswer::Done { bytes, .. }, Some(file)) = (&answer, &file) {
            send_file(&mut stdout, file, *bytes).await?;
        }
        Err::<(), _>(keep_alive(&mut stdout).await)
    };
    tokio::select! {
        sent = answering => sent,
        // The near side has everything, or is gone.
        _ = until_ended(&mut incoming) => Ok(()),
    }
}

/// Waits for the end of the link. Drops what arrives until then.
async fn until_ended(incoming: &mut Incoming<Stdin>) {
    while incoming.skip().await.is_ok() {}
}

/// Result of the work.
struct Done {
    path: PathBuf,
    /// The file for the near side.
    file: Option<File>,
    notes: Vec<String>,
}

async fn carry_out(
    incoming: &mut Incoming<Stdin>,
    session: &str,
    work: CopyWork,
) -> io::Result<Done> {
    let account = Account::of_this_user_blocking();
    let files = FarFiles::of(session, account.as_ref(), variable)?;
    let (directory, home) = (files.copy, files.home);
    let path = directory.join("tree");

    match work {
        CopyWork::Put { bytes, is_new, limits } => {
            if MAX_SENT_BYTES < bytes {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            create_blocking(&directory)?;
            let file = directory.join(SENT_FILE);
            // Left by an interrupted transfer.
            fs::remove_file(&file).ok();
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
            incoming.file(&new, bytes).await?;
            let SendLimits { max_files, max_bytes } = limits;
            let task = IsolateTask::Unpack { is_far: true, is_new, max_files, max_bytes };
            match isolate(incoming, &directory, home, task).await? {
                FromIsolate::Unpacked {} => Ok(Done { path, file: None, notes: Vec::new() }),
                other => Err(refused(other)),
            }
        }
        CopyWork::Take { limits } => {
            let SendLimits { max_files, max_bytes } = limits;
            let task = IsolateTask::Pack { is_far: true, is_new: false, max_files, max_bytes };
            match isolate(incoming, &directory, home, task).await? {
                FromIsolate::Packed(packed) => {
                    let file = directory.join(SENT_FILE);
                    let open = open_sent_blocking(&file)?;
                    // It exists until the last byte is sent.
                    fs::remove_file(&file)?;
                    Ok(Done { path, file: Some(open), notes: packed.notes })
                }
                other => Err(refused(other)),
            }
        }
        CopyWork::Remove {} => {
            let removing = directory.clone();
            let removed = tokio::task::spawn_blocking(move || remove_blocking(&removing));
            removed.await.map_err(io::Error::other)??;
            Ok(Done { path, file: None, notes: Vec::new() })
        }
    }
}

fn refused(answer: FromIsolate) -> io::Error {
    match answer {
        FromIsolate::Failed { text } => io::Error::other(text),
        _ => io::Error::other("the process that works on copies gave another answer"),
    }
}

/// Creates the private directory of the session, and the one for what is sent.
fn create_blocking(directory: &Path) -> io::Result<()> {
    for directory in
        [directory.parent().unwrap_or(directory), directory, &directory.join(SENT_DIRECTORY)]
    {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let found = fs::symlink_metadata(directory)?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_dir() || !is_ours || found.mode() & 0o077 != 0 {
            let text = format!("{} is not private to this user", directory.display());
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

/// Packs or unpacks in a new confined process. It ends with the link.
async fn isolate(
    incoming: &mut Incoming<Stdin>,
    directory: &Path,
    home: PathBuf,
    task: IsolateTask,
) -> io::Result<FromIsolate> {
    if !directory.is_dir() {
        let text = format!("{} does not exist there", directory.display());
        return Err(io::Error::other(text));
    }
    let (ours, theirs) = link::pair()?;
    let exe = SelfExe::open()?;
    let child = spawn_worker_blocking(&exe, &[ISOLATE], theirs).map_err(io::Error::other)?;
    let mut stderr = tokio::net::unix::pipe::Receiver::from_owned_fd(child.stderr)?;
    let words = tokio::spawn(async move {
        let mut words = Vec::new();
        (&mut stderr).take(MAX_WORDS).read_to_end(&mut words).await.ok();
        String::from_utf8_lossy(&words).trim().to_owned()
    });

    let request = IsolateRequest {
        workspace: directory.to_owned(),
        directory: directory.to_owned(),
        home,
        task,
    };
    let request = frames::encode(&ToIsolate::Isolate(request)).map_err(io::Error::other)?;
    let mut channel = Framed::new(ours, frames::codec());
    channel.send(request).await?;
    let answer = tokio::select! {
        answer = channel.next() => answer,
        // The near side sends nothing but keep-alives now.
        lost = incoming.fill() => {
            child.process.kill().ok();
            lost?;
            return Err(io::Error::other("more bytes than announced arrived"));
        }
    };
    drop(channel);
    child.process.exited().await.ok();
    child.process.try_reap().ok();

    let Some(Ok(answer)) = answer else {
        let words = words.await.unwrap_or_default();
        return Err(io::Error::other(format!("the process that works on copies ended: {words}")));
    };
    match frames::decode(&answer, FROM_ISOLATE_TAGS).map_err(io::Error::other)? {
        Decoded::Known(answer) => Ok(answer),
        Decoded::Unknown(_) => Err(io::Error::other("another answer")),
    }
}

/// Kept bytes of the error output of that process.
const MAX_WORDS: u64 = 2 * 1024;

/// Deletes the session's directory, whatever permissions its directories have.
fn remove_blocking(directory: &Path) -> io::Result<()> {
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    if fs::remove_dir_all(directory).is_err() {
        make_writable_blocking(directory, 0);
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives the owner all rights to the directories. Links are not followed.
fn make_writable_blocking(directory: &Path, depth: usize) {
    // The deletion reports what is left.
    fs::set_permissions(directory, Permissions::from_mode(0o700)).ok();
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|_| depth < MAX_DEPTH) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable_blocking(&entry.path(), depth + 1);
        }
    }
}
