//! Files to import: texts in UTF-8, and JSON lines of which all or none are taken.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Context;
use model::json_words::plain_error;
use serde::de::DeserializeOwned;

use super::output::ErrorList;
use foundation::strict_json;

/// Maximum number of problems that are shown; the others are counted.
const MOST_PROBLEMS: usize = 10;

/// Reads a file ("-" is standard input) of UTF-8, without the byte-order mark that some programs write first.
pub(super) fn read_text(file: &Path) -> anyhow::Result<String> {
    let (mut bytes, shown) = (Vec::new(), file.display());
    let read = if file == Path::new("-") {
        io::stdin().read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {shown}"))?;
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{shown} is no text in UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

/// Reads a file of JSON lines. Names every line that is wrong, or whose `id` an earlier line has; then nothing is imported.
pub(super) fn read_json_lines<T: DeserializeOwned>(
    file: &Path,
    id: impl Fn(&T) -> String,
    find_problem: impl Fn(&T) -> Option<String>,
) -> anyhow::Result<Vec<T>> {
    let text = read_text(file)?;
    let mut lines_by_id: HashMap<String, usize> = HashMap::new();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let read = strict_json::read_unique::<T>(text.as_bytes())
            .map_err(|error| plain_error(&error.to_string()))
            .and_then(|item| {
                find_problem(&item).map_or(Ok(()), Err)?;
                match lines_by_id.entry(id(&item)) {
                    Entry::Occupied(first) => Err(format!("id '{}' is on line {}, too", first.key(), first.get())),
                    Entry::Vacant(place) => {
                        place.insert(line);
                        Ok(item)
                    }
                }
            });
        match read {
            Ok(item) => good.push(item),
            Err(problem) => bad.push(format!("line {line}: {problem}")),
        }
    }
    if bad.is_empty() {
        return Ok(good);
    }
    let more = bad.len().saturating_sub(MOST_PROBLEMS);
    bad.truncate(MOST_PROBLEMS);
    if more > 0 {
        bad.push(format!("and {more} more"));
    }
    Err(ErrorList::new("nothing was imported; correct these and run it again:", bad).into())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Item {
        id: String,
    }

    fn read(text: &[u8]) -> Result<Vec<Item>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let problem = |item: &Item| item.id.is_empty().then(|| "id is empty".to_owned());
        read_json_lines(file.path(), |item: &Item| item.id.clone(), problem).map_err(|error| error.to_string())
    }

    // Rule F2: An import reads an object by its names alone, and refuses a member that comes twice.
    #[test]
    fn import_refuses_lists_and_doubled_members() {
        let error = read(b"[\"A\"]\n{\"id\": \"A\", \"id\": \"B\"}\n").unwrap_err();
        assert!(error.contains("line 1: expected ") && error.contains("line 2: id is given twice"), "{error}");
    }

    // Rule F4: An import reports an id that two lines have, and takes neither.
    #[test]
    fn import_reports_lines_with_one_id() {
        let error = read(b"{\"id\": \"A\"}\n\n{\"id\": \"B\"}\n{\"id\": \"A\"}\n{\"id\": \"\"}\n").unwrap_err();
        assert!(error.contains("line 4: id 'A' is on line 1, too; line 5: id is empty"), "{error}");
        assert_eq!(read(b"\xef\xbb\xbf{\"id\": \"A\"}\r\n{\"id\": \"B\"}").unwrap().len(), 2);
        assert!(read(b"\xff\xfe{").unwrap_err().contains("no text in UTF-8"));
    }
}
