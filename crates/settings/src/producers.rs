//! `[producers.NAME]`: webhook, events and rights of the producer with this name.

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
    #[garde(custom(name_events(self)))]
    pub events: Vec<ProducerEvent>,
    /// Whether the webhook may have a private or loopback address.
    pub allow_private: bool,
    /// Whether the producer may create sign-in links for drivers.
    pub driver_sign_in: bool,
}

impl ProducerConfig {
    /// Returns whether events are posted to the producer. A table may instead give only the right to sign in drivers.
    pub fn has_webhook(&self) -> bool {
        let files = [&self.url_file, &self.secret_file, &self.secret_previous_file];
        let texts = [&self.url, &self.url_env, &self.secret, &self.secret_env];
        let more = [&self.secret_previous, &self.secret_previous_env];
        let is_named = files.iter().any(|file| file.is_some()) || texts.iter().chain(&more).any(|text| text.is_some());
        !self.driver_sign_in || is_named || !self.events.is_empty()
    }

    /// Removes the secrets. The path of a URL often is one, so only the host of a URL stays.
    pub(super) fn redact_secrets(&mut self) {
        hide_path(&mut self.url);
        for secret in [&mut self.secret, &mut self.secret_previous].into_iter().flatten() {
            HIDDEN.clone_into(secret);
        }
    }
}

/// Rejects an empty subscription of a producer that has a webhook.
fn name_events(producer: &ProducerConfig) -> impl FnOnce(&[ProducerEvent], &()) -> garde::Result {
    let has_webhook = producer.has_webhook();
    move |events, ()| {
        if events.is_empty() && has_webhook {
            let known = ProducerEvent::ALL.map(ProducerEvent::as_str).join(", ");
            return Err(garde::Error::new(format!("is empty; name some of {known}")));
        }
        Ok(())
    }
}

/// Shows the producer without its secrets.
impl fmt::Debug for ProducerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact_secrets();
        f.write_str(&serde_json::to_string(&shown).unwrap_or_default())
    }
}
