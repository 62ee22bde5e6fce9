//! Waits until processes that show it are ready.

use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::time::{Instant, sleep};

use super::{api::ApiClient, processes::ChildProcesses};

/// What they may take.
const START_WAIT: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(50);

impl ChildProcesses {
    /// Waits until each `serve`, and each worker that shows its metrics, is ready. Fails when one ends by itself.
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
