//! The proof of clients/README.md in Rust: proof SETTINGS, with the file that scripts/prove-clients writes.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use dispatchq_client::{
    ApiError, Client, Error, Method, NewOrder, OrderFilter, Orders, PaymentEventRequest, Place, Request, StepData,
    StepEvent, Verifier, WebhookError, WebhookEvent, verify_webhook,
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

#[derive(Deserialize, Clone)]
struct Settings {
    url: String,
    relay: String,
    key: String,
    port: u16,
    secret: String,
    secret_previous: String,
    webhooks: Vec<Webhook>,
}

#[derive(Deserialize, Clone)]
struct Webhook {
    name: String,
    body: String,
    headers: BTreeMap<String, String>,
    secrets: Vec<String>,
    now: u64,
    accepted: bool,
}

struct Delivery {
    event: WebhookEvent,
    step: StepData,
    body: Vec<u8>,
    headers: HeaderMap,
}

const PICKUP: Place = Place::new(-6.2088, 106.8456);
const TERMINAL: Place = Place::new(-6.12, 106.665);

fn fail(what: &str) -> ! {
    println!("FOUND   rust: {what}");
    std::process::exit(1);
}

fn check(what: &str, found: bool) {
    if !found {
        fail(what);
    }
    println!("ok      rust: {what}");
}

fn new_order(name: &str, pickup: Place) -> NewOrder {
    NewOrder::new("RIDE", pickup).id(format!("rust-{name}"))
}

fn api_error<T>(answer: Result<T, Error>) -> ApiError {
    let Err(error) = answer else { fail("an error answer is a success") };
    error.api().cloned().unwrap_or_else(|| fail(&format!("an error answer is {error:?}")))
}

fn is_refused(answer: Result<WebhookEvent, WebhookError>) -> bool {
    if answer.as_ref().err() == Some(&WebhookError::Secret) {
        fail("a secret is wrong");
    }
    answer.is_err()
}

/// Reads a request of HTTP/1.1 with a Content-Length.
async fn read_request(socket: &mut TcpStream) -> (HeaderMap, Vec<u8>) {
    let mut read = Vec::new();
    let head = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut read).await.unwrap() == 0 {
            fail("a webhook ends within its head");
        }
    };
    let mut headers = HeaderMap::new();
    for (name, value) in String::from_utf8_lossy(&read[..head]).lines().filter_map(|line| line.split_once(": ")) {
        headers.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    let mut body = read.split_off(head + 4);
    let length: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
    while body.len() < length {
        if socket.read_buf(&mut body).await.unwrap() == 0 {
            fail("a webhook ends within its body");
        }
    }
    (headers, body)
}

/// The producer's receiver. It answers 401 to a webhook without a valid signature.
async fn receive(listener: TcpListener, secret: String, received: mpsc::UnboundedSender<Delivery>) {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (headers, body) = read_request(&mut socket).await;
        let status = match verify_webhook(&body, &headers, &[&secret]) {
            Ok(event) => {
                let step = event.step().unwrap_or_else(|| fail("a step has no data"));
                let _ = received.send(Delivery { event, step, body, headers });
                "204 No Content"
            }
            Err(_) => "401 Unauthorized\r\nContent-Length: 0",
        };
        let _ = socket.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n").as_bytes()).await;
    }
}

async fn await_webhook(received: &mut mpsc::UnboundedReceiver<Delivery>, kind: &str, id: &str) -> Delivery {
    let found = async {
        loop {
            let delivery = received.recv().await.unwrap_or_else(|| fail("the receiver has ended"));
            if delivery.event.r#type == kind && delivery.step.order_id == id {
                return delivery;
            }
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), found).await;
    answer.unwrap_or_else(|_| fail(&format!("no webhook {kind} arrived within 60 s")))
}

async fn await_event(client: &Client, kind: &str, id: &str, after: Option<&str>) -> (StepEvent, String) {
    let mut pages = client.follow_events(after);
    while let Some(page) = pages.next().await.unwrap() {
        if let Some(event) = page.events.into_iter().find(|one| one.r#type == kind && one.data.order_id == id) {
            return (event, page.next);
        }
    }
    fail("the stream ended")
}

async fn ids(mut orders: Orders) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    while let Some(order) = orders.next().await? {
        found.push(order.order_id);
    }
    Ok(found)
}

fn check_webhooks(webhooks: &[Webhook]) {
    for one in webhooks {
        let mut headers = HeaderMap::new();
        for (name, value) in &one.headers {
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let secrets: Vec<&str> = one.secrets.iter().map(String::as_str).collect();
        let now = UNIX_EPOCH + Duration::from_secs(one.now);
        let answer = Verifier::new(&secrets).unwrap().verify_at(one.body.as_bytes(), &headers, now);
        if is_refused(answer) == one.accepted {
            fail(&format!("a webhook {}", one.name));
        }
    }
    let what = format!("{} webhooks are accepted or refused as they should be", webhooks.len());
    check(&what, webhooks.len() > 20);
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::args().nth(1).unwrap();
    let settings: Settings = serde_json::from_str(&std::fs::read_to_string(file).unwrap())?;
    check_webhooks(&settings.webhooks);
    let (deliver, mut received) = mpsc::unbounded_channel();
    let listener = TcpListener::bind(("127.0.0.1", settings.port)).await.unwrap();
    tokio::spawn(receive(listener, settings.secret.clone(), deliver));
    let relayed = Client::new(&settings.relay, &settings.key)?;
    let client = Client::new(&settings.url, &settings.key)?;

    // The address and the key in the wrong order.
    let Err(swapped) = Client::new(&settings.key, &settings.url) else { fail("a key is accepted as an address") };
    let printed = format!("{client:?} {:?} {swapped} {swapped:?}", client.orders(OrderFilter::default()));
    check("a client is printed without its key", printed.starts_with("Client") && !printed.contains(&settings.key));

    let made = relayed.create_order(&new_order("1", PICKUP), None).await?;
    let what = "an order is created although the first answer is lost and the next tries are refused";
    check(what, made.order_id == "rust-1");

    let key = Some("key-of-rust-2");
    let made = client.create_order(&new_order("2", PICKUP), key).await?;
    let again = client.create_order(&new_order("2", PICKUP), key).await?;
    let found = ids(client.orders(OrderFilter { q: Some("rust-2".to_owned()), ..OrderFilter::default() })).await?;
    check("the same key makes one order", made.created_at == again.created_at && found == ["rust-2"]);
    let error = api_error(client.create_order(&new_order("3", PICKUP), key).await);
    let code = error.error_code.as_deref();
    check("the same key for another order is refused", error.status == 422 && code == Some("IDEMPOTENCY_KEY_REUSED"));
    check("the order is read", client.get_order("rust-2").await?.order_id == "rust-2");
    let changed = client.update_order("rust-2", &serde_json::json!({ "notes": "Ring twice." })).await?;
    check("the contents of the order are changed", changed.notes.as_deref() == Some("Ring twice."));
    client.create_order(&new_order("3", PICKUP), None).await?;
    let listed = ids(client.orders(OrderFilter { limit: Some(1), ..OrderFilter::default() })).await?;
    check("a list is read page by page", listed == ["rust-3", "rust-2", "rust-1"]);

    let Delivery { event, step, mut body, headers } = await_webhook(&mut received, "order.created", "rust-2").await;
    check("a webhook reports the order", event.version == 1 && step.seq > 0);
    let previous = verify_webhook(&body, &headers, &[&settings.secret_previous]);
    check("it is signed by the previous secret too", previous.is_ok());
    let wrong = verify_webhook(&body, &headers, &[&format!("whsec_{}", "A".repeat(32))]);
    check("a wrong secret is refused", is_refused(wrong));
    body.push(b' ');
    check("a changed body is refused", is_refused(verify_webhook(&body, &headers, &[&settings.secret])));

    let (event, cursor) = await_event(&client, "order.created", "rust-2", None).await;
    check("the stream reports the order", event.data.seq == step.seq);
    let (mut pages, mut created) = (client.events(None, 1), Vec::new());
    while let Some(page) = pages.next().await? {
        let steps = page.events.into_iter().filter(|event| event.r#type == "order.created");
        created.extend(steps.map(|event| event.data.order_id));
    }
    created.sort();
    check("the stream is read page by page", created == ["rust-1", "rust-2", "rust-3"]);

    let payment = PaymentEventRequest { event_id: "pay-rust".to_owned(), payment_status: "PENDING".to_owned() };
    let paid = client.record_payment("rust-2", &payment, None).await?;
    check("a payment event is recorded", paid.payment_status == "PENDING");
    let gone = client.cancel_order("rust-2", Some("found a lift"), None).await?;
    check("the order is cancelled", gone.order.status == "CANCELLED_BY_USER");
    let webhook = await_webhook(&mut received, "order.cancelled", "rust-2").await;
    let (event, _) = await_event(&client, "order.cancelled", "rust-2", Some(&cursor)).await;
    check("a webhook and the stream report it", webhook.step.seq == event.data.seq);
    let steps = client.get_timeline("rust-2").await?;
    let ends = steps.first().zip(steps.last()).map(|(first, last)| (first.reason.as_str(), last.to_status.as_str()));
    check("its timeline has both", ends == Some(("ORDER_CREATED", "CANCELLED_BY_USER")));

    let error = api_error(relayed.get_order("moved").await);
    check("a redirect is an error object", error.status == 301);
    let error = api_error(relayed.get_order("odd").await);
    check("errors that are no objects are left out", error.message == "odd" && error.errors.is_empty());
    let error = api_error(client.get_order("rust-0").await);
    let known = [error.error_code.as_deref(), error.type_.as_deref()];
    let expected = [Some("ORDER_NOT_FOUND"), Some("/errors/ORDER_NOT_FOUND")];
    check("a 404 is an error object", error.status == 404 && known == expected);
    let request_id = error.body["request_id"].as_str();
    let named = error.title.is_some() && error.instance.is_some();
    check("it has the id of the request", error.request_id.as_deref() == request_id && named);
    let error = api_error(ids(client.orders(OrderFilter { limit: Some(0), ..OrderFilter::default() })).await);
    check("a broken rule names its parameter", error.errors[0].parameter.as_deref() == Some("limit"));
    let error = api_error(client.create_order(&new_order("4", TERMINAL), None).await);
    let told = error.status == 503 && error.retry_after == Some(60) && error.body["reason"] == "a check";
    check("a full area is refused with the time to wait", told);

    let asked = serde_json::json!({ "service_type": "RIDE", "pickup": TERMINAL });
    let request = Request::new(Method::POST, "/api/v1/dispatcher/availability-check").body(&asked)?;
    let error = api_error(client.request::<serde_json::Value>(request).await);
    check("other operations return the same error", error.status == 503 && error.body["reason"] == "a check");
    Ok(())
}
