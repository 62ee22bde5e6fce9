//! The external systems: one server that receives webhooks and acts as partner and provider by a script. The requests
//! that it receives are part of the recording.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

/// Secret for signatures of webhooks and callbacks.
pub const SECRET: &str = "whsec_YmFzZWxpbmUgYmFzZWxpbmUgYmFzZWxpbmUh";

/// A request sent by dispatchq.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
    /// Whether the webhook signature is valid.
    pub signed: bool,
}

/// Shared state of the server.
#[derive(Default)]
struct Seen {
    requests: Vec<Received>,
    /// Number of status requests for each booking or transaction.
    asks: HashMap<String, usize>,
}

#[derive(Clone)]
pub struct Stubs {
    address: String,
    seen: Arc<Mutex<Seen>>,
}

impl Stubs {
    pub async fn start() -> Stubs {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let stubs = Stubs { address, seen: Arc::default() };
        let router = Router::new().fallback(answer).with_state(stubs.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        stubs
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the number of requests so far, without status polls of bookings, which repeat while an order waits.
    pub fn count(&self) -> usize {
        self.received().iter().filter(|request| !request.path.contains("job-status")).count()
    }

    pub fn received(&self) -> Vec<Received> {
        self.seen.lock().expect("no panic").requests.clone()
    }

    /// Returns the number of earlier requests of this kind and increments it.
    fn asked(&self, what: &str) -> usize {
        let mut seen = self.seen.lock().expect("no panic");
        let asks = seen.asks.entry(what.to_owned()).or_default();
        *asks += 1;
        *asks - 1
    }
}

async fn answer(State(stubs): State<Stubs>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.to_string();
    let body = String::from_utf8_lossy(&body).into_owned();
    let json: Value = serde_json::from_str(&body).unwrap_or_default();
    let signed = is_signed(&headers, &body);
    let request = Received { path: format!("{method} {path}"), headers, body, signed };
    let answer = match path.trim_start_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["hooks", "gone"] => (StatusCode::GONE, json!({})),
        ["partner", "bookings"] => {
            let reference = json["reference"].as_str().unwrap_or_default().replace(':', "-");
            (StatusCode::CREATED, json!({ "booking_id": format!("BK-{reference}") }))
        }
        ["partner", "bookings", booking, "cancel"] => {
            (StatusCode::OK, json!({ "booking_id": booking, "status": "cancelled" }))
        }
        ["partner", status] => (StatusCode::OK, job_status(&stubs, status)),
        ["provider", _, call] => (StatusCode::OK, transaction(call, &json)),
        _ => (StatusCode::OK, json!({})),
    };
    stubs.seen.lock().expect("no panic").requests.push(request);
    (answer.0, axum::Json(answer.1)).into_response()
}

/// Checks a webhook as a receiver would, except for its age, because the time is that of the moved clock.
fn is_signed(headers: &HeaderMap, body: &str) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(time)) = (header("webhook-id"), header("webhook-timestamp").and_then(|time| time.parse().ok()))
    else {
        return false;
    };
    let webhook = Webhook::new(SECRET).expect("a secret");
    webhook.sign(id, time, body.as_bytes()).ok().as_deref() == header("webhook-signature")
}

/// Returns the status of a booking. Each poll advances it by one step. The first booking of some orders finds no
/// driver.
fn job_status(stubs: &Stubs, query: &str) -> Value {
    let booking = query.split('=').next_back().unwrap_or_default();
    let (job, driver) = (format!("J-{booking}"), format!("P-{booking}"));
    let status = |job: Option<&str>, status: &str, driver: Option<&str>| json!({ "booking_id": booking, "job_id": job, "status": status, "driver_id": driver });
    if booking.starts_with("BK-taxi-second") && booking.ends_with("-1") {
        return status(Some(&job), "no_driver", None);
    }
    if booking.starts_with("BK-taxi-callback") {
        return status(None, "searching", None);
    }
    match stubs.asked(booking) {
        0 => status(None, "searching", None),
        1 => status(Some(&job), "searching", None),
        2 => status(Some(&job), "driver_assigned", Some(&driver)),
        3 => status(Some(&job), "picked_up", Some(&driver)),
        _ => status(Some(&job), "completed", Some(&driver)),
    }
}

/// Returns the result of a transaction. The account name decides it.
fn transaction(call: &str, json: &Value) -> Value {
    let account = json["account_id"].as_str().unwrap_or_default();
    let kind = account.rsplit_once('-').map_or(account, |(kind, _)| kind);
    let first = json["cycle"] == 1;
    let (status, reason) = match (kind, call) {
        ("processing", "start_transaction") => ("PROCESSING", None),
        ("otp" | "otp-wrong" | "otp-late", "start_transaction") => ("WAITING_OTP", None),
        (_, "otp") if json["otp"] != "123456" => ("GAGAL", Some("wrong_otp")),
        ("balance", _) if !first => ("GAGAL", Some("insufficient_balance_before_start")),
        ("locked", _) => ("GAGAL", Some("account_locked")),
        ("open" | "open-stop", _) => ("PROCESSING", None),
        ("otp-late", "status") => ("GAGAL", Some("otp_expired")),
        _ => ("SUKSES", None),
    };
    json!({ "trx_id": json["trx_id"], "status": status, "reason": reason, "provider_ref": format!("REF-{account}") })
}
