//! The settings of texts: which language where none is asked for, and an installation's own words.

use std::collections::BTreeMap;

use garde::{Error, Path, Report, Validate};
use serde::{Deserialize, Serialize};

use super::{
    builtin::TextKey,
    language::Language,
    template::{Placeholder, fill_template, find_template_problem},
};

/// The texts of an installation. `[texts]` in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextCatalog {
    /// Of customers whose order names no language that has texts.
    pub customer_language: Language,
    /// Of drivers whose app asks for no language that has texts.
    pub driver_language: Language,
    /// Texts in the place of those that are built in.
    #[serde(default)]
    pub templates: BTreeMap<Language, BTreeMap<TextKey, String>>,
}

impl TextCatalog {
    /// Returns the text with these values in the places of its placeholders.
    pub fn render(&self, language: Language, key: TextKey, values: &[(Placeholder, &str)]) -> String {
        let own = self.templates.get(&language).and_then(|texts| texts.get(&key));
        fill_template(own.map_or(key.builtin_text(language), String::as_str), values)
    }
}

/// Customers are told in Indonesian, drivers in Vietnamese: the languages of the requirements on server busy and on reservation.
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

    // Derived, one problem would hide the others.
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
