//! Starts a Pi before 0.79. Such a Pi runs code from `.pi` of its directory, and has no option against it. Its package
//! names this directory, so it gets a copy of its package's manifest in which the name leads out of every directory, to
//! one that cannot be created. A command that makes `.pi` while Pi starts or runs changes nothing then.

use super::locate::{MAX_MANIFEST_BYTES, package_blocking};
use quackd_home::Home;
use serde_json::Value;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// The first version with `--no-approve`.
const FIRST_NEW: [u32; 2] = [0, 79];

/// Name of Pi's project settings in such a package, after the `../` to the root. The kernel creates no names in
/// `/proc`.
const NOWHERE: &str = "proc/quackd-no-project-settings";

/// Most entries of a package that are linked. Pi's has ten.
const MAX_ENTRIES: usize = 256;

/// Additional `../` in the name, because the real path of the workspace may be deeper than its path with links.
const SPARE_LEVELS: usize = 64;

/// A package of an old Pi.
#[derive(Debug)]
pub(super) struct OldPackage {
    directory: PathBuf,
    manifest: Value,
}

/// Returns the package of a program, if it is an old Pi whose manifest names its settings. Reads the file system.
pub(super) fn find_blocking(program: &str) -> Option<OldPackage> {
    let (directory, version) = package_blocking(program)?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let version = [numbers.next()??, numbers.next()??];
    let manifest = fs::read(directory.join("package.json")).ok()?;
    let is_small = u64::try_from(manifest.len()).is_ok_and(|len| len <= MAX_MANIFEST_BYTES);
    let manifest: Value = serde_json::from_slice(&manifest).ok().filter(|_| is_small)?;
    // Pi makes the name of the variable `AGENT_DIR` of this name, so only a package named `pi` can be masked.
    let is_pi = manifest.pointer("/piConfig/name").is_none_or(|name| name == "pi");
    (version < FIRST_NEW && is_pi && manifest.is_object())
        .then_some(OldPackage { directory, manifest })
}

/// Makes the package without project settings, and adds the variables with which Pi uses it. Writes the state directory.
///
/// # Errors
/// Those of the system.
pub(super) fn mask_blocking(
    home: &Home,
    package: OldPackage,
    workspace: &Path,
    user_home: &Path,
    env: &mut Vec<(String, String)>,
) -> io::Result<()> {
    let OldPackage { directory, mut manifest } = package;

    let levels = workspace.components().count() + SPARE_LEVELS;
    let name = format!("{}{NOWHERE}", "../".repeat(levels));
    if let Some(manifest) = manifest.as_object_mut() {
        let config =
            manifest.entry("piConfig").or_insert_with(|| Value::Object(Default::default()));
        if let Some(config) = config.as_object_mut() {
            config.insert("configDir".to_owned(), name.into());
        }
    }

    let text = serde_json::to_string(&manifest)?;
    // The name contains a hash of the content, so that a directory in use never changes.
    let of = [text.as_bytes(), directory.as_os_str().as_encoded_bytes()].concat();
    let hash = of.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let made = home.dir().join("pi-package").join(format!("{hash:016x}"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&made)?;

    for entry in fs::read_dir(&directory)?.take(MAX_ENTRIES) {
        let name = entry?.file_name();
        if name != "package.json" {
            link_blocking(&directory.join(&name), &made.join(&name))?;
        }
    }
    write_blocking(&made.join("package.json"), &text)?;

    let settings = env.iter().find(|(name, _)| name == AGENT_DIR).map(|(_, value)| value.clone());
    let settings = settings.filter(|value| !value.is_empty());
    let settings = settings.unwrap_or_else(|| user_home.join(".pi/agent").display().to_string());
    env.retain(|(name, _)| ![AGENT_DIR, PACKAGE_DIR].contains(&name.as_str()));
    env.push((AGENT_DIR.to_owned(), settings));
    env.push((PACKAGE_DIR.to_owned(), made.display().to_string()));

    Ok(())
}

/// Variable with the directory of the user's settings.
const AGENT_DIR: &str = "PI_CODING_AGENT_DIR";

/// Variable with the directory of Pi's package.
const PACKAGE_DIR: &str = "PI_PACKAGE_DIR";

fn link_blocking(target: &Path, link: &Path) -> io::Result<()> {
    match symlink(target, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Creates the file as a whole, unless it exists.
fn write_blocking(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let temporary = path.with_extension(quackd_home::new_id()?);
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::hard_link(&temporary, path));
    fs::remove_file(&temporary)?;
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(dir: &Path, version: &str, config: &Value) -> PathBuf {
        let package = dir.join("node_modules/@mariozechner/pi-coding-agent");
        fs::create_dir_all(package.join("dist")).unwrap();
        let manifest = json!({"name": "@mariozechner/pi-coding-agent", "version": version, "piConfig": config});
        fs::write(package.join("package.json"), manifest.to_string()).unwrap();
        fs::write(package.join("dist/cli.js"), "").unwrap();
        package.join("dist/cli.js")
    }

    #[test]
    fn an_old_pi_gets_a_package_whose_project_settings_cannot_exist() {
        let dir = tempfile::tempdir().unwrap();
        let app = dir.path().join("app").into_os_string();
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| app.clone());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        let config = json!({"name": "pi", "configDir": ".pi"});
        let program = package(dir.path(), "0.55.0", &config);
        let mut env = vec![(PACKAGE_DIR.to_owned(), "/other".to_owned())];
        for _ in 0..2 {
            let found = find_blocking(program.to_str().unwrap()).unwrap();
            let (workspace, user_home) = (Path::new("/home/duck/ws"), Path::new("/home/duck"));
            mask_blocking(&home, found, workspace, user_home, &mut env).unwrap();
        }
        let of = |name: &str| env.iter().find(|(it, _)| it == name).unwrap().1.clone();
        assert_eq!((env.len(), of(AGENT_DIR)), (2, "/home/duck/.pi/agent".to_owned()));
        let made = PathBuf::from(of(PACKAGE_DIR));
        assert_eq!(fs::read(made.join("dist/cli.js")).unwrap(), b"");
        let manifest = fs::read(made.join("package.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["version"], "0.55.0");
        let name = manifest["piConfig"]["configDir"].as_str().unwrap();
        let ups = name.matches("../").count();
        assert!(name.ends_with(NOWHERE) && 64 < ups, "{name}");
        assert_eq!(fs::read_dir(made).unwrap().count(), 2, "nothing temporary stays");
    }

    #[test]
    fn a_newer_pi_and_another_program_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (version, config) in [
            ("0.79.0", json!({"name": "pi"})),
            ("1.6.0", json!({"name": "pi"})),
            ("0.55.0", json!({"name": "tau"})),
            ("unknown", json!({})),
        ] {
            let program = package(dir.path(), version, &config);
            assert!(find_blocking(program.to_str().unwrap()).is_none(), "{version}");
        }
        assert!(find_blocking("/bin/sh").is_none());
    }
}
