//! Tier D: Landlock and the filter of system calls without namespaces. Never as root.

use crate::world::{CANARY, World};
use quackd_protocol::policy::Profile;

type Case = fn(&World);

pub(crate) const ALL: &[(&str, Case)] = &[
    ("alone_root_is_refused", root_is_refused),
    ("alone_files_outside_stay_closed", files_outside),
    ("alone_no_repository_can_be_written", repositories),
    ("alone_there_are_no_sockets", sockets),
    ("alone_read_only_changes_nothing", read_only),
];

fn alone(world: &World) -> Option<World> {
    let mut world = World::new(world.user);
    world.alone = true;
    (world.user.id != 0).then_some(world)
}

fn root_is_refused(world: &World) {
    if world.user.id != 0 {
        return;
    }
    let mut world = World::new(world.user);
    world.alone = true;
    let ran = world.inside("true");
    assert_eq!(ran.code, Some(71));
    assert!(ran.output.contains("does not hold user 0"), "{}", ran.output);
}

fn files_outside(world: &World) {
    let Some(world) = alone(world) else { return };
    let root = world.root.path().display().to_string();
    let ran = world.inside(&format!(
        "cat notes.txt; echo x > new.txt && mkdir d && echo y > d/f && mv d/f f2 && cat f2
         cat {root}/other/secret {root}/home/.ssh/id_ed25519 {root}/state/state.json /proc/1/environ
         echo x > {root}/other/x; echo x > /tmp/alone-x; ls {root} $HOME; kill -0 1; kill -9 {}
         echo s > $TMPDIR/spill; true",
        std::process::id()
    ));
    let output = ran.ok();
    assert!(output.contains("hello notes") && output.contains("\ny\n"), "{output}");
    assert!(!output.contains(CANARY) && !output.contains(".ssh\n"), "{output}");
    assert!(!world.at("other/x").exists() && !std::path::Path::new("/tmp/alone-x").exists());
    assert_eq!(std::fs::read_to_string(world.at("state/run/s1/spill")).unwrap(), "s\n");
}

fn repositories(world: &World) {
    let Some(world) = alone(world) else { return };
    world
        .outside("git init -q . && git add . && git commit -qm first && mkdir -p src a/b && git init -q a/b/lib")
        .ok();
    let ran = world.inside(
        "git log --format=%s; echo x > src/new && echo more >> notes.txt && echo WRITTEN
         echo x > .git/hooks/post-commit && echo BAD; echo x >> .git/config && echo BAD
         mv .git x && echo BAD; rm -rf .git && echo BAD; echo x > a/b/lib/.git/hooks/h && echo BAD
         mv a x && echo BAD; mkdir src/.git && echo x > top && echo BAD; git commit -qam y && echo BAD; true",
    );
    let output = ran.ok();
    assert!(
        output.contains("first") && output.contains("WRITTEN") && !output.contains("BAD"),
        "{output}"
    );
    assert!(world.at("ws/.git/HEAD").exists());
}

fn sockets(world: &World) {
    let Some(world) = alone(world) else { return };
    let ran = world.inside(
        "perl -MSocket -e 'for my $f (AF_INET, AF_INET6, AF_UNIX) { print socket(my $s, $f, SOCK_STREAM, 0) ? \"BAD\" : \"no \" }
           for my $t (SOCK_STREAM, SOCK_DGRAM) { print socketpair(my $a, my $b, AF_UNIX, $t, 0) ? \"pair \" : \"none \" }'",
    );
    // The end of a pair of datagram sockets could send to any named one.
    assert_eq!(ran.ok(), "no no no pair none ");
}

fn read_only(world: &World) {
    let Some(mut world) = alone(world) else { return };
    world.policy.profile = Profile::ReadOnly;
    let ran = world.inside("cat notes.txt; echo x > new; echo x >> notes.txt; rm notes.txt; true");
    assert!(ran.ok().starts_with("hello notes\n"), "{}", ran.output);
    assert_eq!(std::fs::read_to_string(world.at("ws/notes.txt")).unwrap(), "hello notes\n");
    assert!(!world.at("ws/new").exists());
}
