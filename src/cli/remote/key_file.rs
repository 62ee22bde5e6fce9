//! The key, from a file: arguments are seen by every user of the machine, and stay in the history of the shell.

use std::{fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, ensure};

/// Bytes that are read of the file; a key is far shorter.
const MOST_BYTES: u64 = 4096;

/// Reads a key. Fails when another user than the file's owner may read or write the file, and when it holds no key.
pub(super) fn read_key(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the key in {shown}"))?;
    let mode = file.metadata().with_context(|| format!("cannot read the key in {shown}"))?.permissions().mode();
    ensure!(
        mode & 0o077 == 0,
        "{shown} may be read by others than its owner (mode {:03o}), so its key is no secret: chmod 600 {shown}; and replace the key \
         if others have read it",
        mode & 0o777
    );
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).with_context(|| format!("cannot read the key in {shown}"))?;
    let key = text.trim();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(is_key, "{shown} holds no key: it is one line, dq_...");
    Ok(key.to_owned())
}
