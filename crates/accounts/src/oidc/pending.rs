//! A pending sign-in. The browser keeps it for ten minutes in a cookie that is sealed, so only this installation can
//! have written it. The server stores nothing, so a flood of unfinished sign-ins uses no memory and no rows.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum duration of a sign-in. After this the person must start again.
const LONGEST_SECS: i64 = 600;
/// Maximum difference between the clocks of two replicas.
const CLOCK_SKEW_SECS: i64 = 60;

/// Values of a sign-in that are compared with the provider's response or sent with the code.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    pub(super) state: String,
    pub(super) nonce: String,
    /// PKCE code verifier. The provider received its hash at the start of the sign-in.
    pub(super) verifier: String,
    /// Address that the provider redirects the browser to.
    pub(super) callback: String,
    /// Page that the person asked for.
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

    /// Returns the PKCE `S256` hash of the verifier.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// Returns 256 random bits as 43 characters.
fn random_word() -> String {
    let random: [u8; 32] = rand::random();
    URL_SAFE_NO_PAD.encode(random)
}

/// Encrypts pending sign-ins. The key is derived from the client's secret, so every replica has the same one.
pub(super) struct SignInSealer(LessSafeKey);

impl SignInSealer {
    pub(super) fn new(client_id: &str, client_secret: &str) -> Self {
        let master = hmac::Key::new(hmac::HMAC_SHA256, client_secret.as_bytes());
        let digest = hmac::sign(&master, format!("dispatchq sign-in {client_id}").as_bytes());
        let key = UnboundKey::new(&AES_256_GCM, digest.as_ref()).expect("a SHA-256 digest has the length of the key");
        Self(LessSafeKey::new(key))
    }

    pub(super) fn seal(&self, pending: &PendingSignIn) -> String {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut text = serde_json::to_vec(pending).expect("strings serialize to JSON");
        let sealed = self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text);
        sealed.expect("a short text can be sealed");
        URL_SAFE_NO_PAD.encode([nonce.as_slice(), &text].concat())
    }

    /// Decrypts a pending sign-in. Returns `None` if it was sealed with another key, was changed, or is too old.
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
    fn challenge_matches_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let pending = PendingSignIn { verifier, ..PendingSignIn::new("", "", 0) };
        assert_eq!(pending.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
