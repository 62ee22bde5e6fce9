//! Compares test results with `recordings/`, or writes the recording with `UPDATE_BASELINE=1`.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use similar::{ChangeTag, DiffOp, DiffTag, TextDiff};

/// Printed lines of a difference per file.
const LINES: usize = 40;
/// Printed characters of a line, and those before the first difference.
const LENGTH: usize = 240;
const BEFORE: usize = 80;

const HOW: &str = "If this change is intended, record it again and read the difference:\n  UPDATE_BASELINE=1 cargo nextest run --locked -p dispatchq --test baseline\nA commit that changes a recording has a line in CHANGELOG.md.";

/// Files of one test, by name.
#[derive(Default)]
pub struct Recording {
    files: BTreeMap<String, String>,
}

impl Recording {
    pub fn add(&mut self, name: &str, text: String) {
        self.files.insert(name.to_owned(), text);
    }

    /// Compares all files with the recording, or replaces it. Panics with a readable difference.
    pub fn check(&self) {
        let mut failures = Vec::new();
        for (name, text) in &self.files {
            let path = folder().join(name);
            if updates() {
                fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
                fs::write(&path, text).expect("the recording can be written");
            } else {
                let recorded = fs::read_to_string(&path).unwrap_or_default();
                failures.extend(difference(name, &recorded, text));
            }
        }
        assert!(failures.is_empty(), "the run differs from its recording\n\n{}\n{HOW}", failures.join("\n"));
    }
}

pub fn updates() -> bool {
    std::env::var("UPDATE_BASELINE").is_ok_and(|value| value == "1")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baseline/recordings")
}

/// Compares a compressed recording line by line. `lines` converts its text to lines.
pub fn check_compressed(name: &str, text: &str, lines: impl Fn(&str) -> String) {
    let path = folder().join(name);
    if updates() {
        let mut out = GzEncoder::new(fs::File::create(&path).expect("the file can be made"), Compression::best());
        out.write_all(text.as_bytes()).and_then(|()| out.finish().map(drop)).expect("the file can be written");
        return;
    }
    let mut recorded = String::new();
    let file = fs::File::open(&path).expect("there is a recording");
    GzDecoder::new(file).read_to_string(&mut recorded).expect("the recording is complete");
    if let Some(failure) = difference(name, &lines(&recorded), &lines(text)) {
        panic!("the run differs from its recording\n\n{failure}\n{HOW}");
    }
}

/// Returns the lines that differ, or `None` for equal texts.
fn difference(name: &str, recorded: &str, found: &str) -> Option<String> {
    if recorded == found {
        return None;
    }
    let diff = TextDiff::from_lines(recorded, found);
    let changes: Vec<_> =
        diff.ops().iter().filter(|op| op.tag() != DiffTag::Equal).map(|op| change(&diff, op)).collect();
    let lines: Vec<_> = changes.iter().flat_map(|change| change.lines()).collect();
    let mut text = format!("{name}: - recorded, + found\n");
    for line in lines.iter().take(LINES) {
        text.push_str(line);
        text.push('\n');
    }
    if lines.len() > LINES {
        text.push_str(&format!("  ... and {} more lines\n", lines.len() - LINES));
    }
    Some(text)
}

/// Returns removed and added lines. Long lines start shortly before the first differing character.
fn change(diff: &TextDiff<'_, '_, '_, str>, op: &DiffOp) -> String {
    let changes: Vec<_> = diff.iter_changes(op).map(|change| (change.tag(), change.value().trim_end())).collect();
    let side = |wanted: ChangeTag| changes.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, line)| *line);
    let (old, new): (Vec<_>, Vec<_>) = (side(ChangeTag::Delete).collect(), side(ChangeTag::Insert).collect());
    let begin = |line: &str, others: &[&str], n: usize| {
        let other = others.get(n).copied().unwrap_or_default();
        line.chars().zip(other.chars()).take_while(|(a, b)| a == b).count().saturating_sub(BEFORE)
    };
    let old_lines = old.iter().enumerate().map(|(n, line)| format!("- {}\n", shorten(line, begin(line, &new, n))));
    let new_lines = new.iter().enumerate().map(|(n, line)| format!("+ {}\n", shorten(line, begin(line, &old, n))));
    format!("@ line {}\n{}{}", op.old_range().start + 1, old_lines.collect::<String>(), new_lines.collect::<String>())
}

fn shorten(line: &str, begin: usize) -> String {
    let short: String = line.chars().skip(begin).take(LENGTH).collect();
    let (before, after) =
        (if begin > 0 { "..." } else { "" }, if begin + LENGTH < line.chars().count() { "..." } else { "" });
    format!("{before}{short}{after}")
}
