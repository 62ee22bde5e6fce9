//! The page of rules, generated from the comments `// Rule F12: ...` above the tests.

use std::{collections::BTreeMap, fs, path::Path};

/// Number of rules in each group: F for inputs, money and access, L for the requirement documents, U for user
/// interfaces.
const GROUPS: [(char, u32); 3] = [('F', 48), ('L', 15), ('U', 18)];

/// A rule's sentence and its test.
struct Held {
    sentence: String,
    file: String,
    test: String,
}

/// Reads the rules from all test code and unit tests below `folder`.
fn collect_rules(root: &Path, folder: &Path, rules: &mut BTreeMap<(char, u32, String), Vec<Held>>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target" && !name.to_string_lossy().starts_with('.')) {
                collect_rules(root, &path, rules);
            }
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("tests/it/rules.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (n, line) in lines.iter().enumerate() {
            let Some((label, first)) = line.strip_prefix("// Rule ").and_then(|rest| rest.split_once(": ")) else {
                continue;
            };
            let mut sentence = first.to_owned();
            for more in lines[n + 1..].iter().map_while(|line| line.strip_prefix("// ")) {
                if more.starts_with("Rule ") {
                    break;
                }
                sentence.push(' ');
                sentence.push_str(more);
            }
            let test = lines[n + 1..].iter().find_map(|line| line.split_once("fn ")).map(|(_, rest)| rest);
            let test = test.and_then(|rest| rest.split('(').next()).unwrap_or_else(|| panic!("no test below '{line}'"));
            let group = label.chars().next().unwrap();
            let digits: String = label[1..].chars().take_while(char::is_ascii_digit).collect();
            let number = digits.parse().unwrap_or_else(|_| panic!("{}: '{label}' is not a rule", path.display()));
            let file = path.strip_prefix(root).unwrap().display().to_string();
            let held = Held { sentence, file, test: test.to_owned() };
            rules.entry((group, number, label.to_owned())).or_default().push(held);
        }
    }
}

fn rules_page(rules: &BTreeMap<(char, u32, String), Vec<Held>>) -> String {
    let mut page = "# Rules and their tests\n\nGenerated from the comments `// Rule ...` above the tests by `UPDATE_PAGES=1 cargo nextest run --locked \
                    the_page_of_rules`. F: inputs, money, access. L: the requirement documents. U: user interfaces.\n\n\
                    | id | rule | test |\n|---|---|---|\n"
        .to_owned();
    for ((_, _, label), tests) in rules {
        for held in tests {
            let sentence = held.sentence.replace('|', "\\|");
            page.push_str(&format!("| {label} | {sentence} | `{}` in {} |\n", held.test, held.file));
        }
    }
    page
}

#[test]
fn the_page_of_rules_lists_every_rule() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rules = BTreeMap::new();
    collect_rules(root, root, &mut rules);
    let made = rules_page(&rules);
    let path = root.join("docs/requirements/RULES.md");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), made, "run this test with UPDATE_PAGES=1");
    let pages = fs::read_dir(root.join("docs/requirements")).unwrap().map(|entry| entry.unwrap().path());
    let pages: String = pages.filter(|page| *page != path).map(|page| fs::read_to_string(page).unwrap()).collect();
    for (group, last) in GROUPS {
        for number in 1..=last {
            let label = format!("{group}{number}");
            let tested = rules.contains_key(&(group, number, label.clone()));
            // A requirement without a test has a row with the reason on the page of its document.
            let explained = pages.contains(&format!("| {label} |"));
            assert!(tested || explained, "rule {label} has no test and no row in docs/requirements");
        }
    }
    assert!(rules.contains_key(&('F', 16, "F16b".to_owned())), "rule F16b has no test");
}
