//! The vocabulary of this project: plain English with named actors, and names that distinguish two things.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Number of lines that contain one of [`WORDS`]. Lower it when such a line is removed; never raise it.
const BUDGET: usize = 9;

/// Words that hide the actor, one per line. Name the actor instead: producer, driver, partner, dispatcher, operator,
/// worker.
const WORDS: &str = include_str!("language/words.txt");

/// Number of names that more than one type may have, in addition to the customary names of clap commands.
const SHARED_NAMES: usize = 12;
const CUSTOMARY: [&str; 2] = ["Args", "Command"];

const KINDS: [&str; 9] = ["rs", "md", "toml", "sql", "lua", "json", "snap", "yml", "sh"];

fn text_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                files.extend(text_files(&path));
            }
        } else if name != "language.rs" && path.extension().is_some_and(|e| KINDS.iter().any(|k| e == *k)) {
            files.push(path);
        }
    }
    files
}

fn holds_word(line: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_letter)
            && !line[at + word.len()..].chars().next().is_some_and(is_letter)
    })
}

#[test]
fn no_text_hides_who_acts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for file in text_files(root) {
        let text = fs::read_to_string(&file).unwrap().to_lowercase();
        for (n, line) in text.lines().enumerate() {
            if WORDS.lines().any(|word| holds_word(line, word)) {
                found.push(format!("{}:{}: {}", file.strip_prefix(root).unwrap().display(), n + 1, line.trim()));
            }
        }
    }
    let count = found.len();
    let words: Vec<_> = WORDS.lines().collect();
    println!("{}\n{count} lines with {words:?}, {BUDGET} are allowed", found.join("\n"));
    assert!(count <= BUDGET, "{count} lines hold one of {words:?}, {BUDGET} are allowed: name who acts");
}

/// Returns the name of the type that this line defines, if any.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let rest = ["struct ", "enum ", "trait "].iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric()).next().filter(|name| name.starts_with(char::is_uppercase))
}

#[test]
fn few_types_share_a_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for file in text_files(root).iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let place = file.strip_prefix(root).unwrap().display().to_string();
        // The types of the client have the names of the API's schemas.
        let elsewhere = ["tests/", "clients/", "crates/test-support/", "examples/"];
        if place.contains("/tests/") || elsewhere.iter().any(|folder| place.starts_with(folder)) {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        for name in product.lines().filter_map(defined_type).filter(|name| !CUSTOMARY.contains(name)) {
            places.entry(name.to_owned()).or_default().push(place.clone());
        }
    }
    assert!(places.len() > 1000, "{} types were found", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(
        places.len() <= SHARED_NAMES,
        "each of these names has several types, {SHARED_NAMES} are allowed: {places:#?}"
    );
}
