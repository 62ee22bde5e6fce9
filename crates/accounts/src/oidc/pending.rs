//! A sign-in under way. The browser keeps it in a cookie: sealed, so that it is what this installation wrote, and for ten minutes.
//! Nothing is stored here, so a flood of sign-ins that are begun and not finished costs nothing.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A sign-in that takes longer begins again.
const LONGEST_SECS: i64 = 600;
/// Clocks of replicas may differ by so much.
const CLOCK_SKEW_SECS: i64 = 60;

/// What must come back from the provider, and what the provider must be shown.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    pub(super) state: String,
    pub(super) nonce: String,
    /// Of PKCE: the provider has seen its hash.
    pub(super) verifier: String,
    /// Where the provider sends the browser back.
    pub(super) callback: String,
    /// Which page the person wanted.
    pub(super) next: String,
    /// Seconds since 1970.
    started_at: i64,
}

impl PendingSignIn {
    pub(super) fn new(callback: &str, next: &str, now: i64) -> Self {
        Self {
            state: random_word(),
            nonce: random_word(),
            verifier: random_word(),
            callback: callback.to_owned(),
            next: next.to_owned(),
            started_at: now,
        }
    }

    /// The hash of the verifier, as PKCE's S256 has it.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// 256 random bits in 43 characters.
fn random_word() -> String {
    let random: [u8; 32] = rand::random();
    URL_SAFE_NO_PAD.encode(random)
}

/// Seals sign-ins with a key that every replica has: it comes from the client's secret.
pub(super) struct SignInSealer(LessSafeKey);

impl SignInSealer {
    pub(super) fn new(client_id: &str, client_secret: &str) -> Self {
        let master = hmac::Key::new(hmac::HMAC_SHA256, client_secret.as_bytes());
        let digest = hmac::sign(&master, format!("dispatchq sign-in {client_id}").as_bytes());
        let key = UnboundKey::new(&AES_256_GCM, digest.as_ref()).expect("SHA-256 has as many bytes as the key");
        Self(LessSafeKey::new(key))
    }

    pub(super) fn seal(&self, pending: &PendingSignIn) -> String {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut text = serde_json::to_vec(pending).expect("texts become JSON");
        let sealed = self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text);
        sealed.expect("a short text can be sealed");
        URL_SAFE_NO_PAD.encode([nonce.as_slice(), &text].concat())
    }

    /// Returns the sign-in, unless it was sealed elsewhere or is too old.
    pub(super) fn open(&self, sealed: &str, now: i64) -> Option<PendingSignIn> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let opened = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut text).ok()?;
        let pending: PendingSignIn = serde_json::from_slice(opened).ok()?;
        let age = now - pending.started_at;
        (-CLOCK_SKEW_SECS..=LONGEST_SECS).contains(&age).then_some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_sign_in_opens_for_ten_minutes() {
        let (ours, theirs) = (SignInSealer::new("dispatchq", "a secret"), SignInSealer::new("dispatchq", "another"));
        let pending = PendingSignIn::new("http://localhost/console/oidc/callback", "/console/desk", 1_000);
        let sealed = ours.seal(&pending);
        let opened = ours.open(&sealed, 1_600).unwrap();
        assert_eq!((opened.state, opened.next), (pending.state.clone(), "/console/desk".to_owned()));
        assert!(ours.open(&sealed, 1_601).is_none(), "too old");
        assert!(
            theirs.open(&sealed, 1_000).is_none() && SignInSealer::new("x", "a secret").open(&sealed, 1_000).is_none()
        );
        let mut changed = sealed.clone().into_bytes();
        changed[30] ^= 1;
        let changed = String::from_utf8(changed).unwrap();
        for bad in ["", "AAAA", "%", changed.as_str()] {
            assert!(ours.open(bad, 1_000).is_none(), "{bad}");
        }
        assert_ne!(sealed, ours.seal(&pending));
        assert_ne!(pending.state, PendingSignIn::new("", "", 0).state);
    }

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let pending = PendingSignIn { verifier, ..PendingSignIn::new("", "", 0) };
        assert_eq!(pending.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
