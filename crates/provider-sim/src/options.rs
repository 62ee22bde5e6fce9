//! Settings that are fixed when the simulator starts.

use std::{fmt, net::SocketAddr};

use clap::{Args, FromArgMatches};

use super::knobs::ProviderKnobs;

#[derive(Clone, Args)]
pub struct ProviderSimOptions {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub bind: SocketAddr,
    /// Second address to serve /_sim on; loopback only
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub control: SocketAddr,
    /// Key that calls must send
    #[arg(
        long,
        value_name = "KEY",
        env = "PROVIDER_SIM_API_KEY",
        hide_env_values = true,
        default_value = "provider-sim-key"
    )]
    pub api_key: String,
    /// Seed of all random choices; the same seed and id give the same fate
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub knobs: ProviderKnobs,
}

impl Default for ProviderSimOptions {
    /// Returns the defaults of the command line, without the environment.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("options")).mut_args(|arg| arg.env(None::<&str>));
        Self::from_arg_matches(&command.get_matches_from(["options"]))
            .expect("every option has a default that parses; a test checks this")
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
    fn default_options_parse_and_hide_secrets() {
        let options = ProviderSimOptions { api_key: "hunter2".to_owned(), ..ProviderSimOptions::default() };
        assert_eq!((options.seed, &options.knobs), (1, &ProviderKnobs::default()));
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
