//! Encryption of OTPs that wait to be sent. The row contains the ciphertext; the history contains only a keyed digest.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use model::binding::TrxId;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
    rand::{SecureRandom, SystemRandom},
};

use foundation::config::{error::ConfigError, secret::Secret};
use settings::BindingsConfig;

const KEY_BYTES: usize = 32;
const FORMAT: u8 = 1;
const LONGEST_OTP: usize = 64;

/// Reason why an OTP is not accepted or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OtpSealError {
    #[error("OTPs cannot be accepted: set bindings.otp_key, 32 random bytes in base64 (openssl rand -base64 32)")]
    NoKey,
    #[error("an OTP has 1 to 64 printable characters without spaces")]
    NotAnOtp,
    #[error("no random numbers are available")]
    NoRandomness,
    /// The key or the row has changed since the OTP was encrypted.
    #[error("the stored OTP cannot be decrypted with bindings.otp_key or with the previous key")]
    Unreadable,
}

struct SealKey {
    cipher: LessSafeKey,
    digest: hmac::Key,
}

/// Returns a new key in the format of `bindings.otp_key`.
pub fn generate_otp_key() -> Result<String, OtpSealError> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| OtpSealError::NoRandomness)?;
    Ok(STANDARD.encode(bytes))
}

/// Encrypts OTPs with the configured key, and decrypts them with it or with the previous key.
#[derive(Default)]
pub struct OtpSealer {
    current: Option<SealKey>,
    previous: Option<SealKey>,
}

impl fmt::Debug for OtpSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtpSealer").field("has_key", &self.current.is_some()).finish_non_exhaustive()
    }
}

/// An OTP in plain text. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainOtp(String);

impl fmt::Debug for PlainOtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainOtp(***)")
    }
}

impl PlainOtp {
    pub fn parse(text: String) -> Result<Self, OtpSealError> {
        let fits = (1..=LONGEST_OTP).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text)) } else { Err(OtpSealError::NotAnOtp) }
    }

    /// Returns the plain text, for the call that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// An encrypted OTP, in the form that rows store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedOtp {
    /// Ciphertext. It is different for each encryption, so it also identifies the write.
    pub sealed: Vec<u8>,
    /// Digest that is equal for the same OTP of the same transaction. Without the key it reveals nothing.
    pub digest: String,
}

impl OtpSealer {
    /// Reads the keys. Both may be missing.
    pub fn new(config: &BindingsConfig) -> Result<Self, ConfigError> {
        let current = Secret {
            name: "otp_key",
            value: Some(config.otp_key.as_str()).filter(|key| !key.is_empty()),
            env: config.otp_key_env.as_deref(),
            file: config.otp_key_file.as_deref(),
        };
        let previous = Secret {
            name: "otp_key_previous",
            value: Some(config.otp_key_previous.as_str()).filter(|key| !key.is_empty()),
            env: config.otp_key_previous_env.as_deref(),
            file: config.otp_key_previous_file.as_deref(),
        };
        Ok(Self { current: read_key(&current)?, previous: read_key(&previous)? })
    }

    /// Returns whether OTPs can be accepted.
    pub fn has_key(&self) -> bool {
        self.current.is_some()
    }

    pub fn seal_otp(&self, trx_id: &TrxId, otp: &PlainOtp) -> Result<SealedOtp, OtpSealError> {
        let key = self.current.as_ref().ok_or(OtpSealError::NoKey)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| OtpSealError::NoRandomness)?;
        let mut text = otp.0.as_bytes().to_vec();
        let about = Aad::from(trx_id.as_str().as_bytes());
        let sealed = key.cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), about, &mut text);
        sealed.map_err(|_| OtpSealError::NoRandomness)?;
        let sealed = [&[FORMAT], nonce.as_slice(), &text].concat();
        let digest = hmac::sign(&key.digest, format!("{trx_id}:{}", otp.0).as_bytes());
        Ok(SealedOtp { sealed, digest: hex::encode(&digest.as_ref()[..16]) })
    }

    /// Decrypts an OTP that [`seal_otp`](Self::seal_otp) encrypted for the same transaction.
    pub fn open_otp(&self, trx_id: &TrxId, sealed: &[u8]) -> Result<PlainOtp, OtpSealError> {
        let keys = self.current.iter().chain(&self.previous);
        let opened = keys.filter_map(|key| open_with(&key.cipher, trx_id, sealed)).next();
        opened.map(PlainOtp).ok_or(OtpSealError::Unreadable)
    }
}

fn open_with(cipher: &LessSafeKey, trx_id: &TrxId, sealed: &[u8]) -> Option<String> {
    let (nonce, text) = sealed.strip_prefix(&[FORMAT])?.split_first_chunk::<NONCE_LEN>()?;
    let mut text = text.to_vec();
    let about = Aad::from(trx_id.as_str().as_bytes());
    let opened = cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), about, &mut text).ok()?;
    String::from_utf8(opened.to_vec()).ok()
}

fn read_key(secret: &Secret<'_>) -> Result<Option<SealKey>, ConfigError> {
    let Some(text) = secret.read()? else { return Ok(None) };
    let wrong = || {
        let form = "base64 of 32 random bytes, as from: openssl rand -base64 32";
        ConfigError::new(format!("bindings.{} must be {form}", secret.name))
    };
    let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| bytes.len() == KEY_BYTES).ok_or_else(wrong)?;
    // Two keys are derived from the configured one, so that neither use reveals anything about the other.
    let master = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
    let cipher = UnboundKey::new(&AES_256_GCM, hmac::sign(&master, b"encrypt").as_ref()).map_err(|_| wrong())?;
    let digest = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&master, b"digest").as_ref());
    Ok(Some(SealKey { cipher: LessSafeKey::new(cipher), digest }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Config;

    fn sealer(current: &str, previous: &str) -> OtpSealer {
        let config = BindingsConfig {
            otp_key: current.to_owned(),
            otp_key_previous: previous.to_owned(),
            ..Config::defaults().bindings
        };
        OtpSealer::new(&config).unwrap()
    }

    fn key_of(byte: u8) -> String {
        STANDARD.encode([byte; KEY_BYTES])
    }

    #[test]
    fn otp_opens_for_its_own_transaction_only() {
        let (trx, other): (TrxId, TrxId) = ("B.1".parse().unwrap(), "B.2".parse().unwrap());
        let otp = PlainOtp::parse("483920".to_owned()).unwrap();
        let old = sealer(&key_of(1), "");
        let stored = old.seal_otp(&trx, &otp).unwrap();
        assert!(!stored.sealed.windows(6).any(|part| part == b"483920") && !stored.digest.contains("483920"));
        assert_eq!(old.open_otp(&trx, &stored.sealed).unwrap(), otp);
        assert_eq!(old.open_otp(&other, &stored.sealed), Err(OtpSealError::Unreadable));
        assert_eq!(sealer(&key_of(2), &key_of(1)).open_otp(&trx, &stored.sealed).unwrap(), otp);
        assert_eq!(sealer(&key_of(2), "").open_otp(&trx, &stored.sealed), Err(OtpSealError::Unreadable));
        let again = old.seal_otp(&trx, &otp).unwrap();
        assert!(again.sealed != stored.sealed && again.digest == stored.digest);
        for bad in [&stored.sealed[..5], &[], &[2; 40]] {
            assert_eq!(old.open_otp(&trx, bad), Err(OtpSealError::Unreadable));
        }
    }

    #[test]
    fn missing_or_bad_otp_key_is_refused() {
        let otp = PlainOtp::parse("1".to_owned()).unwrap();
        assert_eq!(sealer("", "").seal_otp(&"B.1".parse().unwrap(), &otp), Err(OtpSealError::NoKey));
        for bad in ["", "1 2", "12\n", "é", &"1".repeat(65)] {
            assert_eq!(PlainOtp::parse(bad.to_owned()), Err(OtpSealError::NotAnOtp), "{bad:?}");
        }
        for bad in ["short", "c2hvcnQ="] {
            let config = BindingsConfig { otp_key: bad.to_owned(), ..Config::defaults().bindings };
            let error = OtpSealer::new(&config).unwrap_err().to_string();
            assert!(error.contains("openssl rand -base64 32") && !error.contains(bad), "{error}");
        }
        assert_eq!(format!("{otp:?}"), "PlainOtp(***)");
        let made = [generate_otp_key().unwrap(), generate_otp_key().unwrap()];
        assert!(made[0] != made[1] && sealer(&made[0], &made[1]).has_key());
    }
}
