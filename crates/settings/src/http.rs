//! `[http]`: listeners and limits of `serve`.

use std::{net::IpAddr, time::Duration};

use garde::Validate;
use ipnet::{IpNet, Ipv4Net};
use model::{
    bounds::{HOUR, MS, NONE, number_within, time_within},
    duration,
};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use foundation::config::{
    address::{be_bind, be_bind_or_empty},
    error::ConfigError,
};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct HttpConfig {
    #[garde(custom(be_bind))]
    pub bind: String,
    #[garde(custom(be_bind_or_empty))]
    pub admin_bind: String,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=HOUR)))]
    pub keep_alive: Duration,
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
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=HOUR)))]
    pub max_lateness: Duration,
    #[garde(custom(name_networks))]
    pub trusted_proxies: Vec<String>,
    /// Scheme and host of addresses that people open. Required for `driver_page` and `tracking`.
    #[garde(custom(be_origin_or_empty))]
    pub public_url: String,
    /// Whether `serve` serves the page for drivers.
    #[garde(custom(need_public_url(&self.public_url)))]
    pub driver_page: bool,
    /// Whether `serve` serves the reference of the API.
    pub docs: bool,
    /// Whether endpoints created by API may have an http or https URL on this machine.
    pub local_webhooks: bool,
    /// Whether new orders have a link to the page for customers, which `serve` serves.
    #[garde(custom(need_public_url(&self.public_url)))]
    pub tracking: bool,
}

impl HttpConfig {
    /// Returns the public address of a path.
    pub fn public_address(&self, path: &str) -> String {
        format!("{}{path}", self.public_url.trim_end_matches('/'))
    }

    /// Returns the networks whose `X-Forwarded-For` is trusted. IPv6-mapped IPv4 networks become IPv4, because peer
    /// addresses are compared in that form.
    pub fn trusted_networks(&self) -> Result<Vec<IpNet>, ConfigError> {
        parse_networks(&self.trusted_proxies)
            .map_err(|problem| ConfigError::new(problem).within("http.trusted_proxies"))
    }
}

fn parse_networks(texts: &[String]) -> Result<Vec<IpNet>, String> {
    let network = |text: &String| {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(unmap).map_err(|_| format!("'{text}' is neither an address nor a network"))
    };
    texts.iter().map(network).collect()
}

fn unmap(network: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    let IpNet::V6(v6) = network else { return network };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED));
    let v4 = v4.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}

/// Checks the public address: a scheme, a host and perhaps a port, without a login, a path or a query.
fn be_origin_or_empty(text: &str, (): &()) -> garde::Result {
    let is_origin = |url: Url| {
        let origin = url.origin().ascii_serialization();
        matches!(url.scheme(), "http" | "https") && text.trim_end_matches('/') == origin
    };
    if text.is_empty() || text.parse().is_ok_and(is_origin) {
        return Ok(());
    }
    Err(garde::Error::new("must be an address such as https://dispatch.example.com, without a path"))
}

/// Checks that pages with links have the address that the links start with. The address of `bind` would not work on the
/// phones of other people.
fn need_public_url(public_url: &str) -> impl Fn(&bool, &()) -> garde::Result {
    move |is_on, ()| {
        if *is_on && public_url.is_empty() {
            let cure =
                "needs http.public_url; set it to the address that people open, such as https://dispatch.example.com";
            return Err(garde::Error::new(cure));
        }
        Ok(())
    }
}

/// Checks that proxies are addresses or networks.
fn name_networks(texts: &[String], (): &()) -> garde::Result {
    parse_networks(texts).map(drop).map_err(garde::Error::new)
}
