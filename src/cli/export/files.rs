//! Files of an export. Until all are complete, their names end with `.partial`.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};

/// Folder that an export writes to.
#[derive(Debug)]
pub(super) struct ExportFolder {
    path: PathBuf,
    files: Vec<PartialFile>,
}

#[derive(Debug)]
struct PartialFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl ExportFolder {
    /// Opens or creates the folder. Returns an error if one of these files exists.
    pub(super) fn open(path: PathBuf, names: &[String]) -> anyhow::Result<Self> {
        fs::create_dir_all(&path).with_context(|| format!("cannot create the folder {}", path.display()))?;
        for target in names.iter().map(|name| path.join(name)) {
            ensure!(
                target.symlink_metadata().is_err(),
                "{} exists; remove it, or choose another folder with --out",
                target.display()
            );
        }
        Ok(Self { path, files: Vec::new() })
    }

    /// Creates `NAME.partial`, or empties the one of a failed export. Locks the file until the export ends.
    pub(super) fn create(&mut self, name: &str) -> anyhow::Result<File> {
        let path = self.path.join(format!("{name}.partial"));
        let context = || format!("cannot write {}", path.display());
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).with_context(context)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => bail!("another export is writing {}", path.display()),
            Err(fs::TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        if file.metadata().with_context(context)?.len() > 0 {
            file.set_len(0).with_context(context)?;
        }
        let writer = file.try_clone().with_context(context)?;
        self.files.push(PartialFile { file, path, target: self.path.join(name) });
        Ok(writer)
    }

    /// Writes all files to the disk, then gives them their names. Returns the folder.
    pub(super) fn publish(self) -> anyhow::Result<PathBuf> {
        for PartialFile { file, path, .. } in &self.files {
            file.sync_all().with_context(|| format!("cannot write {}", path.display()))?;
        }
        for PartialFile { path, target, .. } in &self.files {
            fs::rename(path, target).with_context(|| format!("cannot rename {}", path.display()))?;
        }
        sync_folder(&self.path).with_context(|| format!("cannot write the folder {}", self.path.display()))?;
        Ok(self.path)
    }
}

/// Writes the names of the files to the disk.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}
