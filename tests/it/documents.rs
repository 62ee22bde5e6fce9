//! Compares pages that contain lists with the listed items.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Returns the quoted texts of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

#[test]
fn every_redis_key_is_on_its_page() {
    let page = read("docs/REDIS.md");
    let mut keys = BTreeSet::new();
    for line in read("crates/queue/src/keys.rs").lines().filter(|line| line.contains("self.full_key(")) {
        keys.extend(quoted(line).map(|name| format!("`{{dq:0}}:{name}`")));
    }
    let beside = read("crates/foundation/src/redis_keys.rs");
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

/// Returns the anchors of a page's headings, as GitHub names them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |heading: &str| {
        let text = heading.to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(kept).collect()
}

#[test]
fn links_between_pages_lead_to_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages =
        ["", "docs", "docs/design", "docs/requirements", "jobs", "crates/queue", "migrations", "deploy", "examples"];
    let mut found = 0;
    for folder in pages.map(|folder| root.join(folder)).iter().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder).unwrap() {
            let page = entry.unwrap().path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&page).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if link.contains("://") {
                    continue;
                }
                found += 1;
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() { page.clone() } else { folder.join(path) };
                assert!(target.exists(), "{} links to {path}, which does not exist", page.display());
                if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                    let headings = anchors(&fs::read_to_string(&target).unwrap());
                    assert!(headings.contains(anchor), "{}: {link} names no heading", page.display());
                }
            }
        }
    }
    assert!(found > 300, "only {found} links were found");
}

/// Appends the text of all files below `folder` with one of these extensions, without build output and installed packages.
fn collect_text(folder: &Path, extensions: &[&str], text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                collect_text(&path, extensions, text);
            }
        } else if path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted)) {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn code_names_each_design_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    collect_text(root, &["rs", "lua", "sql", "toml"], &mut code);
    let index = read("docs/design/README.md");
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(root.join("docs/design")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "README.md" {
            assert!(code.contains(&format!("docs/design/{name}")), "no code names docs/design/{name}");
            assert!(index.contains(&format!("]({name})")), "the index of docs/design does not name {name}");
            pages.insert(name);
        }
    }
    assert!(pages.len() > 20, "only {} pages were found", pages.len());
    let named = code.split("docs/design/").skip(1).filter_map(|rest| rest.split_once(".md"));
    let named = named.map(|(name, _)| format!("{name}.md"));
    let is_page = |name: &String| name.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '.'));
    let missing: Vec<_> = named.filter(is_page).filter(|name| !pages.contains(name)).collect();
    assert!(missing.is_empty(), "code names pages of docs/design that do not exist: {missing:?}");
}

/// Generates the page of all settings from the comments of config.toml.
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
                let meaning = if comment.is_empty() { "see above".to_owned() } else { comment.join(" ") };
                let meaning = meaning.replace('|', "\\|");
                page.push_str(&format!(
                    "| `{name}.{key}` | `{value}` | {meaning} |\n",
                    value = value.replace('|', "\\|")
                ));
            }
            comment.clear();
        }
        // A comment without a setting: the head of the file, or an example.
        if !comment.is_empty() {
            let text = comment.join("\n");
            if section.is_none() {
                page.push_str(&format!("{text}\n"));
            } else {
                let fence =
                    format!("\nFurther settings, as commented examples:\n\n```toml\n# {}\n```\n", comment.join("\n# "));
                page.push_str(&fence.replace("\n# \n", "\n#\n"));
            }
            in_table = false;
        }
    }
    format!(
        "# Configuration\n\nGenerated from the comments of [config.toml](../config.toml) by `UPDATE_PAGES=1 cargo nextest run --locked \
         the_configuration_page`; edit them there.\n\n{}\n",
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

/// Returns the cells of the column `test`, the last one of the tables that have it.
fn test_cells(page: &str) -> Vec<&str> {
    let (mut cells, mut has_tests) = (Vec::new(), false);
    for (line, next) in page.lines().zip(page.lines().skip(1).chain([""])) {
        let cell = line.trim_matches('|').rsplit(" | ").next().unwrap_or_default().trim();
        if next.starts_with("|---") {
            has_tests = cell == "test";
        } else if has_tests && line.starts_with("| ") {
            cells.push(cell);
        }
    }
    cells
}

// Rule L14: Each deliberate difference quotes its document, and the requirement pages name only tests that exist.
#[test]
fn requirement_pages_quote_their_documents() {
    let (mut code, mut differences) = (String::new(), 0);
    collect_text(Path::new(env!("CARGO_MANIFEST_DIR")), &["rs"], &mut code);
    let functions: BTreeSet<&str> = code.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    for name in ["server-busy", "job-id-retrieval", "reservation", "dual-queue", "orchestration"] {
        let page = read(&format!("docs/requirements/{name}.md"));
        let (rows, paragraphs) = page.split_once("## Deliberate differences").unwrap();
        for paragraph in paragraphs.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
            assert!(paragraph.starts_with("**") && paragraph.contains('"'), "{name}: {paragraph}");
            differences += 1;
        }
        let cells = test_cells(rows);
        assert!(cells.len() > 10, "{name} has {} rows", cells.len());
        for cell in cells {
            let named: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
            let missing: Vec<_> = named.iter().filter(|test| !functions.contains(*test)).collect();
            assert!(missing.is_empty(), "docs/requirements/{name}.md names tests that do not exist: {missing:?}");
            assert!(!named.is_empty() || cell.contains("]("), "{name}: a row has no test and no reason: '{cell}'");
        }
    }
    assert!(differences >= 45, "{differences} differences");
}

// Rule L13: One table answers each of the nine open questions and links to more details.
#[test]
fn open_questions_have_answers() {
    let page = read("docs/requirements/server-busy.md");
    let (_, questions) = page.split_once("## The nine open questions").unwrap();
    for number in 1..=9 {
        let row = questions.lines().find(|line| line.starts_with(&format!("| {number} |")));
        let row = row.unwrap_or_else(|| panic!("no row of question {number}"));
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "{row}");
    }
}

// Rule L12: RENT is the shipped service type that alerts dispatchers, as GUIDE and the requirement page state.
#[test]
fn rent_is_the_service_type_of_the_gist() {
    let config = read("config.toml");
    let service_type = |name: &str| {
        let rest = config.split_once(&format!("[service_types.{name}]\n")).unwrap().1;
        rest.split('[').next().unwrap().to_owned()
    };
    assert!(service_type("RENT").starts_with("exhausted = \"alert\""));
    assert!(!service_type("RIDE").contains("alert"));
    for page in ["docs/GUIDE.md", "docs/requirements/dual-queue.md"] {
        let page = read(page);
        let says = page.split("\n\n").any(|text| text.contains("RENT") && text.contains("exhausted = \"alert\""));
        assert!(says, "no paragraph explains RENT");
    }
}

#[test]
fn dashboard_has_every_required_panel() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/dispatchq.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for (kind, title) in [
        ("gauge", "Waiting orders by area"),
        ("gauge", "Threshold utilization by area"),
        ("stat", "Orders in retry loop"),
        ("timeseries", "Dispatch attempts per minute"),
        ("timeseries", "Assignment rate"),
        ("timeseries", "Average dispatch duration"),
        ("bargauge", "Distribution of dispatch durations (seconds)"),
        ("bargauge", "Distribution of attempts per order"),
        ("piechart", "Cancels by reason"),
        ("timeseries", "Lifetime timeouts"),
        ("bargauge", "User cancel rate by area"),
        ("bargauge", "Top 5 busiest areas"),
        ("bargauge", "Areas currently at threshold"),
        ("timeseries", "Average order lifetime by area"),
        ("piechart", "Order status distribution"),
    ] {
        let panel = panels.iter().find(|panel| panel["title"] == title).unwrap_or_else(|| panic!("no panel '{title}'"));
        assert_eq!(panel["type"], kind, "{title}");
        assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{title} asks nothing");
    }
    let utilization = panels.iter().find(|panel| panel["title"] == "Threshold utilization by area").unwrap();
    let steps = utilization["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| &step["color"]).collect::<Vec<_>>(), ["green", "yellow", "red"]);
}

#[test]
fn document_lists_a_webhook_per_step() {
    let document: Value = serde_json::from_str(&api::OPENAPI).unwrap();
    let listed: BTreeSet<&str> = document["webhooks"].as_object().unwrap().keys().map(String::as_str).collect();
    let steps = [
        "created",
        "scheduled",
        "updated",
        "offered",
        "assigned",
        "picked_up",
        "completed",
        "cancelled",
        "held",
        "refunded",
    ];
    let mut steps: Vec<String> = steps.iter().map(|step| format!("order.{step}")).collect();
    steps.extend(["order.job_id_retrieved", "order.cancelled_after_payment_no_job_id"].map(str::to_owned));
    assert_eq!(listed, steps.iter().map(String::as_str).collect::<BTreeSet<_>>());
}
