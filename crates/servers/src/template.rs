//! Postgres cluster that is made once and copied for each test. initdb and a schema take seconds, a copy takes a tenth
//! of a second.
//!
//! A template is a directory with `data` and `password`. It gets its name only when it is complete, and a lock prevents
//! two processes from making it at the same time. All copies have its password.

use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::{ServerError, account::UnprivilegedAccount, error::IoErrorContext};

/// Age after which a template is removed. Older templates have another schema or date in their name, so no test copies
/// them.
const KEPT_FOR: Duration = Duration::from_secs(2 * 24 * 3600);

/// Interval between checks whether another process has made the template.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct DataTemplate {
    dir: PathBuf,
}

impl DataTemplate {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self { dir: folder.join(format!("postgres-{name}")) }
    }

    pub(crate) fn is_made(&self) -> bool {
        self.dir.is_dir()
    }

    /// Waits until no other process makes this template. The lock is held until the file is dropped.
    pub(crate) async fn lock_template(&self) -> Result<fs::File, ServerError> {
        if let Some(folder) = self.dir.parent() {
            fs::create_dir_all(folder).while_doing(|| format!("create {}", folder.display()))?;
        }
        let path = self.dir.with_extension("lock");
        let doing = || format!("lock {}", path.display());
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).while_doing(doing)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(POLL).await,
                Err(TryLockError::Error(source)) => return Err(ServerError::Io { what: doing(), source }),
            }
        }
    }

    /// Makes the template from this server's directory. The server must have been stopped gracefully.
    pub(crate) fn make_template(&self, home: &Path) -> Result<(), ServerError> {
        self.remove_old();
        let new = self.dir.with_extension("new");
        if new.exists() {
            fs::remove_dir_all(&new).while_doing(|| format!("remove the incomplete {}", new.display()))?;
        }
        make_dir(&new, None)?;
        copy_tree(&home.join("data"), &new.join("data"), None)?;
        copy_file(&home.join("password"), &new.join("password"), None)?;
        fs::rename(&new, &self.dir).while_doing(|| format!("rename {}", new.display()))
    }

    /// Copies the cluster to a directory that contains no cluster.
    pub(crate) fn copy_to(&self, home: &Path, account: Option<UnprivilegedAccount>) -> Result<(), ServerError> {
        copy_file(&self.dir.join("password"), &home.join("password"), None)?;
        copy_tree(&self.dir.join("data"), &home.join("data"), account)
    }

    fn remove_old(&self) {
        let Some(Ok(entries)) = self.dir.parent().map(fs::read_dir) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("postgres-")) {
            let made = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or_else(|_| SystemTime::now());
            if made.elapsed().unwrap_or_default() > KEPT_FOR {
                // A template that cannot be removed only costs disk space.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn make_dir(dir: &Path, account: Option<UnprivilegedAccount>) -> Result<(), ServerError> {
    // Postgres refuses a data directory that other users can read.
    DirBuilder::new().mode(0o700).create(dir).while_doing(|| format!("create {}", dir.display()))?;
    account.map_or(Ok(()), |account| account.own_path(dir))
}

fn copy_file(from: &Path, to: &Path, account: Option<UnprivilegedAccount>) -> Result<(), ServerError> {
    fs::copy(from, to).while_doing(|| format!("copy {}", from.display()))?;
    account.map_or(Ok(()), |account| account.own_path(to))
}

/// Copies a directory recursively.
fn copy_tree(from: &Path, to: &Path, account: Option<UnprivilegedAccount>) -> Result<(), ServerError> {
    make_dir(to, account)?;
    let doing = || format!("read {}", from.display());
    for entry in fs::read_dir(from).while_doing(doing)? {
        let entry = entry.while_doing(doing)?;
        let target = to.join(entry.file_name());
        if entry.file_type().while_doing(doing)?.is_dir() {
            copy_tree(&entry.path(), &target, account)?;
        } else {
            copy_file(&entry.path(), &target, account)?;
        }
    }
    Ok(())
}
