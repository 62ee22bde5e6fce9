//! `dispatchq push-keys FILE`: creates the key pair of push messages.

use std::{io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf, process::ExitCode};

use anyhow::Context;
use notify::channels::push::vapid::generate_keys;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dispatchq push-keys /etc/dispatchq/push-key.pem\n\n\
    Only the owner can read the file. An existing file is kept: browsers accept only messages with the key that\n\
    they subscribed with.")]
pub(super) struct Args {
    /// File for the private key
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Args {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let keys = generate_keys().map_err(|_| anyhow::anyhow!("no random numbers are available"))?;
        let file = self.file.display();
        let mut options = std::fs::OpenOptions::new();
        let created = options.write(true).create_new(true).mode(0o600).open(&self.file);
        created
            .and_then(|mut out| out.write_all(keys.private_pem.as_bytes()).and_then(|()| out.sync_all()))
            .with_context(|| format!("cannot create {file}"))?;
        let path = self.file.canonicalize().with_context(|| format!("cannot find {file}"))?;
        println!("Public key   {}", keys.public);
        println!("Private key  {} (only its owner can read it)", path.display());
        println!("\nAdd to the configuration of all processes:\n");
        println!("[push]");
        println!("private_key_file = {}", toml::Value::from(path.display().to_string()));
        println!("subject = \"mailto:ops@example.com\"");
        Ok(ExitCode::SUCCESS)
    }
}
