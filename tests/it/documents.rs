//! Pages that list something are compared with what they list.

use std::{collections::BTreeSet, fs, path::Path};

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The texts in quotes of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

#[test]
fn every_redis_key_is_on_its_page() {
    let page = read("docs/REDIS.md");
    let mut keys = BTreeSet::new();
    for line in read("workers/src/keys.rs").lines().filter(|line| line.contains("self.key(")) {
        keys.extend(quoted(line).map(|name| format!("`{{dq:0}}:{name}`")));
    }
    for line in read("crates/dispatch/src/redis_keys.rs").lines().filter(|line| !line.trim_start().starts_with("//")) {
        let names = quoted(line).filter(|name| !name.ends_with('*'));
        keys.extend(names.map(|name| {
            let name = name.replace("{DRIVERS_TRUSTED}", "dispatchq:drivers");
            format!("`{}`", name.strip_suffix("{}").map_or(name.clone(), |start| format!("{start}{{uuid}}")))
        }));
    }
    assert!(keys.len() > 25, "only {} keys were found: does this test still read them?", keys.len());
    let missing: Vec<_> = keys.iter().filter(|key| !page.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "docs/REDIS.md does not name {missing:?}");
}

#[test]
fn every_migration_is_on_its_page() {
    let page = read("migrations/README.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".sql") {
            assert!(page.contains(&format!("`{name}`")), "migrations/README.md does not name {name}");
        }
    }
}

#[test]
fn links_between_pages_lead_to_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["", "docs", "docs/decisions", "jobs", "workers", "migrations", "deploy"];
    let mut found = 0;
    for folder in pages.map(|folder| root.join(folder)).iter().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder).unwrap() {
            let page = entry.unwrap().path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&page).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = link.split('#').next().unwrap_or_default();
                if path.is_empty() || path.contains("://") {
                    continue;
                }
                found += 1;
                assert!(folder.join(path).exists(), "{} links to {path}, which is not there", page.display());
            }
        }
    }
    assert!(found > 50, "only {found} links were found");
}
