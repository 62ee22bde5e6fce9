//! `dispatchq health`: reads the health of a running process, for container health checks and for people.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::anyhow;
use model::{
    bounds::{HOUR, MS},
    duration::parse_within,
};
use reqwest::{Url, redirect::Policy};

use super::output;
use app::settings;
use foundation::outbound;
use settings::Config;

/// Maximum characters of the answer that are printed. With `--url` any server may answer.
const SHOWN_CHARS: usize = 500;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 if the process is unhealthy or does not answer.\n\nExamples:\n  dispatchq health\n  \
                  dispatchq health --worker --ready\n  dispatchq health --ready --url http://10.0.0.7:9090"
)]
pub(super) struct Args {
    /// Check whether the process is ready (/readyz), not only alive (/healthz)
    #[arg(long)]
    ready: bool,
    /// Check the worker at worker.admin_bind instead of the API at http.admin_bind
    #[arg(long, conflicts_with = "url")]
    worker: bool,
    /// Address of the process; no configuration is read
    #[arg(long, value_parser = parse_process_url)]
    url: Option<Url>,
    /// Timeout for the answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_within(MS..=HOUR))]
    timeout: Duration,
}

impl Args {
    pub(super) async fn run(self, file: Option<&Path>) -> anyhow::Result<ExitCode> {
        let process = match self.url {
            Some(url) => url,
            None => find_admin_url(&settings::load_config(file)?, self.worker)?,
        };
        let url = process.join(if self.ready { "/readyz" } else { "/healthz" })?;
        let shown = format!("{}{}", url.origin().ascii_serialization(), url.path());
        // A proxy from the environment could not reach this host's addresses.
        let client = outbound::client_builder().no_proxy().redirect(Policy::none()).timeout(self.timeout).build()?;
        let no_answer = |error: reqwest::Error| {
            let reason = outbound::describe_error(&error);
            anyhow!("{shown} does not answer: {reason}; is the process running, and is this its address?")
        };
        let answer = client.get(url).send().await.map_err(no_answer)?;
        let status = answer.status();
        let body = answer.text().await.map_err(no_answer)?;
        output::print_escaped(&format!("{shown} answers {status}: {}", output::shorten_text(body.trim(), SHOWN_CHARS)));
        Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Parses the address of a process, such as `http://10.0.0.7:9090`.
fn parse_process_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_address = matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none();
    if is_address { Ok(url) } else { Err("expected http://HOST:PORT, without a path".to_owned()) }
}

/// Returns the configured health address of a process on this host.
fn find_admin_url(config: &Config, of_worker: bool) -> anyhow::Result<Url> {
    let (setting, address) = if of_worker {
        ("worker.admin_bind", &config.worker.admin_bind)
    } else {
        ("http.admin_bind", &config.http.admin_bind)
    };
    if address.is_empty() {
        return Err(anyhow!("{setting} is empty, so the process does not serve its health; set it, or pass --url"));
    }
    let url = format!("http://{}", local_address(address));
    Url::parse(&url).map_err(|error| anyhow!("{setting} is not an address: {error}; expected host:port"))
}

/// Returns the address to connect to for a bound address. A wildcard address becomes the loopback address.
fn local_address(bound: &str) -> String {
    match bound.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            let ip = if address.is_ipv4() { IpAddr::from(Ipv4Addr::LOCALHOST) } else { Ipv6Addr::LOCALHOST.into() };
            SocketAddr::new(ip, address.port()).to_string()
        }
        _ => bound.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_address_becomes_loopback() {
        for (bound, asked) in [
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:9090", "[::1]:9090"),
            ("10.0.0.7:9090", "10.0.0.7:9090"),
            ("localhost:9090", "localhost:9090"),
        ] {
            assert_eq!(local_address(bound), asked);
        }
    }

    #[test]
    fn process_address_has_no_path() {
        assert_eq!(parse_process_url("http://10.0.0.7:9090").unwrap().as_str(), "http://10.0.0.7:9090/");
        for wrong in ["10.0.0.7:9090", "localhost:9090", "http://10.0.0.7:9090/readyz", "ftp://10.0.0.7"] {
            assert!(parse_process_url(wrong).is_err(), "{wrong}");
        }
    }
}
