//! Waits until processes that serve their health are ready.

use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::time::{Instant, sleep};

use super::{api::ApiClient, processes::ChildProcesses};

/// Timeout for the start of all processes.
const START_WAIT: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(50);

impl ChildProcesses {
    /// Waits until each `serve`, and each worker that serves metrics, is ready. Fails if one ends unexpectedly.
    pub(crate) async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WAIT;
        let mut addresses = self.serve_addresses();
        addresses.extend(self.worker_metrics().into_iter().map(|(_, address)| address));
        addresses.retain(|address| !address.is_empty());
        for address in addresses {
            let process = ApiClient::new(format!("http://{address}"))?;
            while !process.is_ready().await {
                if let Some(ended) = self.replace_ended()?.pop() {
                    bail!("{ended}");
                }
                ensure!(Instant::now() < deadline, "{address} is not ready within {START_WAIT:?}");
                sleep(START_POLL).await;
            }
        }
        Ok(())
    }
}
