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
    for line in read("workers/src/keys.rs").lines().filter(|line| line.contains("self.full_key(")) {
        keys.extend(quoted(line).map(|name| format!("`{{dq:0}}:{name}`")));
    }
    let beside = read("crates/dispatch/src/redis_keys.rs");
    let beside = beside.split("#[cfg(test)]").next().unwrap_or_default();
    for line in beside.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let names = quoted(line).filter(|name| !name.ends_with('*'));
        keys.extend(names.map(|name| {
            let name = name.replace("{{", "{").replace("}}}", "}}");
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

/// The page of all settings, made of the comments of config.toml.
fn configuration_page(config: &str) -> String {
    let mut page = String::new();
    let mut section: Option<String> = None;
    let mut in_table = false;
    let blocks = config.split("\n\n").map(|block| block.lines().collect::<Vec<_>>());
    for block in blocks {
        let mut comment: Vec<&str> = Vec::new();
        for line in block {
            if let Some(text) = line.strip_prefix('#') {
                comment.push(text.strip_prefix(' ').unwrap_or(text));
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                page.push_str(&format!("\n## [{name}]\n\n"));
                if !comment.is_empty() {
                    page.push_str(&format!("{}\n\n", comment.join("\n")));
                }
                (section, in_table) = (Some(name.to_owned()), false);
            } else if let Some((key, value)) = line.split_once(" = ") {
                if !in_table {
                    page.push_str("| setting | default | meaning |\n|---|---|---|\n");
                    in_table = true;
                }
                let name = section.as_deref().unwrap_or_default();
                let meaning = if comment.is_empty() { "as the line above".to_owned() } else { comment.join(" ") };
                let meaning = meaning.replace('|', "\\|");
                page.push_str(&format!(
                    "| `{name}.{key}` | `{value}` | {meaning} |\n",
                    value = value.replace('|', "\\|")
                ));
            }
            comment.clear();
        }
        // What stands by itself: the head of the file, and examples.
        if !comment.is_empty() {
            let text = comment.join("\n");
            if section.is_none() {
                page.push_str(&format!("{text}\n"));
            } else {
                let fence = format!("\nMore, with examples as comments:\n\n```toml\n# {}\n```\n", comment.join("\n# "));
                page.push_str(&fence.replace("\n# \n", "\n#\n"));
            }
            in_table = false;
        }
    }
    format!(
        "# Configuration\n\nMade of the comments of [config.toml](../config.toml) by `UPDATE_PAGES=1 cargo nextest run --locked \
         the_configuration_page`; change them there.\n\n{}\n",
        page.trim()
    )
}

#[test]
fn the_configuration_page_is_that_of_config_toml() {
    let made = configuration_page(&read("config.toml"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIGURATION.md");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(made.matches("\n| `").count() > 60, "does this test still read config.toml?");
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), made, "run this test with UPDATE_PAGES=1");
}
