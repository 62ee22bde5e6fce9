//! Builds follow Cargo.lock, and no crate is published by mistake.

use std::{fs, path::Path};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Returns the cargo commands of a script or Makefile, one per line, without lines that only print text.
fn cargo_commands(text: &str) -> Vec<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#') && !line.contains("## ") && !line.starts_with("say "))
        .filter(|line| {
            ["build", "zigbuild", "deb", "clippy", "nextest", "test", "install", "deny", "run"]
                .iter()
                .any(|verb| line.contains(&format!("cargo {verb} ")))
        })
        .collect()
}

// Fault S19
#[test]
fn every_build_keeps_to_the_lock_file() {
    let mut found = 0;
    for file in
        ["Makefile", ".ci/run", "scripts/setup", "scripts/check-deps", "scripts/release", "scripts/sbom", "README.md"]
    {
        let text = read(file);
        for command in cargo_commands(&text) {
            found += 1;
            assert!(command.contains("--locked"), "{file}: `{command}` may change Cargo.lock; add --locked");
        }
    }
    assert!(found >= 10, "only {found} commands found: does this test still read them?");
}

// Fault S19
#[test]
fn no_crate_can_be_published() {
    let cargo = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() >= 5, "{packages:?}");
    for package in packages {
        let name = &package["name"];
        assert_eq!(package["publish"], Value::Array(Vec::new()), "{name}: publish.workspace = true is missing");
    }
}

// Fault S19
#[test]
fn dependencies_use_one_registry_and_permissive_licences() {
    let rules: toml::Table = read("deny.toml").parse().unwrap();
    assert_eq!(rules["sources"]["unknown-registry"].as_str(), Some("deny"));
    assert_eq!(rules["sources"]["unknown-git"].as_str(), Some("deny"));
    let licences: Vec<_> = rules["licenses"]["allow"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    assert!(!licences.iter().any(|l| l.contains("GPL")), "{licences:?}");
    let lock: toml::Table = read("Cargo.lock").parse().unwrap();
    for package in lock["package"].as_array().unwrap() {
        let source = package.get("source").and_then(|s| s.as_str());
        assert!(source.is_none_or(|s| s.starts_with("registry+")), "{package}");
    }
    for script in [".ci/run", "Makefile"] {
        assert!(read(script).contains("make deps") || read(script).contains("scripts/check-deps"), "{script}");
    }
}

// Fault S19
#[test]
fn make_builds_and_runs_in_the_same_directory() {
    for (variable, expected) in [(None, "target"), (Some("/elsewhere"), "/elsewhere")] {
        let mut make = std::process::Command::new("make");
        make.args(["--dry-run", "demo", "bench"]).current_dir(ROOT);
        make.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_BUILD_TARGET_DIR");
        if let Some(dir) = variable {
            make.env("CARGO_TARGET_DIR", dir);
        }
        let printed = String::from_utf8(make.output().unwrap().stdout).unwrap();
        for program in
            ["debug/dispatchq replay", "release/dispatchq bench", "release/bench-peers ", "release/queue-storage\n"]
        {
            assert!(printed.contains(&format!("{expected}/{program}")), "{variable:?}: {printed}");
        }
    }
}
