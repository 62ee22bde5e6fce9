//! `[producers.NAME]`: webhook and events of the producer with this name.

use std::{fmt, path::PathBuf};

use garde::Validate;
use model::messages::ProducerEvent;
use serde::{Deserialize, Serialize};

use super::channels::{HIDDEN, hide_path};

#[derive(Clone, Default, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ProducerConfig {
    /// URL that events are posted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Secret for the signatures of events: `whsec_` and base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Previous secret. While the producer switches, events are signed with both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous_file: Option<PathBuf>,
    #[garde(custom(name_events))]
    pub events: Vec<ProducerEvent>,
    /// Whether the webhook may have a private or loopback address.
    pub allow_private: bool,
}

impl ProducerConfig {
    /// Removes the secrets. The path of a URL often is one, so only the host of a URL stays.
    pub(super) fn redact_secrets(&mut self) {
        hide_path(&mut self.url);
        for secret in [&mut self.secret, &mut self.secret_previous].into_iter().flatten() {
            HIDDEN.clone_into(secret);
        }
    }
}

/// Rejects an empty subscription.
fn name_events(events: &[ProducerEvent], (): &()) -> garde::Result {
    if events.is_empty() {
        let known = ProducerEvent::ALL.map(ProducerEvent::as_str).join(", ");
        return Err(garde::Error::new(format!("is empty; name some of {known}")));
    }
    Ok(())
}

/// Shows the producer without its secrets.
impl fmt::Debug for ProducerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact_secrets();
        f.write_str(&serde_json::to_string(&shown).unwrap_or_default())
    }
}
