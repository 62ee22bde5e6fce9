//! `dispatchq man DIRECTORY`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;

#[derive(Debug, clap::Args)]
#[command(after_help = "To read the pages: man -l DIRECTORY/dispatchq.1\n\
    To install them, write them into a directory of manpath, such as /usr/local/share/man/man1")]
pub(super) struct Args {
    /// Existing directory for the pages
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Args {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        clap_mangen::generate_to(super::command(), &self.directory)
            .with_context(|| format!("cannot write the manual pages to {}", self.directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
