//! Parses the units like systemd, by systemd.syntax(7), systemd.exec(5) and glob(7).

use super::*;
use crate::description::tests::service;
use proptest::prelude::*;
use std::path::Path;

fn value<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn every_value_is_written_so_that_it_is_read_as_it_was() {
    let unit = service_unit(&service());
    assert_eq!(value(&unit, "ExecStart"), ["\"/opt/my tools/quack\" daemon --service systemd"]);
    assert_eq!(
        value(&unit, "Environment"),
        [
            "\"RUBBER_DUCK_APP_SUPPORT=/home/u/a 100%% \\\"state\\\"\"",
            "\"QUACKD_CONFIG=/home/u/$HOME/quackd.toml\"",
        ]
    );
    assert_eq!(
        value(&socket_unit(&service()), "ListenStream"),
        ["/home/u/a 100%% \"state\"/daemon.sock"]
    );
    let variables = value(&unit, "EnvironmentFile");
    assert_eq!(variables, ["-/home/u/a 100%% \"state\"/service.env"]);
    assert_eq!(pattern(r"/a [b]*?\c %d"), r"/a \[b]\*\?\\c %%d");
    assert_eq!(word("/opt/$x y"), "\"/opt/$$x y\"");
    assert_eq!(plain_or_quoted("/opt/$x y"), "\"/opt/$x y\"");
    assert!(!unit.contains("secret"), "{unit}");
}

/// Parses a pattern like systemd: specifiers first, then glob(3).
fn read_pattern(text: &str) -> Option<String> {
    let text = read_specifiers(text)?;
    let (mut read, mut left) = (String::new(), text.chars());
    while let Some(c) = left.next() {
        match c {
            '\\' => read.push(left.next()?),
            '*' | '?' | '[' => return None,
            c => read.push(c),
        }
    }
    Some(read)
}

/// Splits a list of words like systemd: quotes and C escapes first, then specifiers.
fn read_words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut left) = (Vec::new(), line.chars().peekable());
    loop {
        while left.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        if left.peek().is_none() {
            return Some(words);
        }
        let (mut word, mut quote) = (String::new(), None);
        loop {
            match (left.next(), quote) {
                (None, None) => break,
                (None, Some(_)) => return None,
                (Some(c), None) if c.is_ascii_whitespace() => break,
                (Some(c @ ('"' | '\'')), None) => quote = Some(c),
                (Some(c), Some(open)) if c == open => quote = None,
                (Some('\\'), _) => match left.next()? {
                    c @ ('\\' | '"' | '\'') => word.push(c),
                    // A newline, a number, or invalid. The units contain none of them.
                    _ => return None,
                },
                (Some(c), _) => word.push(c),
            }
        }
        words.push(read_specifiers(&word)?);
    }
}

/// The units use only the specifier `%%`.
fn read_specifiers(text: &str) -> Option<String> {
    let (mut read, mut left) = (String::new(), text.chars());
    while let Some(c) = left.next() {
        if c == '%' && left.next() != Some('%') {
            return None;
        }
        read.push(c);
    }
    Some(read)
}

/// Expands variables of a command line like systemd.
fn read_variables(word: &str) -> Option<String> {
    let (mut read, mut left) = (String::new(), word.chars());
    while let Some(c) = left.next() {
        if c == '$' && left.next() != Some('$') {
            return None;
        }
        read.push(c);
    }
    Some(read)
}

proptest! {
    /// systemd reads back every path, and the path adds no line to the unit.
    #[test]
    fn no_character_of_a_path_means_anything_to_systemd(
        state in r#"/([a z/"'\\%$#;*?\[\]{}~&<>!@=é🦆-]|[^\p{Cc}]){0,24}"#,
        program in r#"/([a z/"'\\%$#;*?\[\]{}~&<>!@=é🦆-]|[^\p{Cc}]){0,24}"#,
    ) {
        let variable = |name: &str| match name {
            "RUBBER_DUCK_APP_SUPPORT" | "QUACKD_CONFIG" => Some(state.as_str().into()),
            _ => None,
        };
        let socket = format!("{state}/daemon.sock");
        let (program, socket) = (Path::new(&program), Path::new(&socket));
        let made = Service::new(program, Path::new(&state), socket, false, &variable);
        let service = made.unwrap();
        let unit = service_unit(&service);
        prop_assert_eq!(unit.lines().count(), service_unit(&plain(&service)).lines().count());
        let [command] = value(&unit, "ExecStart")[..] else { panic!("{unit}") };
        let words = read_words(command);
        let wanted = ["daemon", "--service", "systemd"].map(str::to_owned);
        let (first, rest) = words.as_ref().and_then(|words| words.split_first()).unwrap();
        prop_assert_eq!((Path::new(first), rest), (program, &wanted[..]));
        let trimmed = state.trim();
        for (line, name) in
            value(&unit, "Environment").iter().zip(["RUBBER_DUCK_APP_SUPPORT", "QUACKD_CONFIG"])
        {
            prop_assert_eq!(read_words(line), Some(vec![format!("{name}={trimmed}")]));
        }
        let [file] = value(&unit, "EnvironmentFile")[..] else { panic!("{unit}") };
        let file = file.strip_prefix('-').and_then(read_pattern);
        prop_assert_eq!(file, Some(format!("{state}/service.env")));
        let unit = socket_unit(&service);
        let [listen] = value(&unit, "ListenStream")[..] else { panic!("{unit}") };
        let listen = read_specifiers(listen);
        prop_assert_eq!(listen.as_deref(), socket.to_str());
        // Words after the first one may contain variables, too.
        let read = read_words(&word(&state)).unwrap();
        prop_assert_eq!(read_variables(&read[0]), Some(state));
    }
}

/// Like [`service`], without values that need escaping.
fn plain(service: &Service) -> Service {
    let environment = service.environment.iter().map(|(name, _)| (name.clone(), "/x".into()));
    Service {
        program: "/x".into(),
        socket: "/x".into(),
        state_dir: "/x".into(),
        environment: environment.collect(),
    }
}

#[test]
fn the_unit_says_what_it_must() {
    let unit = service_unit(&service());
    for (key, wanted) in [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("WatchdogSec", "30"),
        ("Restart", "on-failure"),
        ("RestartForceExitStatus", "75"),
        ("RestartPreventExitStatus", "0 78"),
        ("KillMode", "mixed"),
        ("TimeoutStopSec", "20"),
        ("OOMPolicy", "continue"),
        ("Delegate", "yes"),
        ("LimitNOFILE", "524288"),
        ("WantedBy", "default.target"),
    ] {
        assert_eq!(value(&unit, key), [wanted], "{key}");
    }
    let socket = socket_unit(&service());
    for (key, wanted) in
        [("SocketMode", "0600"), ("DirectoryMode", "0700"), ("FileDescriptorName", "quackd")]
    {
        assert_eq!(value(&socket, key), [wanted], "{key}");
    }
    // Settings that would prevent workers from confining themselves, or affect files in workspaces.
    for unwanted in
        ["NoNewPrivileges", "Restrict", "Protect", "PrivateUsers", "SystemCall", "UMask"]
    {
        let is_set = |line: &str| line.starts_with(unwanted) && !line.starts_with("RestartP");
        assert!(!unit.lines().any(is_set), "{unwanted}");
    }
}
