//! `[http]`: what `serve` binds, and how much of whom it takes.

use std::{net::IpAddr, time::Duration};

use anyhow::Context;
use ipnet::IpNet;
use model::duration;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    pub bind: String,
    pub admin_bind: String,
    #[serde(with = "duration")]
    pub keep_alive: Duration,
    /// Every producer reads and changes every order, as one domain.
    pub producers_share_orders: bool,
    #[serde(with = "duration")]
    pub first_head: Duration,
    #[serde(with = "duration")]
    pub write: Duration,
    pub max_connections: u32,
    pub max_connections_per_address: u32,
    pub requests_per_s_per_key: u32,
    pub failures_per_min_per_address: u32,
    pub trusted_proxies: Vec<String>,
}

impl HttpConfig {
    /// The networks whose word about a client's address is believed.
    pub fn trusted_networks(&self) -> anyhow::Result<Vec<IpNet>> {
        let network = |text: &String| {
            let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.with_context(|| format!("http.trusted_proxies: '{text}' is no address and no network"))
        };
        self.trusted_proxies.iter().map(network).collect()
    }
}
