//! `[producers.NAME]`: where the producer of this name hears of its orders, and of which events.

use std::{fmt, path::PathBuf};

use garde::Validate;
use model::messages::ProducerEvent;
use serde::{Deserialize, Serialize};

use super::channels::{HIDDEN, hide_path};

/// One `[producers.NAME]` of the configuration.
#[derive(Clone, Default, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ProducerConfig {
    /// Where each event is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// What events are signed with: `whsec_` and base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The secret before it, while the producer changes over: events are signed with both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous_file: Option<PathBuf>,
    /// The events it hears of.
    #[garde(custom(name_events))]
    pub events: Vec<ProducerEvent>,
    /// Its webhook may lie in a private network, or on this machine.
    pub allow_private: bool,
}

impl ProducerConfig {
    /// Without its secrets: of a URL, whose path is often one, only where it leads.
    pub(super) fn redact_secrets(&mut self) {
        hide_path(&mut self.url);
        for secret in [&mut self.secret, &mut self.secret_previous].into_iter().flatten() {
            HIDDEN.clone_into(secret);
        }
    }
}

/// The rule of subscriptions: one to nothing is a mistake.
fn name_events(events: &[ProducerEvent], (): &()) -> garde::Result {
    if events.is_empty() {
        let known = ProducerEvent::ALL.map(ProducerEvent::as_str).join(", ");
        return Err(garde::Error::new(format!("is empty; name some of {known}")));
    }
    Ok(())
}

/// Without its secrets.
impl fmt::Debug for ProducerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact_secrets();
        f.write_str(&serde_json::to_string(&shown).unwrap_or_default())
    }
}
