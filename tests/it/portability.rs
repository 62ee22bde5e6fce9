//! Compares the SQL in use with the list of SQL that other engines lack. Design: docs/design/portability.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use regex_lite::Regex;

const PAGE: &str = "docs/design/portability.md";
/// Keywords, functions, types and operators that all engines of the page support.
const COMMON: &str = include_str!("portability/common.txt");
/// The column "where" is "most" for more places.
const MOST_PLACES: usize = 8;
/// Starts of statements and of their parts in Rust strings.
const STARTS: &str = r"^(?:--\s|(?:SELECT|INSERT|UPDATE|DELETE|WITH|SET|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|ALTER|CREATE|DROP|TRUNCATE|LOCK|EXPLAIN|ANALYZE|VACUUM|LISTEN|NOTIFY|COPY|DO|GRANT|REVOKE|SHOW|DECLARE|FETCH|AND|WHERE|ORDER|FROM|JOIN|LEFT|UNION|EXISTS|CASE|NOT|RETURNING|ON)\b|,\s*\n|\(SELECT\b|\(?array\()";
/// A comment, a string or a character of Rust.
const RUST_TOKEN: &str =
    r##"//[^\n]*|/\*[\s\S]*?\*/|b?r#"[\s\S]*?"#|b?r"[^"]*"|b?"(?:[^"\\]|\\[\s\S])*"|'(?:\\.[^']*|[^'\\\n])'"##;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// A file of SQL, or a string with SQL in Rust code, without comments.
struct Sql {
    /// Number of the migration, name of the crate, or `dispatchq`.
    place: String,
    is_migration: bool,
    text: String,
}

impl Sql {
    fn new(path: &Path, text: &str) -> Self {
        let path = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let mut parts = path.split('/');
        let place = match (parts.next().unwrap(), parts.next().unwrap()) {
            ("migrations", name) => name[..4].to_owned(),
            ("crates", name) => name.to_owned(),
            ("src", _) => "dispatchq".to_owned(),
            (folder, _) => folder.to_owned(),
        };
        let text = regex(r"--[^\n]*").replace_all(text, "").into_owned();
        Self { place, is_migration: path.starts_with("migrations"), text }
    }
}

/// Returns the strings of a Rust file, without its unit tests.
fn rust_strings(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let tokens = regex(RUST_TOKEN);
    let tokens = tokens.find_iter(source).map(|token| token.as_str());
    let strings = tokens.filter(|token| token.starts_with(['"', 'r'])).map(|token| {
        let text = token.trim_start_matches(['r', '#']).trim_end_matches('#');
        let text = &text[1..text.len() - 1];
        regex(r"\\\n\s*").replace_all(text, "").replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\")
    });
    strings.collect()
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(&*name, "tests" | "test-support" | "examples" | "target") {
            collect_files(&path, files);
        } else if name.ends_with(".sql") || (name.ends_with(".rs") && name != "tests.rs" && name != "build.rs") {
            files.push(path);
        }
    }
}

fn read_sql() -> Vec<Sql> {
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for folder in ["migrations", "crates", "src", "workers", "jobs"] {
        collect_files(&root().join(folder), &mut files);
    }
    let start = regex(STARTS);
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "sql") {
            found.push(Sql::new(&path, &source));
        } else if regex("[A-Z]{2}|-- ").is_match(&source) {
            let strings = rust_strings(&source).into_iter();
            let sql =
                strings.filter(|text| text.trim().contains(char::is_whitespace) && start.is_match(text.trim_start()));
            found.extend(sql.map(|text| Sql::new(&path, &text)));
        }
    }
    assert!(found.len() > 500, "only {} pieces of SQL were found", found.len());
    found
}

/// Returns the keywords, functions (`name(`), types (`::name`) and operators of a text.
fn words(text: &str) -> BTreeSet<String> {
    // Literals, placeholders, and names of columns after a name of rows are no words.
    let rest = regex(r"'(?:[^']|'')*'|\{\w*\}|\bAS \w+\(");
    let text = rest.replace_all(text, " ");
    let mut words = BTreeSet::new();
    for (pattern, prefix) in [
        (r"\b([A-Z][A-Z_]+)\b", ""),
        (r"\b([a-z_][a-z0-9_]*\()", ""),
        (r"::\s*([a-z_0-9]+)", "::"),
        (r"([-+*/<>=~!@#%^&|?]+)", ""),
    ] {
        words.extend(regex(pattern).captures_iter(&text).map(|found| format!("{prefix}{}", &found[1])));
    }
    words
}

/// Returns the types of columns, parameters and variables.
fn declared_types(text: &str) -> BTreeSet<String> {
    let declaration = regex(r"(?m)^    [a-z_0-9]+ +([a-z_0-9]+)");
    declaration.captures_iter(text).map(|found| format!("::{}", &found[1])).collect()
}

/// Returns each word with the places that use it, without functions that the SQL itself defines.
fn used_words(sql: &[Sql]) -> BTreeMap<String, BTreeSet<String>> {
    let mut used = BTreeMap::<String, BTreeSet<String>>::new();
    let (mut defined, definition) = (BTreeSet::new(), regex(r"CREATE (?:OR REPLACE )?FUNCTION (\w+\()"));
    for piece in sql {
        defined.extend(definition.captures_iter(&piece.text).map(|found| found[1].to_owned()));
        let types = if piece.is_migration { declared_types(&piece.text) } else { BTreeSet::new() };
        for word in words(&piece.text).into_iter().chain(types) {
            used.entry(word).or_default().insert(piece.place.clone());
        }
    }
    used.retain(|word, _| !defined.contains(word));
    used
}

/// Returns the places whose SQL contains a pattern of the page.
fn places_of(pattern: &str, sql: &[Sql]) -> BTreeSet<String> {
    let part = |part: &str| {
        let edge = |c: Option<char>| if c.is_some_and(|c| c.is_alphanumeric() || c == '_') { r"\b" } else { "" };
        let escaped = regex_lite::escape(part).replace(' ', r"\s+").replace(r"\(\s+", r"\(\s*");
        format!("{}{escaped}{}", edge(part.chars().next()), edge(part.chars().last()))
    };
    let parts: Vec<_> = pattern.split(" .. ").map(part).collect();
    let pattern = regex(&parts.join("[^;]*?"));
    sql.iter().filter(|piece| pattern.is_match(&piece.text)).map(|piece| piece.place.clone()).collect()
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the cells of a line of a list of SQL: feature, SQL, where, and one for each engine.
fn cells(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    (line.starts_with("| ") && cells.len() == 7 && cells[1].starts_with('`')).then_some(cells)
}

fn page() -> String {
    fs::read_to_string(root().join(PAGE)).unwrap()
}

#[test]
fn portability_page_names_places_of_sql() {
    let (sql, page) = (read_sql(), page());
    let mut rows = 0;
    let line_with_places = |line: &str| {
        let Some(mut cells) = cells(line) else { return line.to_owned() };
        let mut places = BTreeSet::new();
        for pattern in quoted(cells[1]) {
            let found = places_of(pattern, &sql);
            assert!(!found.is_empty(), "no SQL contains `{pattern}`; remove it from {PAGE}");
            places.extend(found);
        }
        rows += 1;
        let names = if places.len() > MOST_PLACES {
            "most".to_owned()
        } else {
            places.into_iter().collect::<Vec<_>>().join(", ")
        };
        cells[2] = &names;
        format!("| {} |", cells.join(" | "))
    };
    let lines: Vec<_> = page.lines().map(line_with_places).collect();
    let written = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(root().join(PAGE), &written).unwrap();
    }
    assert!(rows > 50, "{rows} rows");
    assert_eq!(self::page(), written, "run this test with UPDATE_PAGES=1");
}

#[test]
fn sql_that_engines_lack_is_on_its_page() {
    let page = page();
    let mut known: BTreeSet<String> = COMMON.split_whitespace().map(str::to_owned).collect();
    for pattern in page.lines().filter_map(cells).flat_map(|cells| quoted(cells[1])) {
        known.extend(words(pattern));
        known.insert(format!("::{}", pattern.trim_start_matches("::").trim_end_matches("[]")));
    }
    let unknown: Vec<_> = used_words(&read_sql()).into_iter().filter(|(word, _)| !known.contains(word)).collect();
    assert!(
        unknown.is_empty(),
        "add a row with the support of each engine to {PAGE}, or, if all support it, a word to \
         tests/it/portability/common.txt: {unknown:?}"
    );
}

#[test]
fn sql_that_most_engines_lack_stays_unused() {
    let (sql, page) = (read_sql(), page());
    let (_, rest) = page.split_once("## Not used").unwrap();
    let absent = quoted(rest.split("\n## ").next().unwrap());
    assert!(absent.len() > 15, "{absent:?}");
    for pattern in absent {
        assert_eq!(places_of(pattern, &sql), BTreeSet::new(), "{PAGE} says that no SQL uses {pattern}");
    }
}
