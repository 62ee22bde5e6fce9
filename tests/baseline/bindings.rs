//! Fifty bindings. The account name decides the result of its transactions: see `stubs::transaction`.

use reqwest::Method;
use serde_json::json;

use crate::cast::Cast;

/// Kind of account, and number of bindings.
const KINDS: [(&str, usize); 10] = [
    ("plain", 12),
    ("paused", 4),
    ("processing", 6),
    ("otp", 6),
    ("otp-wrong", 4),
    ("otp-late", 4),
    ("balance", 4),
    ("locked", 4),
    ("open", 3),
    ("open-stop", 3),
];

const INTERVAL_MS: u32 = 600_000;
/// Seconds until the next cycle is due, and until an OTP or an open transaction has taken too long.
const NEXT_CYCLE: i64 = 601;
const TOO_LONG: i64 = 121;

fn bindings(kind: &str) -> Vec<String> {
    let count = KINDS.iter().find(|(name, _)| *name == kind).expect("a kind").1;
    (0..count).map(|n| format!("{kind}-{n:03}")).collect()
}

fn all() -> Vec<String> {
    KINDS.iter().flat_map(|(kind, _)| bindings(kind)).collect()
}

/// Starts all bindings, runs them for at most three cycles, and stops them.
pub async fn play(cast: &Cast) {
    create(cast).await;
    cast.each(&all(), async |id| verb(cast, id, "start").await).await;
    cast.world.quiet().await;
    hand_in_otps(cast, 1).await;
    for binding in bindings("paused") {
        verb(cast, &binding, "pause").await;
    }
    // OTPs without input and open transactions time out.
    cast.world.jump(TOO_LONG).await;
    for binding in bindings("open").into_iter().chain(bindings("open-stop")) {
        until_unresolved(cast, &binding, 1).await;
    }
    for cycle in 2..4 {
        cast.world.jump(NEXT_CYCLE).await;
        cast.world.quiet().await;
        hand_in_otps(cast, cycle).await;
        if cycle == 2 {
            for binding in bindings("paused") {
                verb(cast, &binding, "resume").await;
            }
        }
    }
    // Their third cycle is never due.
    for binding in bindings("open") {
        until_unresolved(cast, &binding, 2).await;
    }
    stop(cast).await;
}

async fn until_unresolved(cast: &Cast, binding: &str, cycle: usize) {
    let query = format!("SELECT status FROM audit_transactions WHERE binding_id = $1 AND cycle = {cycle}");
    cast.world.until_row(&query, binding, "UNRESOLVED").await;
}

async fn create(cast: &Cast) {
    for server in ["S1", "S2"] {
        let url = format!("http://{}/provider/{server}", cast.world.stubs.address());
        let body =
            json!({ "id": server, "provider": "sim", "base_url": url, "max_concurrent": 4, "reason": "baseline" });
        cast.post("operator", "/api/v1/provider-servers", body).await;
    }
    for id in &all() {
        let policy = if id.starts_with("open-stop") { "stop" } else { "continue" };
        let config = json!({
            "interval_ms": [INTERVAL_MS, INTERVAL_MS], "cooldown_on_error_ms": [INTERVAL_MS, INTERVAL_MS],
            "processing_timeout_ms": 120_000, "on_processing_timeout": policy, "otp_timeout_ms": 120_000,
            "on_otp_timeout": "stop", "otp_attempts": 2, "max_failures": 2,
        });
        let server = if id.starts_with('p') { "S1" } else { "S2" };
        let body = json!({ "id": id, "server_id": server, "account_id": id, "config": config, "reason": "baseline" });
        cast.post("operator", "/api/v1/bindings", body).await;
    }
}

async fn verb(cast: &Cast, id: &str, verb: &str) {
    cast.post("operator", &format!("/api/v1/bindings/{id}/{verb}"), json!({ "reason": "baseline" })).await;
}

/// Sends the OTP of each waiting transaction as support. Some OTPs are wrong at first.
async fn hand_in_otps(cast: &Cast, cycle: usize) {
    let (right, wrong) = (bindings("otp"), bindings("otp-wrong"));
    cast.each(&wrong, async |id| hand_in(cast, id, cycle, "000000").await).await;
    cast.world.quiet().await;
    let both: Vec<_> = right.into_iter().chain(wrong).collect();
    cast.each(&both, async |id| hand_in(cast, id, cycle, "123456").await).await;
    cast.world.quiet().await;
}

async fn hand_in(cast: &Cast, id: &str, cycle: usize, otp: &str) {
    cast.world.until_row("SELECT phase FROM audit_bindings WHERE binding_id = $1", id, "WAITING_OTP").await;
    let body = json!({ "trx_id": format!("{id}.{cycle}"), "otp": otp });
    cast.post("support", &format!("/api/v1/bindings/{id}/otp"), body).await;
}

async fn stop(cast: &Cast) {
    for path in ["?limit=2", "/plain-000", "/plain-000/explain", "/plain-000/transactions", "/open-000"] {
        cast.ask("viewer", Method::GET, &format!("/api/v1/bindings{path}"), None).await;
    }
    let filter = json!({ "filter": { "state": "RUNNING" }, "action": "stop", "reason": "baseline", "dry_run": false });
    cast.post("operator", "/api/v1/bindings/actions", filter).await;
    cast.world.until_row("SELECT count(*) FROM audit_bindings WHERE state <> 'STOPPED' AND $1 = $1", "", "0").await;
    cast.world.quiet().await;
}
