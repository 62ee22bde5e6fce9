//! Password of a private Postgres or Redis. Any user of this machine can connect to a loopback port, so the port
//! requires one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::{ServerError, error::IoErrorContext};

const FILE: &str = "password";

/// Iterations of the key derivation. 256 random bits need no stretching, and tests connect often.
const ITERATIONS: NonZeroU32 = NonZeroU32::MIN;

/// A password of letters, so that it can be part of a URL and contains no port number.
#[derive(Clone)]
pub(crate) struct ServerPassword(String);

impl ServerPassword {
    /// Returns the password that is kept in this directory, if there is one.
    pub(crate) fn kept_in(dir: &Path) -> Result<Option<ServerPassword>, ServerError> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(ServerPassword(text.trim().to_owned())).filter(|password| !password.0.is_empty())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).while_doing(|| format!("read {}", path.display())),
        }
    }

    /// Stores the password in a file that only its owner can read.
    pub(crate) fn keep_in(&self, dir: &Path) -> Result<(), ServerError> {
        let path = dir.join(FILE);
        let doing = || format!("write {}", path.display());
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).while_doing(doing)?;
        file.write_all(self.0.as_bytes()).while_doing(doing)
    }

    pub(crate) fn random_letters() -> Result<ServerPassword, ServerError> {
        let bytes: [u8; 32] = random_bytes()?;
        Ok(ServerPassword(
            bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(b'a' + half)).collect(),
        ))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the SCRAM verifier for Postgres. Postgres checks logins against it and never gets the password.
    pub(crate) fn scram_verifier(&self) -> Result<String, ServerError> {
        let salt: [u8; 16] = random_bytes()?;
        Ok(self.verifier_with(&salt))
    }

    fn verifier_with(&self, salt: &[u8]) -> String {
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, salt, self.0.as_bytes(), &mut salted);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
        let stored = digest::digest(&digest::SHA256, hmac::sign(&key, b"Client Key").as_ref());
        let server = hmac::sign(&key, b"Server Key");
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        format!("SCRAM-SHA-256${ITERATIONS}:{}${}:{}", text(salt), text(stored.as_ref()), text(server.as_ref()))
    }
}

impl std::fmt::Debug for ServerPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

fn random_bytes<const N: usize>() -> Result<[u8; N], ServerError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes).map_err(|_| std::io::Error::from(ErrorKind::Other));
    filled.while_doing(|| "get random bytes from the system".to_owned())?;
    Ok(bytes)
}
