//! `[push]`: push messages to the browsers of drivers.

use std::path::PathBuf;

use garde::Validate;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct PushConfig {
    /// File with the private key that `dispatchq push-keys` creates. Absent: no push messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key_file: Option<PathBuf>,
    /// Contact for operators of push services: a `mailto:` or `https:` address. Required with a key.
    #[garde(custom(be_contact(self.private_key_file.is_some())))]
    pub subject: String,
    /// Whether browsers may have addresses of this machine and private networks: only for tests.
    pub allow_private: bool,
}

/// Checks the contact, which is required if push messages are on.
fn be_contact(is_on: bool) -> impl Fn(&str, &()) -> garde::Result {
    move |subject, ()| {
        let is_contact =
            ["mailto:", "https://"].iter().any(|lead| subject.len() > lead.len() && subject.starts_with(lead));
        if is_contact || (!is_on && subject.is_empty()) {
            return Ok(());
        }
        Err(garde::Error::new("must be the address of a contact, such as mailto:ops@example.com"))
    }
}
