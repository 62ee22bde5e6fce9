//! `dispatchq config show|check`.

use std::{path::Path, process::ExitCode};

use super::output;
use app::settings;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Print every setting in effect, without secrets
    Show {
        #[arg(long)]
        json: bool,
    },
    /// Check that the configuration is valid
    Check,
}

impl Command {
    pub(super) fn run(self, file: Option<&Path>) -> anyhow::Result<ExitCode> {
        let config = settings::load_config(file)?;
        match self {
            Self::Show { json: true } => output::print_json(&config.without_secrets())?,
            Self::Show { json: false } => output::print_text(toml::to_string(&config.without_secrets())?.trim_end()),
            Self::Check => {
                println!("The configuration is valid.");
                config.describe_ignored_variables().iter().for_each(|line| output::print_escaped(line));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
