//! Texts for people in their own language: customers whose order ended, drivers who were too late, drivers on the
//! phone.
//!
//! * `language`: supported languages, and the tags that request one.
//! * `builtin`: all built-in texts, in every language. The answers of admission are in [`crate::admission::answer`],
//!   because the requirement document prescribes them and they have no placeholders.
//! * `template`: placeholders in a text.
//! * `catalog`: the settings, with texts that replace built-in ones.

mod builtin;
mod catalog;
mod language;
mod template;

pub use builtin::TextKey;
pub use catalog::TextCatalog;
pub use language::{InvalidLanguageTag, Language, LanguageTag};
pub use template::{MAX_TEMPLATE_CHARS, Placeholder};
