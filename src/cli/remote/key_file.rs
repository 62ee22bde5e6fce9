//! Reads the key from a file. As an argument it would be visible to every user of the machine and stay in the shell
//! history.

use std::{fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, ensure};

/// Maximum bytes read from the file. A key is much shorter.
const MOST_BYTES: u64 = 4096;

/// Reads a key. Fails if other users than the owner may access the file, or if the file contains no key.
pub(super) fn read_key(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the key in {shown}"))?;
    let mode = file.metadata().with_context(|| format!("cannot read the key in {shown}"))?.permissions().mode();
    ensure!(
        mode & 0o077 == 0,
        "other users than its owner can access {shown} (mode {:03o}): chmod 600 {shown}, and replace the key \
         if others have read it",
        mode & 0o777
    );
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).with_context(|| format!("cannot read the key in {shown}"))?;
    let key = text.trim();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(is_key, "{shown} contains no key: expected one line, dq_...");
    Ok(key.to_owned())
}
