//! Tables of directories: toolchains in the home, package caches, and variables that name such directories elsewhere.
//! `host_facts` finds out which of them exist.
//!
//! A toolchain is visible if `PATH` contains a directory in it, or if its variable names it. Other directories of the
//! home stay invisible: a home is full of keys and tokens, and a table of safe directories stays correct longer than
//! a table of unsafe ones.

use std::path::Path;

/// A toolchain in the home directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Toolchain {
    /// The toolchain is visible if a directory of `PATH` is this one or inside it.
    pub(crate) root: &'static str,
    /// Paths that are then mounted read-only.
    pub(crate) shown: &'static [&'static str],
}

const fn whole(root: &'static str, shown: &'static [&'static str]) -> Toolchain {
    Toolchain { root, shown }
}

/// All known toolchains. A directory of `PATH` outside of them is mounted alone.
pub(crate) const TOOLCHAINS: &[Toolchain] = &[
    whole(".cargo", &[".cargo/bin", ".cargo/env", ".cargo/config.toml", ".rustup"]),
    whole(".rustup", &[".rustup"]),
    whole(".pyenv", &[".pyenv"]),
    whole(".rbenv", &[".rbenv"]),
    whole(".nodenv", &[".nodenv"]),
    whole(".goenv", &[".goenv"]),
    whole(".jenv", &[".jenv"]),
    whole(".asdf", &[".asdf", ".tool-versions"]),
    whole(".nvm", &[".nvm/versions", ".nvm/alias", ".nvm/nvm.sh"]),
    whole(".volta", &[".volta"]),
    whole(".fnm", &[".fnm"]),
    whole("n", &["n"]),
    whole(".npm-global", &[".npm-global/bin", ".npm-global/lib"]),
    whole(".bun", &[".bun/bin", ".bun/install/global"]),
    whole(".deno", &[".deno/bin"]),
    whole(".sdkman", &[".sdkman/candidates"]),
    whole(".ghcup", &[".ghcup"]),
    whole(".cabal", &[".cabal/bin"]),
    whole(".opam", &[".opam"]),
    whole(".elan", &[".elan"]),
    whole(".juliaup", &[".juliaup", ".julia/juliaup"]),
    whole(".dotnet", &[".dotnet"]),
    whole(".poetry", &[".poetry"]),
    whole(".swiftly", &[".swiftly"]),
    whole(".local/share/swiftly", &[".local/share/swiftly"]),
    whole("go", &["go/bin"]),
    whole("sdk", &["sdk"]),
    whole("miniconda3", &["miniconda3"]),
    whole("anaconda3", &["anaconda3"]),
    whole("miniforge3", &["miniforge3"]),
    whole("mambaforge", &["mambaforge"]),
    whole(".local/share/mise", &[".local/share/mise"]),
    whole(".local/share/pnpm", &[".local/share/pnpm"]),
    whole(".local/share/fnm", &[".local/share/fnm"]),
    whole(".nix-profile", &[".nix-profile", ".local/state/nix/profiles"]),
    whole(
        ".local/bin",
        &[
            ".local/bin",
            ".local/lib",
            ".local/pipx",
            ".local/share/claude",
            ".local/share/cursor-agent",
            ".local/share/pipx",
            ".local/share/uv",
            ".local/share/mise",
            ".local/share/fnm",
            ".local/share/pnpm",
        ],
    ),
];

/// Returns true if a path in the home is in a known toolchain.
pub(crate) fn is_toolchain(beneath_home: &Path) -> bool {
    TOOLCHAINS.iter().any(|toolchain| beneath_home.starts_with(toolchain.root))
}

/// A variable that names a directory of a toolchain, or a list of such directories.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    /// Names of the variable. All are read.
    pub(crate) names: &'static [&'static str],
    /// Parts of the directory that are mounted read-only. An empty path is the whole directory.
    pub(crate) shown: &'static [&'static str],
    /// Package caches in the directory. An empty path is the directory itself.
    pub(crate) caches: &'static [&'static str],
}

const fn named(
    names: &'static [&'static str],
    shown: &'static [&'static str],
    caches: &'static [&'static str],
) -> Variable {
    Variable { names, shown, caches }
}

/// All variables that are used. The supervisor passes them to commands.
pub(crate) const VARIABLES: &[Variable] = &[
    named(&["CARGO_HOME"], &["bin", "env", "config.toml"], &["registry", "git"]),
    named(&["GOPATH"], &["bin"], &["pkg/mod"]),
    named(&["NVM_DIR"], &["versions", "alias", "nvm.sh"], &[]),
    named(&["SDKMAN_DIR"], &["candidates"], &[]),
    named(&["DENO_INSTALL"], &["bin"], &[]),
    named(&["BUN_INSTALL"], &["bin", "install/global"], &["install/cache"]),
    named(&["npm_config_prefix", "NPM_CONFIG_PREFIX", "N_PREFIX"], &["bin", "lib", "n"], &[]),
    named(&["npm_config_cache", "NPM_CONFIG_CACHE"], &[], &["_cacache"]),
    named(&["GRADLE_USER_HOME"], &[], &["caches", "wrapper"]),
    named(
        &[
            "RUSTUP_HOME",
            "GOROOT",
            "PYENV_ROOT",
            "RBENV_ROOT",
            "NODENV_ROOT",
            "GOENV_ROOT",
            "VOLTA_HOME",
            "ASDF_DIR",
            "ASDF_DATA_DIR",
            "FNM_DIR",
            "MISE_DATA_DIR",
            "PNPM_HOME",
            "JAVA_HOME",
            "MAVEN_HOME",
            "DOTNET_ROOT",
            "ELAN_HOME",
            "OPAMROOT",
            "ANDROID_HOME",
        ],
        &[""],
        &[],
    ),
    named(
        &[
            "GOMODCACHE",
            "GOCACHE",
            "DENO_DIR",
            "PIP_CACHE_DIR",
            "UV_CACHE_DIR",
            "YARN_CACHE_FOLDER",
            "PLAYWRIGHT_BROWSERS_PATH",
        ],
        &[],
        &[""],
    ),
];

/// Package caches. Commands read the user's files, and their changes go to a layer of the workspace, or of the worker.
pub(crate) const CACHES: &[&str] = &[
    ".cargo/registry",
    ".cargo/git",
    ".npm/_cacache",
    ".cache/pip",
    ".cache/uv",
    ".cache/go-build",
    "go/pkg/mod",
    ".cache/yarn",
    ".yarn/berry/cache",
    ".cache/pnpm",
    ".local/share/pnpm/store",
    ".cache/node",
    ".cache/node-gyp",
    ".cache/deno",
    ".bun/install/cache",
    ".m2/repository",
    ".gradle/caches",
    ".gradle/wrapper",
    ".nuget/packages",
    ".pub-cache/hosted",
    ".cache/ms-playwright",
];

/// Files that contain tokens. Never mounted, and covered at the top of a toolchain.
pub(crate) const CREDENTIALS: &[&str] = &[
    "credentials",
    "credentials.toml",
    ".credentials.toml",
    ".npmrc",
    ".netrc",
    ".pypirc",
    ".condarc",
    ".yarnrc.yml",
    "auth.json",
    "token",
];

/// Covered files and directories of `/etc` and `/usr`: passwords, keys and rules that user 0 could read.
pub(crate) const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security/opasswd",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ipsec.secrets",
    "/etc/ipsec.d",
    "/etc/ppp",
    "/etc/NetworkManager/system-connections",
    "/etc/netplan",
    "/etc/wpa_supplicant",
    "/etc/letsencrypt",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/etc/crypttab",
    "/etc/exports",
    "/etc/samba",
    "/etc/mysql/debian.cnf",
    "/etc/aliases.db",
    "/etc/postgresql",
    "/etc/redis",
    "/etc/postfix/sasl_passwd",
    "/etc/exim4/passwd.client",
    "/etc/bind/rndc.key",
    "/etc/rsyncd.secrets",
    "/etc/msmtprc",
];

/// Directories at the root of the file system with programs and their settings.
pub(crate) const SYSTEM_DIRECTORIES: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    "/nix",
    "/gnu",
    "/snap",
    "/home/linuxbrew/.linuxbrew",
    "/run/current-system",
];
