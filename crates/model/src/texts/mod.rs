//! What people are told in their own language: customers whose order ended, drivers who were too late, drivers on the phone.
//!
//! * `language`: the languages there are texts in, and the tags that ask for one.
//! * `builtin`: every text, in every language. Admission's answers are in [`crate::admission::answer`], for their words are the
//!   requirement's and have no placeholders.
//! * `template`: placeholders in a text.
//! * `catalog`: the settings, with an installation's own words in the place of some texts.

mod builtin;
mod catalog;
mod language;
mod template;

pub use builtin::TextKey;
pub use catalog::TextCatalog;
pub use language::{InvalidLanguageTag, Language, LanguageTag};
pub use template::{MAX_TEMPLATE_CHARS, Placeholder};
