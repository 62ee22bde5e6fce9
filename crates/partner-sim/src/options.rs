//! Settings that are fixed when the simulator starts.

use std::{fmt, net::SocketAddr, time::Duration};

use clap::{Args, FromArgMatches};

use super::{knobs::PartnerKnobs, values::parse_duration};

#[derive(Clone, Args)]
pub struct PartnerSimOptions {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub bind: SocketAddr,
    /// Address to serve /_sim on, also during outages; loopback only
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub control: SocketAddr,
    /// Key that requests must send
    #[arg(
        long,
        value_name = "KEY",
        env = "PARTNER_SIM_API_KEY",
        hide_env_values = true,
        default_value = "partner-sim-key"
    )]
    pub api_key: String,
    /// Secret that signs callbacks
    #[arg(
        long,
        value_name = "WHSEC",
        env = "PARTNER_SIM_CALLBACK_SECRET",
        hide_env_values = true,
        default_value = "whsec_ZGlzcGF0Y2hxIHBhcnRuZXIgc2ltdWxhdG9y"
    )]
    pub callback_secret: String,
    /// Seed of all random choices; the same seed and reference give the same fate
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Speed of the simulation; divides simulated durations only
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = parse_speed)]
    pub speed: f64,
    /// Time that finished bookings can be queried, in simulated time
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub keep_finished: Duration,
    #[command(flatten)]
    pub knobs: PartnerKnobs,
}

impl Default for PartnerSimOptions {
    /// Returns the defaults of the command line, without the environment.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("options")).mut_args(|arg| arg.env(None::<&str>));
        Self::from_arg_matches(&command.get_matches_from(["options"]))
            .expect("every option has a default that parses; a test checks this")
    }
}

impl fmt::Debug for PartnerSimOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("bind", &self.bind)
            .field("seed", &self.seed)
            .field("speed", &self.speed)
            .field("knobs", &self.knobs)
            .finish_non_exhaustive()
    }
}

/// Parses a speed. Below 0.1, a timer could exceed the two years that the timer queue supports.
pub fn parse_speed(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| (0.1..=1e6).contains(x))
        .ok_or_else(|| "expected a number from 0.1 to 1000000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_parse() {
        let options = PartnerSimOptions::default();
        assert_eq!((options.seed, options.speed), (1, 1.0));
        assert_eq!(options.knobs, PartnerKnobs::default());
    }

    #[test]
    fn debug_output_hides_secrets() {
        let options = PartnerSimOptions { api_key: "hunter2".to_owned(), ..PartnerSimOptions::default() };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
