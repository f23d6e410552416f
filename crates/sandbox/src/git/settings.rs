//! Git settings that make git run a program, read more settings, or use hooks from another directory (git-config(1)).
//! Pure. Called by the audit, and by `config_paths` for the files that they name.
//!
//! Lists known dangerous settings only. A newer git may have more, which are not reported.

use crate::git_config::Entry;

/// Section and key of settings that count with any subsection.
const KEYS: &[(&str, &str)] = &[
    ("core", "hookspath"),
    ("core", "sshcommand"),
    ("core", "editor"),
    ("core", "pager"),
    ("core", "askpass"),
    ("core", "gitproxy"),
    ("core", "alternaterefscommand"),
    ("core", "attributesfile"),
    ("include", "path"),
    ("includeif", "path"),
    ("diff", "external"),
    ("diff", "command"),
    ("diff", "textconv"),
    ("difftool", "cmd"),
    ("difftool", "path"),
    ("merge", "driver"),
    ("mergetool", "cmd"),
    ("mergetool", "path"),
    ("filter", "clean"),
    ("filter", "smudge"),
    ("filter", "process"),
    ("credential", "helper"),
    ("remote", "vcs"),
    ("remote", "uploadpack"),
    ("remote", "receivepack"),
    ("uploadpack", "packobjectshook"),
    ("gpg", "program"),
    ("gpg", "defaultkeycommand"),
    ("sequence", "editor"),
    ("interactive", "difffilter"),
    ("browser", "cmd"),
    ("browser", "path"),
    ("man", "cmd"),
    ("man", "path"),
    ("guitool", "cmd"),
    ("tar", "command"),
    ("trailer", "command"),
    ("trailer", "cmd"),
    ("hook", "command"),
    ("imap", "tunnel"),
    ("sendemail", "smtpserver"),
    ("sendemail", "sendmailcmd"),
    ("sendemail", "tocmd"),
    ("sendemail", "cccmd"),
    ("sendemail", "headercmd"),
    ("init", "templatedir"),
    ("instaweb", "httpd"),
    ("svn-remote", "authorsprog"),
    ("svn", "authorsprog"),
];

/// Settings whose value is one path, not a command line.
const PATHS: [(&str, &str); 5] = [
    ("core", "hookspath"),
    ("core", "attributesfile"),
    ("include", "path"),
    ("includeif", "path"),
    ("init", "templatedir"),
];

/// Returns true if the value of a setting is one path. The values of the other settings are command lines.
pub(crate) fn is_path(entry: &Entry) -> bool {
    PATHS.contains(&(entry.section.as_str(), entry.key.as_str()))
}

/// Returns the setting's name as git writes it, if the setting is dangerous.
pub(crate) fn dangerous(entry: &Entry) -> Option<String> {
    let Entry { section, subsection, key, value } = entry;
    let (section, key) = (section.as_str(), key.as_str());
    let value = value.as_deref();

    let is = match (section, key) {
        // Boolean values enable a built-in feature. Other values name a program.
        ("core", "fsmonitor") => !is_switch(value),
        ("pager", _) => !is_switch(value),
        ("alias", _) => value.is_some_and(|value| value.trim_start().starts_with('!')),
        ("submodule", "update") => value.is_some_and(|value| value.starts_with('!')),
        ("remote", "url" | "pushurl") => value.is_some_and(is_helper),
        // The subsection is the address that replaces another one.
        ("url", "insteadof" | "pushinsteadof") => is_helper(subsection),
        ("protocol", "allow") => value != Some("never"),
        // Programs of git-lfs: `lfs.customtransfer.NAME.path` and `lfs.extension.NAME.clean`.
        ("lfs", "path" | "clean" | "smudge") => true,
        _ => KEYS.contains(&(section, key)),
    };

    // An empty value resets the list of helpers.
    let is_reset = key == "helper" && value == Some("");
    (is && !is_reset).then(|| name(section, subsection, key))
}

/// Returns true for `ext::sh -c …` and other addresses that name a remote helper program.
fn is_helper(address: &str) -> bool {
    address.split_once("::").is_some_and(|(helper, _)| {
        !helper.is_empty() && helper.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

fn is_switch(value: Option<&str>) -> bool {
    let Some(value) = value else { return true };
    let known = ["", "true", "yes", "on", "false", "no", "off"];
    known.iter().any(|known| known.eq_ignore_ascii_case(value)) || value.parse::<i64>().is_ok()
}

fn name(section: &str, subsection: &str, key: &str) -> String {
    // Spelling in git's documentation. Git ignores case.
    let key = match key {
        "hookspath" => "hooksPath",
        "sshcommand" => "sshCommand",
        "packobjectshook" => "packObjectsHook",
        other => other,
    };
    match subsection {
        "" => format!("{section}.{key}"),
        sub => format!("{section}.{sub}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_config::parse;

    fn found(text: &str) -> Vec<String> {
        parse(text).iter().filter_map(dangerous).collect()
    }

    #[test]
    fn settings_that_run_something_are_named() {
        let text = "[core]\nfsmonitor=evil\nhooksPath=x\nsshCommand=x\neditor=x\npager=x\n\
            [diff \"a\"]\ncommand=x\ntextconv=x\n[diff]\nexternal=x\n\
            [filter \"f\"]\nclean=x\nsmudge=x\nprocess=x\n[merge \"m\"]\ndriver=x\n\
            [credential]\nhelper=x\n[credential \"https://h\"]\nhelper=!x\n\
            [alias]\nst=!x\n[include]\npath=x\n[includeIf \"gitdir:y\"]\npath=x\n\
            [remote \"o\"]\nvcs=x\nuploadpack=x\nreceivepack=x\nurl=ext::sh -c x\n\
            [uploadpack]\npackObjectsHook=x\n[gpg]\nprogram=x\n[gpg \"ssh\"]\nprogram=x\n\
            [sequence]\neditor=x\n[pager]\nlog=x\n[submodule \"s\"]\nupdate=!x\n\
            [url \"ext::x\"]\ninsteadOf=https://h\n[protocol \"ext\"]\nallow=always\n";
        let expected = [
            "core.fsmonitor",
            "core.hooksPath",
            "core.sshCommand",
            "core.editor",
            "core.pager",
            "diff.a.command",
            "diff.a.textconv",
            "diff.external",
            "filter.f.clean",
            "filter.f.smudge",
            "filter.f.process",
            "merge.m.driver",
            "credential.helper",
            "credential.https://h.helper",
            "alias.st",
            "include.path",
            "includeif.gitdir:y.path",
            "remote.o.vcs",
            "remote.o.uploadpack",
            "remote.o.receivepack",
            "remote.o.url",
            "uploadpack.packObjectsHook",
            "gpg.program",
            "gpg.ssh.program",
            "sequence.editor",
            "pager.log",
            "submodule.s.update",
            "url.ext::x.insteadof",
            "protocol.ext.allow",
        ];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn ordinary_settings_are_not() {
        let text = "[core]\nrepositoryformatversion=0\nfilemode=true\nbare=false\nfsmonitor=true\n\
            [remote \"origin\"]\nurl=git@github.com:a/b.git\nfetch=+refs/heads/*:refs/x/*\n\
            [branch \"main\"]\nremote=origin\nmerge=refs/heads/main\n[alias]\nst=status\n\
            [user]\nname=a\n[pager]\nlog=false\n[credential]\nhelper=\n[submodule \"s\"]\nupdate=merge\n\
            [remote \"v6\"]\nurl=ssh://[::1]/x\n";
        assert_eq!(found(text), [""; 0]);
    }
}
