//! Signing secrets of endpoints.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};

/// Random bytes of a secret. Standard Webhooks requires 24 to 64.
const BYTES: usize = 32;

/// A signing secret: `whsec_` and base64.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointSecret(String);

impl EndpointSecret {
    pub(super) fn generate() -> Self {
        Self(format!("whsec_{}", STANDARD.encode(rand::random::<[u8; BYTES]>())))
    }

    /// Returns the secret as text, to store it and to show it once.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Hides the text, so that it appears in no log.
impl fmt::Debug for EndpointSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointSecret(***)")
    }
}
