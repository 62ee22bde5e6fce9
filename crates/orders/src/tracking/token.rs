//! Token of a tracking link: the id and the creation time of an order, encrypted and authenticated with AES-256-GCM.
//!
//! The nonce is a keyed digest of the order, so an order always has the same token, and different orders have different
//! nonces. The tag has 128 bits. Without the key a token can be neither made nor read. The creation time distinguishes
//! an order from an earlier one with the same id.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use jobs::OrderId;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};

/// Maximum length of a token: the token of an order id of 64 characters has 134.
const LONGEST: usize = 134;

/// The order of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOrder {
    pub id: OrderId,
    pub created_at: DateTime<Utc>,
}

impl TokenOrder {
    /// Returns the milliseconds of the creation time and the id.
    fn to_bytes(&self) -> Vec<u8> {
        [&self.created_at.timestamp_millis().to_be_bytes(), self.id.as_str().as_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (created_ms, id) = bytes.split_first_chunk()?;
        let created_at = DateTime::from_timestamp_millis(i64::from_be_bytes(*created_ms))?;
        Some(Self { id: str::from_utf8(id).ok()?.parse().ok()?, created_at })
    }
}

/// Issues and reads tokens.
pub struct TrackingKey {
    cipher: LessSafeKey,
    nonces: hmac::Key,
}

/// Hides the key.
impl fmt::Debug for TrackingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrackingKey(***)")
    }
}

impl TrackingKey {
    /// Derives one key for encryption and one for nonces, so that neither use reveals anything about the other.
    pub(super) fn new(secret: &[u8]) -> Option<Self> {
        let master = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let cipher = UnboundKey::new(&AES_256_GCM, hmac::sign(&master, b"encrypt").as_ref()).ok()?;
        let nonces = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&master, b"nonce").as_ref());
        Some(Self { cipher: LessSafeKey::new(cipher), nonces })
    }

    /// Returns the token of an order, in base64 for URLs. `None` only if the text were too long for the cipher.
    pub fn issue_token(&self, order: &TokenOrder) -> Option<String> {
        let mut text = order.to_bytes();
        let digest = hmac::sign(&self.nonces, &text);
        let nonce: &[u8; NONCE_LEN] = digest.as_ref().first_chunk()?;
        let sealed = Nonce::assume_unique_for_key(*nonce);
        self.cipher.seal_in_place_append_tag(sealed, Aad::empty(), &mut text).ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &text].concat()))
    }

    /// Returns the order of a token, or `None` if this installation did not issue the token.
    pub fn read_token(&self, token: &str) -> Option<TokenOrder> {
        if token.len() > LONGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let opened = self.cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut text);
        TokenOrder::from_bytes(opened.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: u8) -> TrackingKey {
        TrackingKey::new(&[secret; 32]).unwrap()
    }

    fn order(id: &str, created_ms: i64) -> TokenOrder {
        TokenOrder { id: id.parse().unwrap(), created_at: DateTime::from_timestamp_millis(created_ms).unwrap() }
    }

    #[test]
    fn order_always_has_the_same_token() {
        let (key, order) = (key(1), order("ORD-1", 1_767_949_200_123));
        let token = key.issue_token(&order).unwrap();
        assert_eq!(key.issue_token(&order).unwrap(), token);
        assert_eq!(key.read_token(&token), Some(order));
    }

    #[test]
    fn token_reveals_no_part_of_the_order() {
        let key = key(1);
        let first = key.issue_token(&order("ORD-1", 1_767_949_200_123)).unwrap();
        for other in [order("ORD-2", 1_767_949_200_123), order("ORD-1", 1_767_949_200_124)] {
            let bytes = [&first, &key.issue_token(&other).unwrap()].map(|token| URL_SAFE_NO_PAD.decode(token).unwrap());
            let equal = bytes[0].iter().zip(&bytes[1]).filter(|(one, other)| one == other).count();
            assert!(equal < 6, "{equal} of {} bytes are equal", bytes[0].len());
            assert!(!bytes[1].windows(4).any(|part| part == b"ORD-"), "{bytes:?}");
        }
    }

    #[test]
    fn changed_or_foreign_tokens_are_refused() {
        let key_one = key(1);
        let longest = order(&"x".repeat(64), i64::from(u32::MAX) * 1_000);
        let token = key_one.issue_token(&longest).unwrap();
        assert_eq!((token.len(), key_one.read_token(&token)), (LONGEST, Some(longest)));
        assert_eq!(key(2).read_token(&token), None);
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(key_one.read_token(&URL_SAFE_NO_PAD.encode(changed)), None, "byte {at}");
        }
        for wrong in ["", "x", "====", "\u{e9}", &token[1..], &token[..token.len() - 1], &format!("{token}A")] {
            assert_eq!(key_one.read_token(wrong), None, "{wrong}");
        }
    }
}
