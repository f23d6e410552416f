//! Tests explanations of paths in fictitious sessions. Tests with real workers and mounts are elsewhere.

use super::*;
use quackd_protocol::policy::Policy;
use quackd_sandbox::git::GitDirectories;
use quackd_sandbox::{MacPaths, Seatbelt};
use quackd_testkit::TestDir;

struct World {
    tree: TestDir,
    policy: Policy,
    tier: Tier,
    is_confined: bool,
}

impl World {
    fn new(profile: Profile, tier: Tier) -> Self {
        let tree = TestDir::with(&["ws/.git", "ws/src", "beside", "run"]);
        let policy = Policy { profile, ..Policy::default() };
        Self { tree, policy, tier, is_confined: profile != Profile::FullAccess }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tree.join(path)
    }

    fn ask(&self, target: &str) -> ExplainPath {
        let confinement = Confinement::new(self.policy.clone(), self.is_confined, String::new());
        let question = PathQuery {
            confinement: Arc::new(confinement.with_profile(self.profile())),
            tier: Some(self.tier),
            run_dir: self.at("run"),
            target: target.to_owned(),
        };
        question.answer_blocking(&Root::open(&self.at("ws")).unwrap())
    }

    /// The profile of tier M. The home has the workspace.
    fn profile(&self) -> Option<Seatbelt> {
        let places = MacPaths {
            workspace: self.at("ws"),
            run_dir: self.at("run"),
            state_dir: self.at("state"),
            home: self.at(""),
            temporary: self.at("run/tmp"),
            toolchains: vec![self.at("tools")],
            git: GitDirectories {
                repositories: vec![self.at("ws/.git")],
                ..GitDirectories::default()
            },
            pins: Vec::new(),
            original: None,
            objects: None,
            proxy: None,
        };
        Seatbelt::new(&self.policy, &places).filter(|_| self.tier == Tier::M)
    }

    fn access(&self, target: &str) -> PathAccess {
        self.ask(target).access
    }
}

#[test]
fn the_workspace_is_written_but_for_what_is_protected() {
    let mut world = World::new(Profile::WorkspaceWrite, Tier::D);
    let beside = world.at("beside");
    world.policy.writable_roots = vec![beside.clone()];
    assert_eq!(world.access("src/new.rs"), PathAccess::ReadWrite);
    assert_eq!(world.access("."), PathAccess::ReadWrite);
    assert_eq!(world.access(".envrc"), PathAccess::Protected);
    assert_eq!(world.access("a/../.git/hooks/pre-commit"), PathAccess::ReadOnly);
    assert_eq!(world.access(".git/index"), PathAccess::ReadOnly);
    assert_eq!(world.access(&beside.join("x").display().to_string()), PathAccess::ReadWrite);
    assert_eq!(world.access("../run/bash-1.log"), PathAccess::ReadWrite);
    assert_eq!(world.access("../nothing"), PathAccess::Missing);
    let envrc = world.ask(".envrc");
    assert!(envrc.why.contains("is run when a shell or a tool starts"), "{envrc:?}");
}

#[test]
fn the_profile_of_macos_decides_what_is_read() {
    let mut world = World::new(Profile::WorkspaceWrite, Tier::M);
    world.policy.writable_roots = vec![world.at("beside")];
    for file in [".ssh/key", "beside/x", "notes", "state/keys.json", "tools/cc", "ws/src/a"] {
        world.tree.write(file, "");
    }
    for (path, access) in [
        ("src/a", PathAccess::ReadWrite),
        (".git/config", PathAccess::ReadOnly),
        ("../beside/x", PathAccess::ReadWrite),
        ("../run/tmp/x", PathAccess::ReadWrite),
        ("../tools/cc", PathAccess::ReadOnly),
        ("../tools/missing", PathAccess::Missing),
        ("../notes", PathAccess::NotReadable),
        ("../state/keys.json", PathAccess::NotReadable),
        ("../.ssh/key", PathAccess::NotReadable),
    ] {
        assert_eq!(world.access(path), access, "{path}");
    }
    let key = world.ask("../.ssh/key");
    assert_eq!(key.change.as_deref(), Some("only quack sandbox set full-access"), "{key:?}");
}

#[test]
fn a_link_is_told_by_where_it_leads() {
    let world = World::new(Profile::WorkspaceWrite, Tier::D);
    std::os::unix::fs::symlink(".git", world.at("ws/link")).unwrap();
    let found = world.ask("link/hooks/x");
    assert_eq!(found.access, PathAccess::ReadOnly);
    assert_eq!(found.leads_to, Some(world.at("ws/.git/hooks/x").display().to_string()));
}

#[test]
fn what_is_hidden_is_told_before_anything_else() {
    let mut world = World::new(Profile::WorkspaceWrite, Tier::B);
    world.policy.hidden = vec![world.at("ws/src")];
    let found = world.ask("src/main.rs");
    assert_eq!(found.access, PathAccess::Hidden);
    assert!(found.why.contains("ws/src"), "{found:?}");
}

#[test]
fn read_only_is_read_only_everywhere() {
    let mut world = World::new(Profile::ReadOnly, Tier::D);
    world.policy.writable_roots = vec![world.at("beside")];
    for path in ["src", ".envrc", "../beside/x"] {
        let found = world.ask(path);
        assert_eq!(found.access, PathAccess::ReadOnly, "{path}");
        assert!(found.change.unwrap().contains("workspace-write"));
    }
}

#[test]
fn without_confinement_it_is_said() {
    let full = World::new(Profile::FullAccess, Tier::Unconfined);
    assert_eq!(full.access(".envrc"), PathAccess::Missing);
    assert_eq!(full.access("src"), PathAccess::ReadWrite);
    let mut none = World::new(Profile::WorkspaceWrite, Tier::Unconfined);
    none.is_confined = false;
    assert_eq!(none.access("src"), PathAccess::ReadOnly);
    assert_eq!(none.access("../beside"), PathAccess::NotReadable);
}

#[test]
fn the_text_says_what_why_and_how() {
    let world = World::new(Profile::WorkspaceWrite, Tier::D);
    let report = ExplainReport {
        profile: Some(Profile::WorkspaceWrite),
        tier: Some(Tier::D),
        path: Some(world.ask(".envrc")),
        ..ExplainReport::default()
    };
    let text = text(&report);
    assert!(
        text.contains("ws/.envrc: read, and written by commands only\nwhy: it is a protected name")
    );
    assert!(text.ends_with(
        "to change it: write it by hand\n(workspace-write, network off, partly confined)"
    ));
}
