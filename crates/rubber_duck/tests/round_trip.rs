//! A save and a load return the same content, including unknown keys.

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quackd_protocol::metadata::{Metadata, Session, Workspace};
    use quackd_protocol::policy::{NetworkMode, PolicyPatch};
    use quackd_protocol::state::{
        DaemonState, FoundHost, FoundPreset, SessionState, TerminalProgram, WorkspaceState,
    };
    use quackd_rubber_duck::{Paths, open_blocking};
    use quackd_store::{Origin, Snapshot, StateFile, load_blocking};
    use serde_json::{Map, Value};

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Unknown keys.
    fn other() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::btree_map("x[a-z]{0,4}", value(), 0..3)
            .prop_map(|map| map.into_iter().collect())
    }

    prop_compose! {
        fn workspace()(path in any::<String>(), last in any::<Option<String>>(), other in other()) -> Workspace {
            Workspace {
                id: "set below".into(),
                path,
                created_at: String::new(),
                last_active_session_id: last.as_deref().map(Into::into),
                other,
            }
        }
    }

    prop_compose! {
        fn session()(name in any::<String>(), voice in any::<bool>(), other in other()) -> Session {
            Session {
                id: "set below".into(),
                workspace_id: "w0".into(),
                name,
                pi_session_file: String::new(),
                created_at: String::new(),
                last_active_at: String::new(),
                is_voice_active: voice,
                other,
            }
        }
    }

    prop_compose! {
        fn metadata()(
            mut workspaces in prop::collection::vec(workspace(), 0..4),
            mut sessions in prop::collection::vec(session(), 0..4),
            active in any::<Option<String>>(),
            other in other(),
        ) -> Metadata {
            for (n, workspace) in workspaces.iter_mut().enumerate() {
                workspace.id = format!("w{n}").as_str().into();
            }
            for (n, session) in sessions.iter_mut().enumerate() {
                session.id = format!("s{n}").as_str().into();
            }
            let active_voice_session_id = active.as_deref().map(Into::into);
            Metadata {
                workspaces: workspaces.into_iter().map(Into::into).collect(),
                sessions: sessions.into_iter().map(Into::into).collect(),
                active_voice_session_id,
                other,
                ..Metadata::default()
            }
        }
    }

    prop_compose! {
        fn entry()(
            (safe_mode, pinned) in any::<(bool, bool)>(),
            (network, engine) in any::<(Option<bool>, Option<String>)>(),
            (model, label) in any::<(Option<String>, Option<String>)>(),
            restarts in any::<u64>(),
            other in other(),
        ) -> SessionState {
            let network = network.map(|is_on| if is_on { NetworkMode::On } else { NetworkMode::Hosts });
            let policy = PolicyPatch { network, ..PolicyPatch::default() };
            let grants = Vec::new();
            SessionState {
                isolated: Some(quackd_protocol::isolate::CopiedTree { files: 3, ..Default::default() }),
                created: Some("pod-1".to_owned()),
                safe_mode, policy, grants, engine, model, client: None, restarts, label, pinned, other,
                programs: vec![TerminalProgram { terminal_id: "term-1".to_owned(), command: "vi".to_owned() }],
            }
        }
    }

    prop_compose! {
        fn found_preset()(
            at in any::<String>(),
            hosts in prop::collection::vec(any::<(String, String)>(), 0..3),
        ) -> FoundPreset {
            let hosts = hosts.into_iter().map(|(rule, source)| FoundHost { rule, source });
            FoundPreset { at, hosts: hosts.collect() }
        }
    }

    prop_compose! {
        fn state()(
            sessions in prop::collection::btree_map(any::<String>(), entry(), 0..4),
            workspaces in prop::collection::btree_map(any::<String>(), entry(), 0..4),
            presets in prop::collection::btree_map("[a-z]{1,8}", found_preset(), 0..3),
            other in other(),
        ) -> DaemonState {
            let workspace = |entry: SessionState| WorkspaceState { policy: entry.policy, grants: entry.grants, other: entry.other };
            let workspaces = workspaces.into_iter().map(|(id, entry)| (id.as_str().into(), workspace(entry)));
            let workspaces = workspaces.collect();
            let sessions = sessions.into_iter().map(|(id, entry)| (id.as_str().into(), entry));
            DaemonState { sessions: sessions.collect(), workspaces, presets, other, ..DaemonState::default() }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_saved_is_loaded(metadata in metadata(), state in state()) {
            let dir = tempfile::tempdir().unwrap();
            let paths = Paths {
                metadata: dir.path().join("metadata.json"),
                state: dir.path().join("quackd-state.json"),
            };
            let snapshot =
                Snapshot { metadata: metadata.clone().into(), state: state.clone().into() };
            open_blocking(paths.clone()).files.unwrap().save_blocking(&snapshot).unwrap();
            if metadata != Metadata::default() {
                let loaded = load_blocking::<Metadata>(&paths.metadata).unwrap();
                prop_assert_eq!(&loaded.document, &metadata);
                prop_assert_eq!((loaded.origin, loaded.duplicates), (Origin::File, Vec::new()));
            }
            let loaded = load_blocking::<StateFile>(&paths.state).unwrap();
            let wanted = StateFile { state, metadata: Some(metadata), earlier: quackd_store::Earlier::default(), is_settled: false };
            prop_assert_eq!(loaded.document, wanted);
            prop_assert_eq!((loaded.origin, loaded.duplicates), (Origin::File, Vec::new()));
        }
    }
}
