//! Files to import. An API in this process reads them as a stream. For an API in another process, the client reads the
//! whole file first.

use std::{
    fs::File,
    io::{Read, stdin},
    path::Path,
};

use anyhow::Context;

/// A file to import.
pub(in crate::cli) struct ImportSource {
    pub(super) name: String,
    pub(super) reader: Box<dyn Read + Send>,
}

impl ImportSource {
    /// Opens a file. "-" is standard input.
    pub(in crate::cli) fn open(file: &Path) -> anyhow::Result<Self> {
        let name = file.display().to_string();
        if file == Path::new("-") {
            return Ok(Self { name, reader: Box::new(stdin()) });
        }
        let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
        Ok(Self { name, reader: Box::new(opened) })
    }
}
