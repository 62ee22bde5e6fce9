//! `[http]`: what `serve` binds, and how much of whom it takes.

use std::{net::IpAddr, time::Duration};

use garde::Validate;
use ipnet::IpNet;
use model::{
    bounds::{HOUR, MS, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

use super::ConfigError;

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct HttpConfig {
    pub bind: String,
    pub admin_bind: String,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=HOUR)))]
    pub keep_alive: Duration,
    /// Every producer reads and changes every order, as one domain.
    pub producers_share_orders: bool,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=HOUR)))]
    pub first_head: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=HOUR)))]
    pub write: Duration,
    #[garde(custom(number_within(0.0..=10_000_000.0)))]
    pub max_connections: u32,
    #[garde(custom(number_within(0.0..=10_000_000.0)))]
    pub max_connections_per_address: u32,
    #[garde(custom(number_within(0.0..=10_000_000.0)))]
    pub requests_per_s_per_key: u32,
    #[garde(custom(number_within(0.0..=10_000_000.0)))]
    pub failures_per_min_per_address: u32,
    #[garde(custom(name_networks))]
    pub trusted_proxies: Vec<String>,
}

impl HttpConfig {
    /// The networks whose word about a client's address is believed.
    pub fn trusted_networks(&self) -> Result<Vec<IpNet>, ConfigError> {
        parse_networks(&self.trusted_proxies)
            .map_err(|problem| ConfigError::new(problem).within("http.trusted_proxies"))
    }
}

fn parse_networks(texts: &[String]) -> Result<Vec<IpNet>, String> {
    let network = |text: &String| {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map_err(|_| format!("'{text}' is no address and no network"))
    };
    texts.iter().map(network).collect()
}

/// The rule of proxies: addresses and networks.
fn name_networks(texts: &[String], (): &()) -> garde::Result {
    parse_networks(texts).map(drop).map_err(garde::Error::new)
}
