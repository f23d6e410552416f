//! Answers of every released daemon are read by the types of today: a client is upgraded before the daemon that
//! runs.

#[cfg(test)]
mod tests {
    use quackd_protocol::client::{
        AttachData, DoctorData, PingData, PsData, SessionsData, StateData, WorkspacesData,
    };
    use serde::de::DeserializeOwned;
    use serde_json::Value;
    use std::path::Path;

    fn read<T: DeserializeOwned>(data: &Value) -> Result<(), serde_json::Error> {
        T::deserialize(data).map(drop)
    }

    #[test]
    fn what_a_daemon_of_every_release_answers_is_understood() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/wire");
        let mut answers = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let answer: Value = serde_json::from_str(line).unwrap();
                let (method, data) = (answer["method"].as_str().unwrap(), &answer["data"]);
                let understood = match method {
                    "ping" => read::<PingData>(data),
                    "attach" => read::<AttachData>(data),
                    "sessions" => read::<SessionsData>(data),
                    "workspaces" => read::<WorkspacesData>(data),
                    "get_state" => read::<StateData>(data),
                    "quack.ps" => read::<PsData>(data),
                    "doctor" => read::<DoctorData>(data),
                    other => panic!("{other} has no type here"),
                };
                assert!(understood.is_ok(), "{}: {method}: {understood:?}", path.display());
                answers += 1;
            }
        }
        assert!(7 <= answers, "the fixtures were not found");
    }
}
