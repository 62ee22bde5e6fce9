//! The key that identifies this installation to push services (RFC 8292). A browser accepts only messages that are
//! signed with the key that it subscribed with.

use std::fmt;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Url;
use ring::{
    error::Unspecified,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::json;

use foundation::config::error::ConfigError;
use settings::PushConfig;

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// Characters of a line of PEM.
const PEM_LINE: usize = 64;
/// Time that a signature is valid. The standard permits 24 hours.
const VALID: TimeDelta = TimeDelta::hours(12);

/// The key pair and the contact for operators of push services.
pub struct VapidKey {
    pair: EcdsaKeyPair,
    subject: String,
    random: SystemRandom,
}

/// Hides the key.
impl fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VapidKey").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl VapidKey {
    /// Reads the configured key file; `None` if none is configured.
    pub fn from_config(config: &PushConfig) -> Result<Option<Self>, ConfigError> {
        let Some(file) = &config.private_key_file else { return Ok(None) };
        let problem = |text: String| ConfigError::new(format!("private_key_file: {text}")).within("push");
        let text = std::fs::read_to_string(file)
            .map_err(|error| problem(format!("cannot read {}: {error}", file.display())))?;
        let key = Self::parse(&text, &config.subject);
        key.map(Some).ok_or_else(|| {
            problem(format!("{} has no key of P-256 in PKCS #8; create one: dispatchq push-keys FILE", file.display()))
        })
    }

    /// Parses a private key in PEM.
    fn parse(pem: &str, subject: &str) -> Option<Self> {
        let (_, rest) = pem.split_once(PEM_BEGIN)?;
        let body: String = rest.split_once(PEM_END)?.0.split_whitespace().collect();
        let random = SystemRandom::new();
        let pkcs8 = STANDARD.decode(body).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random).ok()?;
        Some(Self { pair, subject: subject.to_owned(), random })
    }

    /// Returns the public key in base64 for URLs, as browsers expect it.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref())
    }

    /// Returns the header `Authorization` of a request to this endpoint.
    pub(super) fn authorize(&self, endpoint: &Url, now: DateTime<Utc>) -> Result<String, Unspecified> {
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({
            "aud": endpoint.origin().ascii_serialization(), "exp": (now + VALID).timestamp(), "sub": self.subject,
        });
        let signed = format!("{}.{}", encode(json!({ "typ": "JWT", "alg": "ES256" })), encode(claims));
        let signature = self.pair.sign(&self.random, signed.as_bytes())?;
        Ok(format!("vapid t={signed}.{}, k={}", URL_SAFE_NO_PAD.encode(signature), self.public_key()))
    }
}

/// A new key pair.
#[expect(missing_debug_implementations, reason = "it holds a secret")]
pub struct NewPushKeys {
    /// Private key in PEM.
    pub private_pem: String,
    /// Public key in base64 for URLs.
    pub public: String,
}

/// Creates a key pair.
pub fn generate_keys() -> Result<NewPushKeys, Unspecified> {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)?;
    let text = STANDARD.encode(pkcs8.as_ref());
    let lines: Vec<_> = text.as_bytes().chunks(PEM_LINE).map(String::from_utf8_lossy).collect();
    let private_pem = format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", lines.join("\n"));
    let key = VapidKey::parse(&private_pem, "").ok_or(Unspecified)?;
    Ok(NewPushKeys { public: key.public_key(), private_pem })
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    #[test]
    fn signature_names_origin_expiry_and_contact() {
        let keys = generate_keys().unwrap();
        let key = VapidKey::parse(&keys.private_pem, "mailto:ops@example.com").unwrap();
        let now: DateTime<Utc> = "2026-01-09T08:00:00Z".parse().unwrap();
        let header = key.authorize(&"https://push.example.com:8443/x/y?z".parse().unwrap(), now).unwrap();
        let (token, public) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(public, keys.public);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let verifier = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(public));
        verifier.verify(signed.as_bytes(), &decode(signature)).unwrap();
        let (head, claims) = signed.split_once('.').unwrap();
        let read = |part: &str| -> Value { serde_json::from_slice(&decode(part)).unwrap() };
        assert_eq!(read(head), json!({ "typ": "JWT", "alg": "ES256" }));
        let expected = json!({ "aud": "https://push.example.com:8443", "sub": "mailto:ops@example.com",
                               "exp": now.timestamp() + 12 * 3600 });
        assert_eq!(read(claims), expected);
    }

    #[test]
    fn text_without_a_key_is_refused() {
        let pem = generate_keys().unwrap().private_pem;
        for text in ["", "nonsense", &pem[10..], &pem.replace("MIG", "XXX"), &pem[..pem.len() - 10]] {
            assert!(VapidKey::parse(text, "").is_none(), "{text}");
        }
    }
}
