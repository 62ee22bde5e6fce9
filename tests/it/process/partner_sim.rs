//! `dispatchq partner-sim` as a process.

use foundation::outbound;
use serde_json::{Value, json};

use crate::support::{Child, eventually, run_binary, secs};

fn first_line(child: &Child) -> Option<Value> {
    serde_json::from_str(child.log().lines().next()?).ok()
}

#[tokio::test]
async fn simulator_prints_address_and_summary() {
    let dir = tempfile::tempdir().unwrap();
    let mut sim = Child::spawn(dir.path(), "partner-sim", &["partner-sim", "--json", "--api-key", "s3cret"], &[]);
    eventually("it says where it is", || async { first_line(&sim).is_some() }).await;
    let said = first_line(&sim).unwrap();
    assert_eq!((&said["api_key"], &said["callback_url"]), (&json!("s3cret"), &Value::Null));

    let url = |base: &str, path: &str| format!("{}{path}", said[base].as_str().unwrap());
    let client = outbound::build_client(secs(20)).unwrap();
    let booking = json!({
        "reference": "O:1", "order_id": "O", "attempt": 1, "service_type": "TAXI",
        "pickup": { "latitude": -6.2, "longitude": 106.8 },
    });
    let request = client.post(url("url", "/bookings")).bearer_auth("s3cret").header("idempotency-key", "O:1");
    let booked = request.json(&booking).send().await.unwrap();
    assert_eq!(booked.status(), 201, "{booked:?}");
    let booked: Value = booked.json().await.unwrap();
    for base in ["url", "control_url"] {
        let state: Value = client.get(url(base, "/_sim/state")).send().await.unwrap().json().await.unwrap();
        assert_eq!(state["open"], json!([booked["booking_id"]]));
    }

    sim.terminate();
    assert_eq!(sim.ended().await.code(), Some(0));
    let log = sim.log();
    let summary = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).nth(1).unwrap();
    assert_eq!((&summary["bookings"], &summary["open_bookings"]), (&json!(1), &json!(1)));
}

#[test]
fn wrong_usage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for (args, code, said) in [
        (["--driver-rate", "90"], 2, "0 to 1"),
        (["--job-id-delay", "50% 1s"], 2, "not 100 %"),
        (["--outage", "now"], 2, "60s+10m"),
        (["--speed", "0"], 2, "expected a number"),
        (["--callback-url", "example.org"], 2, "http://"),
        (["--callback-secret", "not base64!"], 1, "whsec_"),
        (["--control", "0.0.0.0:0"], 1, "loopback"),
    ] {
        let printed = run_binary(dir.path(), &["partner-sim", args[0], args[1]], &[]);
        assert_eq!(printed.code, Some(code), "{args:?}: {printed:?}");
        assert!(printed.stderr.contains(said), "{args:?}: {printed:?}");
    }
    let both = ["partner-sim", "--hang-rate", "0.6", "--reset-rate", "0.6"];
    let printed = run_binary(dir.path(), &both, &[]);
    assert!(printed.code == Some(1) && printed.stderr.contains("must not exceed 1"), "{printed:?}");
}
