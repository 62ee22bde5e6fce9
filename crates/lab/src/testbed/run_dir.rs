//! Directory of a run: its configuration, and the logs of its processes.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::BuildHasher,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// A directory that is removed on drop unless it is kept.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    kept: bool,
}

impl RunDir {
    pub(crate) fn create_unique() -> anyhow::Result<Self> {
        let unique = RandomState::new().hash_one(());
        let path = std::env::temp_dir().join(format!("dispatchq-run-{}-{unique:016x}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Self { path, kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    pub(crate) fn keep_files(&mut self) {
        self.kept = true;
    }

    /// Keeps the files if the run failed, and adds their path to the error.
    pub(crate) fn keep_if_failed<T>(&mut self, played: anyhow::Result<T>) -> anyhow::Result<T> {
        self.kept |= played.is_err();
        played.with_context(|| format!("the run failed; logs: {}", self.path.display()))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
