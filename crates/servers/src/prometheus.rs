//! A private Prometheus that scrapes processes of this machine and evaluates given rules.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{
    ServerError,
    error::IoErrorContext,
    home::ServerHome,
    programs,
    server::{ManagedServer, ServerKind},
};

const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Settings of a private Prometheus.
#[derive(Clone, Debug)]
pub struct ScrapeSettings {
    /// Addresses of the metrics endpoints, such as `127.0.0.1:9090`.
    pub targets: Vec<String>,
    /// Names and contents of rule files.
    pub rules: Vec<(&'static str, &'static str)>,
    /// Interval of scrapes and of rule evaluations. Whole seconds.
    pub interval: Duration,
}

/// A private Prometheus with throw-away data. Dropping it ends the process.
#[derive(Debug)]
pub struct PrometheusServer(ManagedServer<PrometheusSetup>);

impl PrometheusServer {
    /// Starts on a free port. Prometheus may not have scraped yet when this returns.
    pub async fn start(settings: &ScrapeSettings) -> Result<PrometheusServer, ServerError> {
        let kind = PrometheusSetup { program: programs::find_prometheus()? };
        let home = ServerHome::throw_away(&env::temp_dir(), "dispatchq-prometheus-")?;
        for (name, text) in &settings.rules {
            fs::write(home.dir().join(name), text).while_doing(|| format!("write {name}"))?;
        }
        fs::write(home.dir().join(CONFIG), render_config(settings)).while_doing(|| format!("write {CONFIG}"))?;
        let mut server = ManagedServer::new(kind, home)?;
        server.start(None).await?;
        Ok(PrometheusServer(server))
    }

    /// Returns the base URL, such as `http://127.0.0.1:9090`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

const CONFIG: &str = "prometheus.yml";

/// Renders the configuration as YAML. Rust's debug format quotes addresses and names as YAML needs it.
fn render_config(settings: &ScrapeSettings) -> String {
    let seconds = settings.interval.as_secs().max(1);
    let rules: Vec<_> = settings.rules.iter().map(|(name, _)| name).collect();
    format!(
        "global: {{ scrape_interval: {seconds}s, evaluation_interval: {seconds}s }}\n\
         rule_files: {rules:?}\n\
         scrape_configs:\n\
         - job_name: dispatchq\n\
         \x20 static_configs: [{{ targets: {:?} }}]\n",
        settings.targets
    )
}

#[derive(Debug)]
struct PrometheusSetup {
    program: PathBuf,
}

impl ServerKind for PrometheusSetup {
    const NAME: &'static str = "prometheus";
    const STOP: Signal = Signal::SIGTERM;
    const QUIT: Signal = Signal::SIGKILL;

    fn server_command(&self, home: &ServerHome, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--config.file={}", home.dir().join(CONFIG).display()))
            .arg(format!("--storage.tsdb.path={}", home.dir().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command
    }

    /// A Prometheus that finds its port taken ends, and the start notices the exit first.
    async fn is_ready(&self, port: u16, _: u32) -> bool {
        matches!(tokio::time::timeout(ANSWER_WAIT, says_ready(port)).await, Ok(Ok(true)))
    }
}

async fn says_ready(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /-/ready HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().is_some_and(|status| status.contains(" 200 ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_contains_rules_and_targets() {
        let settings = ScrapeSettings {
            targets: vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()],
            rules: vec![("alerts.yml", "")],
            interval: Duration::from_secs(5),
        };
        let text = render_config(&settings);
        assert!(text.contains("scrape_interval: 5s"), "{text}");
        assert!(text.contains("rule_files: [\"alerts.yml\"]"), "{text}");
        assert!(text.contains("  static_configs: [{ targets: [\"127.0.0.1:1\", \"127.0.0.1:2\"] }]"), "{text}");
    }
}
