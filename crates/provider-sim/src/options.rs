//! What is decided when the simulator starts.

use std::{fmt, net::SocketAddr};

use clap::{Args, FromArgMatches};

use super::knobs::ProviderKnobs;

#[derive(Clone, Args)]
pub struct ProviderSimOptions {
    /// Listen here; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub bind: SocketAddr,
    /// Serve /_sim here, too; loopback only
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub control: SocketAddr,
    /// The key calls must bear
    #[arg(
        long,
        value_name = "KEY",
        env = "PROVIDER_SIM_API_KEY",
        hide_env_values = true,
        default_value = "provider-sim-key"
    )]
    pub api_key: String,
    /// Decides what happens to each transaction: the same seed and id, the same fate
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub knobs: ProviderKnobs,
}

impl Default for ProviderSimOptions {
    /// As on an empty command line, but for the environment.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("options")).mut_args(|arg| arg.env(None::<&str>));
        Self::from_arg_matches(&command.get_matches_from(["options"]))
            .expect("every option has a default that parses; a test holds this")
    }
}

impl fmt::Debug for ProviderSimOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSimOptions")
            .field("bind", &self.bind)
            .field("seed", &self.seed)
            .field("knobs", &self.knobs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_parse_and_secrets_are_not_shown() {
        let options = ProviderSimOptions { api_key: "hunter2".to_owned(), ..ProviderSimOptions::default() };
        assert_eq!((options.seed, &options.knobs), (1, &ProviderKnobs::default()));
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
