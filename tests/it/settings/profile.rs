//! deploy/profile-support: three secrets are enough for alerts that reach people.

use std::{fs, path::Path};

use crate::support::run_binary;

const SECRETS: [(&str, &str); 3] = [
    ("slack_url", "https://hooks.example.com/services/T1"),
    ("smtp_password", "a password"),
    ("ticket_token", "a token"),
];

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/profile-support");
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn support_profile_needs_three_secrets_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = dir.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    let config = read("config.toml").replace("/run/secrets", secrets.to_str().unwrap());
    fs::write(dir.path().join("config.toml"), config).unwrap();
    for (name, value) in SECRETS {
        fs::write(secrets.join(name), value).unwrap();
    }
    let accepted = run_binary(dir.path(), &["config", "check"], &[]);
    assert_eq!((accepted.code, accepted.stderr.as_str()), (Some(0), ""), "{accepted:?}");
    for (name, value) in SECRETS {
        fs::remove_file(secrets.join(name)).unwrap();
        let refused = run_binary(dir.path(), &["config", "check"], &[]);
        assert!(refused.code == Some(1) && refused.stderr.contains(name), "{name}: {refused:?}");
        fs::write(secrets.join(name), value).unwrap();
    }
}

#[test]
fn support_profile_is_the_same_in_the_chart() {
    let (config, values) = (read("config.toml"), read("values.yaml"));
    let (_, sections) = config.split_once("\n\n").unwrap();
    let indented: String =
        sections.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect();
    assert!(values.contains(&indented), "values.yaml lacks the sections of config.toml:\n{indented}");
    for (secret, _) in SECRETS {
        assert!(config.contains(&format!("\"/run/secrets/{secret}\"")), "{secret}");
        assert!(values.contains(&format!("existingSecret: dispatchq-support, key: {secret} }}")), "{secret}");
    }
}
