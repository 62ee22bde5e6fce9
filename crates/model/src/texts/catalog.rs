//! Settings of texts: default languages, and texts that replace built-in ones.

use std::collections::BTreeMap;

use garde::{Error, Path, Report, Validate};
use serde::{Deserialize, Serialize};

use super::{
    builtin::TextKey,
    language::Language,
    template::{Placeholder, fill_template, find_template_problem},
};

/// Texts of an installation; `[texts]` in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextCatalog {
    /// Language for customers whose order names no supported language.
    pub customer_language: Language,
    /// Language for drivers whose app requests no supported language.
    pub driver_language: Language,
    #[serde(default)]
    pub templates: BTreeMap<Language, BTreeMap<TextKey, String>>,
}

impl TextCatalog {
    /// Returns the text with its placeholders replaced by these values.
    pub fn render(&self, language: Language, key: TextKey, values: &[(Placeholder, &str)]) -> String {
        let own = self.templates.get(&language).and_then(|texts| texts.get(&key));
        fill_template(own.map_or(key.builtin_text(language), String::as_str), values)
    }
}

/// Uses Indonesian for customers and Vietnamese for drivers: the languages of the requirement documents on server busy
/// and on reservation.
impl Default for TextCatalog {
    fn default() -> Self {
        Self {
            customer_language: Language::Indonesian,
            driver_language: Language::Vietnamese,
            templates: BTreeMap::new(),
        }
    }
}

impl Validate for TextCatalog {
    type Context = ();

    // A derived implementation would report only the first problem.
    fn validate_into(&self, (): &(), parent: &mut dyn FnMut() -> Path, report: &mut Report) {
        for (language, texts) in &self.templates {
            for (key, template) in texts {
                if let Some(problem) = find_template_problem(template, key.placeholders()) {
                    let path = parent().join("templates").join(language.code()).join(key.name());
                    report.append(path, Error::new(problem));
                }
            }
        }
    }
}
