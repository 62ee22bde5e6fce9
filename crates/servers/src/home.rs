//! Directory of a server: its data, its log and its lock.
//!
//! The lock prevents a second server on the same data. The server gets the locked file as standard input, and this
//! process keeps no copy. So the file stays locked while any process of that server lives: a child, an orphan, or a
//! Postgres backend that briefly outlives its postmaster. Taking the lock therefore also waits for the last of them to
//! end.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::{ServerError, error::IoErrorContext};

const POLL: Duration = Duration::from_millis(10);

/// Log lines that are shown when a server fails.
const TAIL_LINES: usize = 15;
const TAIL_BYTES: u64 = 8 * 1024;

#[derive(Debug)]
pub(crate) struct ServerHome {
    dir: PathBuf,
    throw_away: Option<TempDir>,
}

impl ServerHome {
    /// Creates a new directory that is removed when this value is dropped.
    pub(crate) fn throw_away(parent: &Path, prefix: &str) -> Result<ServerHome, ServerError> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .while_doing(|| format!("create a directory in {}", parent.display()))?;
        Ok(ServerHome { dir: dir.path().to_owned(), throw_away: Some(dir) })
    }

    /// Opens a directory that is kept. Creates it if it is missing.
    pub(crate) fn open_kept(dir: &Path) -> Result<ServerHome, ServerError> {
        fs::create_dir_all(dir).while_doing(|| format!("create {}", dir.display()))?;
        let dir = fs::canonicalize(dir).while_doing(|| format!("find {}", dir.display()))?;
        Ok(ServerHome { dir, throw_away: None })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn is_throw_away(&self) -> bool {
        self.throw_away.is_some()
    }

    /// Keeps a throw-away directory.
    pub(crate) fn keep_dir(self) -> PathBuf {
        if let Some(dir) = self.throw_away {
            let _ = dir.keep();
        }
        self.dir
    }

    /// Locks the directory and returns the locked file, to pass to a server as standard input. Waits for a previous
    /// server that is ending.
    pub(crate) async fn lock_dir(&self, server: &'static str, wait: Duration) -> Result<File, ServerError> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(ServerError::InUse { server, dir: self.dir.clone() });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn try_lock(&self) -> Result<Option<File>, ServerError> {
        let path = self.dir.join("lock");
        let doing = || format!("lock {}", path.display());
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).while_doing(doing)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(ServerError::Io { what: doing(), source }),
        }
    }

    /// Opens the log for appending the server's output.
    pub(crate) fn open_log(&self) -> Result<File, ServerError> {
        let path = self.log_path();
        OpenOptions::new().append(true).create(true).open(&path).while_doing(|| format!("open {}", path.display()))
    }

    /// Returns the current end of the log, to tell the lines of a new start from older ones.
    pub(crate) fn log_end(&self) -> u64 {
        fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len())
    }

    /// Returns the last lines of the log since `from`. Empty if the log cannot be read, because the text only explains
    /// another error.
    pub(crate) fn log_tail(&self, from: u64) -> String {
        let read = || {
            let mut file = File::open(self.log_path())?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(from.max(end.saturating_sub(TAIL_BYTES))))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            std::io::Result::Ok(bytes)
        };
        let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }
}
