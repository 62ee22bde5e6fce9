//! Texts of the console in English and Indonesian: `texts/en.toml` and `texts/id.toml`. Both files have the same keys,
//! grouped by page, and the same placeholders. The tests compare both files with each other and with the code.
//!
//! A missing key never fails a request: the page shows the English text, or else the key.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::LazyLock,
};

use crate::language::Language;

/// Texts by key. The key is the group and the name, with a dot between them.
type Texts = HashMap<String, String>;

/// Start of the keys of texts that `console.js` shows.
const SCRIPT: &str = "script.";
const ENGLISH_FILE: &str = include_str!("../texts/en.toml");
const INDONESIAN_FILE: &str = include_str!("../texts/id.toml");

static ENGLISH: LazyLock<Texts> = LazyLock::new(|| read_texts(ENGLISH_FILE).unwrap_or_default());
static INDONESIAN: LazyLock<Texts> = LazyLock::new(|| read_texts(INDONESIAN_FILE).unwrap_or_default());

fn read_texts(file: &str) -> Result<Texts, toml::de::Error> {
    let groups: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(file)?;
    let flat = |(group, texts): (String, BTreeMap<String, String>)| {
        texts.into_iter().map(move |(name, text)| (format!("{group}.{name}"), text))
    };
    Ok(groups.into_iter().flat_map(flat).collect())
}

/// Returns the text of a key in this language; `None` if the catalogue does not have the key.
pub(crate) fn find_text(language: Language, key: &str) -> Option<&'static str> {
    let translated = match language {
        Language::English => None,
        Language::Indonesian => INDONESIAN.get(key),
    };
    translated.or_else(|| ENGLISH.get(key)).map(String::as_str)
}

/// A text of the catalogue. It is shown in the language of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words(&'static str);

/// Returns the text of a key.
pub(crate) const fn tr(key: &'static str) -> Words {
    Words(key)
}

impl Words {
    /// No text. Fields that the person does not see have it as their label.
    pub(crate) const NONE: Self = Self("");

    /// Returns the text in the language of the request.
    pub(crate) fn get(self) -> &'static str {
        find_text(Language::current(), self.0).unwrap_or(self.0)
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl From<Words> for String {
    fn from(words: Words) -> Self {
        words.get().to_owned()
    }
}

/// Returns the texts of the script, as a JSON object of names and texts.
pub(crate) fn script_texts(language: Language) -> String {
    let names = ENGLISH.keys().filter_map(|key| key.strip_prefix(SCRIPT));
    let texts: BTreeMap<&str, Option<&str>> =
        names.map(|name| (name, find_text(language, &format!("{SCRIPT}{name}")))).collect();
    serde_json::to_string(&texts).unwrap_or_else(|_| "{}".to_owned())
}

/// Replaces the placeholders of a text by these values. [`fill!`](fill) calls it.
pub(crate) fn fill_text(words: Words, values: &[(&str, &dyn fmt::Display)]) -> String {
    let mut text = String::new();
    let mut rest = words.get();
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        match values.iter().find(|(own, _)| *own == name) {
            Some((_, value)) => text.push_str(&value.to_string()),
            None => text.push_str(name),
        }
        rest = behind;
    }
    text + rest
}

/// Returns the text of a key with values for its placeholders: `fill!("now.oldest", age)`, or
/// `fill!("areas.hours", most = MOST_HOURS)`.
macro_rules! fill {
    ($key:literal $(, $name:ident $(= $value:expr)?)* $(,)?) => {
        $crate::catalogue::fill_text(
            $crate::catalogue::tr($key),
            &[$((stringify!($name), &$crate::catalogue::fill!(@value $name $(= $value)?))),*],
        )
    };
    (@value $name:ident = $value:expr) => { $value };
    (@value $name:ident) => { $name };
}
pub(crate) use fill;

#[cfg(test)]
mod tests;
