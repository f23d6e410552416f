//! The macOS profile: the policy as text for `/usr/bin/sandbox-exec`. Pure. Compiled and tested as text, but not
//! run on a Mac.
//!
//! Each path is a parameter, so no directory name can be parsed as a rule. Where access is forbidden, the rule also has a
//! pattern of the other spellings of the path ([`spelling`]). The last matching rule wins, so the exceptions that forbid
//! access come last.

mod repositories;
mod rules;
mod spelling;

use quackd_protocol::policy::{NetworkMode, Policy, Profile};
pub use repositories::MANY_REPOSITORIES;
use repositories::MAX_REPOSITORIES;
use rules::{HOME_SECRETS, Repositories};
pub use rules::{MacPaths, Seatbelt};
use spelling::Extent;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Program that applies a profile.
pub const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// Rules that every program needs, with any policy. The order matters.
const BASE: &str = "\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal \"/dev/ptmx\") (regex #\"^/dev/ttys[0-9]+$\"))
(allow file-read* file-write-data (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\"))
(allow file-read* (literal \"/dev/random\") (literal \"/dev/urandom\") (subpath \"/dev/fd\"))
(allow file-read-metadata)
(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\")
  (global-name \"com.apple.cfprefsd.daemon\") (global-name \"com.apple.cfprefsd.agent\"))
(allow user-preference-read)
";

/// Trees of the system that every command can read.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/System",
    "/Library/Developer",
    "/Library/Frameworks",
    "/Applications/Xcode.app",
    "/opt",
    "/nix",
    "/private/etc",
    "/private/var/db/timezone",
    "/private/var/select",
];

/// Files in these trees that no command can read.
const SYSTEM_SECRETS: &str = "\
(deny file-read* (literal \"/private/etc/master.passwd\") (subpath \"/private/etc/sudoers.d\")
  (literal \"/private/etc/sudoers\") (regex #\"^/private/etc/ssh/ssh_host_.*_key$\"))
";

/// Rules for the network without restriction, with name resolution and the checks of certificates. Sockets of other
/// programs on this machine stay out of reach.
const NETWORK: &str = "\
(allow network*)
(allow system-socket)
(deny network-outbound (remote unix-socket))
(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))
(allow file-read* (literal \"/private/var/run/resolv.conf\"))
(allow mach-lookup (global-name \"com.apple.trustd\") (global-name \"com.apple.trustd.agent\")
  (global-name \"com.apple.SystemConfiguration.configd\")
  (global-name \"com.apple.SystemConfiguration.DNSConfiguration\"))
";

/// Maximum length of a profile in bytes. The system limits the length of an argument, of all arguments together, and
/// each letter of a path becomes about a dozen characters of a pattern.
const MAX_TEXT: usize = 96 * 1024;

/// Maximum length of the parameters of a profile in bytes.
const MAX_PARAMETERS: usize = 256 * 1024;

impl Seatbelt {
    /// Creates the profile of a policy. `None` for full access, which has none.
    #[must_use]
    pub fn new(policy: &Policy, places: &MacPaths) -> Option<Self> {
        if policy.profile == Profile::FullAccess {
            return None;
        }
        let each = Self::with(policy, places, Repositories::Each);
        if !policy.may_write()
            || places.git.repositories.len() <= MAX_REPOSITORIES && each.is_short_enough()
        {
            return Some(each);
        }
        // The fewer repositories have rules of their own, the shorter is the profile.
        let nearest = |n| Self::with(policy, places, Repositories::Nearest(n));
        let fitting = [MAX_REPOSITORIES, 16].into_iter().map(nearest).find(Self::is_short_enough);
        Some(fitting.unwrap_or_else(|| nearest(0)))
    }

    /// Returns false if macOS would not start a program with this profile: what `.git` files and settings of git name has
    /// too many or too long paths.
    #[must_use]
    pub fn is_short_enough(&self) -> bool {
        let parameters = self.parameters.iter();
        let length: usize =
            parameters.map(|(name, path)| name.len() + path.as_os_str().len() + 8).sum();
        self.text.len() <= MAX_TEXT && length <= MAX_PARAMETERS
    }

    /// Returns true if most repositories are read-only as a whole, which the session is told by [`MANY_REPOSITORIES`].
    #[must_use]
    pub fn has_read_only_repositories(&self) -> bool {
        self.repositories != Repositories::Each
    }

    fn with(policy: &Policy, places: &MacPaths, repositories: Repositories) -> Self {
        let mut profile = Self { repositories, ..Self::of_system() };

        let is_narrow =
            |directory: &&PathBuf| directory.is_absolute() && !places.home.starts_with(directory);
        for toolchain in places.toolchains.iter().filter(is_narrow) {
            profile.rule("allow file-read*", "subpath", "TOOLS", toolchain);
        }

        let beside =
            if policy.may_write() { "allow file-read* file-write*" } else { "allow file-read*" };
        for root in &policy.writable_roots {
            profile.rule(beside, "subpath", "ROOT", root);
        }
        if repositories == Repositories::Each {
            for repository in &places.git.outside {
                profile.rule(beside, "subpath", "OUTSIDE", repository);
            }
        }

        // The last matching rule wins. The copy of an isolated session is in the state directory, so the rule that
        // hides this directory comes before those of the workspace. Any other workspace may contain the state
        // directory, so the rule comes after them.
        let is_copy = places.workspace.starts_with(&places.state_dir);
        if is_copy {
            profile.hide_state(places);
        }

        // It may be in a directory that the session may read or write.
        if let Some(original) = &places.original {
            profile.forbid("deny file-read* file-write*", Extent::Tree, "ORIGINAL", original);
        }

        profile.rule("allow file-read*", "subpath", "WORKSPACE", &places.workspace);
        if let Some(objects) = &places.objects {
            profile.rule("allow file-read*", "subpath", "OBJECTS", objects);
        }
        if policy.may_write() {
            profile.rule("allow file-write*", "subpath", "WRITE", &places.workspace);
        }

        if !is_copy {
            profile.hide_state(places);
        }
        if policy.may_write() {
            profile.protect(policy, places);
        }
        profile.hide(policy, places);
        profile.connect(policy.network_mode(), places.proxy);

        profile
    }

    /// Creates the profile of a process that works on files only: it reads the system's programs and `readable`, and
    /// changes `writable`. All paths must be canonical.
    #[must_use]
    pub fn of_files(readable: &[PathBuf], writable: &[PathBuf]) -> Self {
        let mut profile = Self::of_system();
        for path in readable {
            profile.rule("allow file-read*", "subpath", "READ", path);
        }
        for path in writable {
            profile.rule("allow file-read* file-write*", "subpath", "WRITE", path);
        }
        profile
    }

    /// Returns the arguments of [`SANDBOX_EXEC`] before the program and its arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-p".into(), self.text.clone().into()];
        for (name, value) in &self.parameters {
            let mut definition = OsString::from(name);
            definition.push("=");
            definition.push(value);
            arguments.extend(["-D".into(), definition]);
        }
        arguments.push("--".into());
        arguments
    }

    /// Whether the last rule about a tree with the path allows commands to read it. `None` without such a rule: commands
    /// cannot read it, unless it is a device. The user cannot read the files that [`SYSTEM_SECRETS`] forbids.
    ///
    /// `path` is absolute, with every link resolved and in the spelling of the disk.
    #[must_use]
    pub fn may_read(&self, path: &Path) -> Option<bool> {
        let mut trees = self.readable.iter().rev();
        trees.find(|(tree, _)| path.starts_with(tree)).map(|(_, may_read)| *may_read)
    }

    /// Creates a profile that allows what every program needs, and to read the system.
    fn of_system() -> Self {
        let mut text = format!("{BASE}(allow file-read* (literal \"/\")");
        for tree in SYSTEM {
            let _written = write!(text, " (subpath \"{tree}\")");
        }
        text.push_str(")\n");
        text.push_str(SYSTEM_SECRETS);
        let readable = SYSTEM.iter().map(|tree| (tree.into(), true)).collect();
        Self { text, parameters: Vec::new(), readable, repositories: Repositories::Each }
    }

    /// Allows the network. With hosts, only connections to the session's own proxy: not even name resolution, since a
    /// query carries data out, nor the services that check certificates, since they load what a certificate names.
    fn connect(&mut self, mode: NetworkMode, proxy: Option<u16>) {
        match (mode, proxy) {
            (NetworkMode::On, _) => self.text.push_str(NETWORK),
            (NetworkMode::Hosts, Some(port)) => {
                let _written = writeln!(
                    self.text,
                    "(allow network-outbound (remote tcp4 \"localhost:{port}\"))"
                );
            }
            (NetworkMode::Hosts, None) | (NetworkMode::Off, _) => {}
        }
    }

    /// Hides the state directory, but for the session's own directories in it.
    fn hide_state(&mut self, places: &MacPaths) {
        let state = &places.state_dir;
        self.forbid("deny file-read* file-write*", Extent::Tree, "STATE", state);
        let temporary = &places.temporary;
        self.rule("allow file-read* file-write*", "subpath", "TEMPORARY", temporary);
        self.rule("allow file-read* file-write*", "subpath", "RUN", &places.run_dir);
        // The profile of the next worker would allow the target of a link in their place.
        self.pin(&places.run_dir);
        self.pin(temporary);
    }

    fn hide(&mut self, policy: &Policy, places: &MacPaths) {
        for hidden in &policy.hidden {
            self.forbid("deny file-read* file-write*", Extent::Tree, "HIDDEN", hidden);
        }
        for secret in HOME_SECRETS {
            let secret = places.home.join(secret);
            self.forbid("deny file-read* file-write*", Extent::Tree, "SECRET", &secret);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::GitDirectories;

    fn places() -> MacPaths {
        MacPaths {
            workspace: "/Users/u/w".into(),
            run_dir: "/Users/u/state/run/s1".into(),
            state_dir: "/Users/u/state".into(),
            home: "/Users/u".into(),
            temporary: "/private/var/folders/x/T/s1".into(),
            toolchains: vec!["/Users/u/.cargo/bin".into()],
            git: GitDirectories {
                repositories: vec!["/Users/u/w/.git".into(), "/Users/u/w/a/b/.git".into()],
                ..GitDirectories::default()
            },
            pins: Vec::new(),
            original: None,
            objects: None,
            proxy: Some(61_234),
        }
    }

    fn is_balanced(text: &str) -> bool {
        let mut depth = 0_i32;
        let mut is_string = false;
        for one in text.chars() {
            match one {
                '"' => is_string = !is_string,
                '(' if !is_string => depth += 1,
                ')' if !is_string => depth -= 1,
                _ => {}
            }
            if depth < 0 {
                return false;
            }
        }
        depth == 0 && !is_string
    }

    /// The rules about a path, in order, as action and matcher.
    fn rules(profile: &Seatbelt, path: &str) -> Vec<String> {
        let names: Vec<_> =
            profile.parameters.iter().filter(|(_, value)| value == Path::new(path)).collect();
        let lines = profile.text.lines().filter(|line| {
            names.iter().any(|(name, _)| line.contains(&format!("(param \"{name}\")")))
        });
        lines.map(|line| line.split(" (param").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn no_path_can_be_a_rule() {
        let mut places = places();
        places.workspace = "/w\")(allow default)(deny file-read* (subpath \"/x".into();
        places.git.repositories = vec![places.workspace.join(".git")];
        let profile = Seatbelt::new(&Policy::default(), &places).unwrap();
        assert!(!profile.text.contains("allow default") && is_balanced(&profile.text));
        let policy = Policy { hidden: vec!["/h\"".into()], ..Policy::default() };
        let other = Seatbelt::new(&policy, &places).unwrap();
        assert!(is_balanced(&other.text) && !other.text.contains("/h"));
        for (name, _) in &other.parameters {
            assert!(
                name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            );
        }
    }

    #[test]
    fn protected_names_are_forbidden_after_the_workspace_is_allowed() {
        let profile = Seatbelt::new(&Policy::default(), &places()).unwrap();
        let at = |text: &str| profile.text.find(text).unwrap();
        let names: Vec<_> = profile.parameters.iter().map(|(name, _)| name.clone()).collect();
        let write = names.iter().find(|name| name.starts_with("WRITE")).unwrap();
        let git = names.iter().find(|name| name.starts_with("GIT")).unwrap();
        assert!(at(&format!("\"{write}\"")) < at(&format!("\"{git}\"")));
        assert_eq!(rules(&profile, "/Users/u/w/.git/hooks"), ["(deny file-write* (subpath"]);
        let pin = "(deny file-write-create file-write-unlink (literal";
        for path in ["/Users/u/w/.git", "/Users/u/w/a/b/.git", "/Users/u/w/a/b", "/Users/u/w/a"] {
            assert!(rules(&profile, path).contains(&pin.to_owned()), "{path}");
        }
        assert!(rules(&profile, "/Users/u").is_empty());
    }

    #[test]
    fn read_only_writes_no_workspace_and_full_access_has_no_profile() {
        let policy = |profile| Policy { profile, ..Policy::default() };
        let read_only = Seatbelt::new(&policy(Profile::ReadOnly), &places()).unwrap();
        assert_eq!(rules(&read_only, "/Users/u/w"), ["(allow file-read* (subpath"]);
        assert_eq!(Seatbelt::new(&policy(Profile::FullAccess), &places()), None);
    }

    #[test]
    fn rules_of_the_network_depend_on_its_mode() {
        let without_proxy = MacPaths { proxy: None, ..places() };
        let hosts = Policy { hosts: Some(vec!["example.com".into()]), ..Policy::default() };
        for (policy, places) in [(Policy::default(), &places()), (hosts.clone(), &without_proxy)] {
            let text = Seatbelt::new(&policy, places).unwrap().text;
            assert!(!text.contains("network") && !text.contains("system-socket"), "{text}");
        }
        let text = Seatbelt::new(&hosts, &places()).unwrap().text;
        let lines: Vec<_> = text.lines().filter(|line| line.contains("network")).collect();
        assert_eq!(lines, ["(allow network-outbound (remote tcp4 \"localhost:61234\"))"]);
        let on = Policy { network: true, ..Policy::default() };
        assert!(Seatbelt::new(&on, &places()).unwrap().text.contains("(allow network*)"));
    }

    #[test]
    fn the_state_is_hidden_but_for_the_run_directory() {
        let profile = Seatbelt::new(&Policy::default(), &places()).unwrap();
        assert_eq!(rules(&profile, "/Users/u/state"), ["(deny file-read* file-write* (subpath"]);
        let run = rules(&profile, "/Users/u/state/run/s1");
        assert_eq!(
            run,
            ["(allow file-read* file-write* (subpath", "(deny file-write-unlink (literal"]
        );
        let arguments = profile.arguments();
        assert_eq!(arguments.first().unwrap(), "-p");
        assert_eq!(arguments.last().unwrap(), "--");
        assert_eq!(arguments.len(), 3 + 2 * profile.parameters.len());
    }
}
