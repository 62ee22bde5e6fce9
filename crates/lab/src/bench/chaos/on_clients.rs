//! Faults caused by malicious clients.

use std::time::Duration;

use rand::random;
use tokio::{task::JoinSet, time::Instant};

use super::stage::ChaosStage;
use crate::bench::played::PlayedStage;

/// Number of concurrent clients. Each sends the next request as soon as it has an answer.
const CLIENTS: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Floods the API with wrong keys, some with the form of a key, and with readiness checks, which need no key.
pub(super) async fn flood_with_keys(stage: &mut ChaosStage, length: Duration) -> anyhow::Result<()> {
    let http = foundation::outbound::client_builder().no_proxy().timeout(TIMEOUT).build()?;
    let end = Instant::now() + length;
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let (http, base) = (http.clone(), stage.testbed.bases[n % stage.testbed.bases.len()].clone());
        clients.spawn(async move {
            let mut let_in = 0_u32;
            while Instant::now() < end {
                let asked = match n % 4 {
                    0 => http.get(format!("{base}/readyz")),
                    1 => http.post(format!("{base}/api/v1/orders")).bearer_auth("not a key").body("{}"),
                    _ => {
                        let key = format!("dq_{}", hex::encode(random::<[u8; 32]>()));
                        http.get(format!("{base}/api/v1/orders/none")).bearer_auth(key)
                    }
                };
                let answer = asked.send().await;
                let_in += u32::from(n % 4 != 0 && answer.is_ok_and(|answer| answer.status().is_success()));
            }
            let_in
        });
    }
    let waited = stage.wait_for(length).await;
    let let_in: u32 = clients.join_all().await.into_iter().sum();
    if let_in > 0 {
        stage.problems.push(format!("{let_in} requests with wrong keys were accepted"));
    }
    waited
}
