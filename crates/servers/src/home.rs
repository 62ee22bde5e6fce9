//! A server's directory: its data, its log and its lock.
//!
//! The lock keeps a second server off the same data. Its file is handed to the server as standard input, and we keep no
//! copy, so it stays locked exactly as long as any process of that server lives, be it ours, an orphan, or a Postgres
//! backend that outlives its postmaster by a moment. That makes it also the way to wait for the last of them to end.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::{ServerError, error::IoErrorContext};

const POLL: Duration = Duration::from_millis(10);

/// Log lines shown when a server fails.
const TAIL_LINES: usize = 15;
const TAIL_BYTES: u64 = 8 * 1024;

#[derive(Debug)]
pub(crate) struct ServerHome {
    dir: PathBuf,
    throw_away: Option<TempDir>,
}

impl ServerHome {
    /// A new directory that is removed with this value.
    pub(crate) fn throw_away(parent: &Path, prefix: &str) -> Result<ServerHome, ServerError> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .while_doing(|| format!("make a directory in {}", parent.display()))?;
        Ok(ServerHome { dir: dir.path().to_owned(), throw_away: Some(dir) })
    }

    /// A directory that is made where it is missing, and stays.
    pub(crate) fn open_kept(dir: &Path) -> Result<ServerHome, ServerError> {
        fs::create_dir_all(dir).while_doing(|| format!("make {}", dir.display()))?;
        let dir = fs::canonicalize(dir).while_doing(|| format!("find {}", dir.display()))?;
        Ok(ServerHome { dir, throw_away: None })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn is_throw_away(&self) -> bool {
        self.throw_away.is_some()
    }

    /// Lets a throw-away directory stay.
    pub(crate) fn keep_dir(self) -> PathBuf {
        if let Some(dir) = self.throw_away {
            let _ = dir.keep();
        }
        self.dir
    }

    /// The locked file, to hand to a server as standard input; waits for a predecessor that is about to end.
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

    /// The log, where the server's output is added.
    pub(crate) fn open_log(&self) -> Result<File, ServerError> {
        let path = self.log_path();
        OpenOptions::new().append(true).create(true).open(&path).while_doing(|| format!("open {}", path.display()))
    }

    /// Where the log ends now, so that a reader can tell a new start's lines from an old one's.
    pub(crate) fn log_end(&self) -> u64 {
        fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len())
    }

    /// The log's last lines since `from`. Empty when there is none: it only ever explains another error.
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
