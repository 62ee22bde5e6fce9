//! A shop: creates an order, receives its webhooks, and prints its state changes until it is completed or cancelled.

use std::{env, error::Error};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use dispatchq_client::{Client, NewOrder, Place, WebhookEvent, verify_webhook};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

#[derive(Clone)]
struct Receiver {
    secret: String,
    received: mpsc::UnboundedSender<WebhookEvent>,
}

/// Returns an environment variable.
fn setting(name: &str, default: Option<&str>) -> Result<String, String> {
    let value = env::var(name).ok().or(default.map(str::to_owned));
    value.ok_or_else(|| format!("{name} is not set: see examples/README.md"))
}

/// Returns the secret of the webhooks. The server's config.toml declares their address, so no request is needed.
fn register_endpoint() -> Result<String, String> {
    setting("SHOP_SECRET", None)
}

/// Answers 401 to a webhook without a valid signature.
async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    match verify_webhook(&body, &headers, &[&receiver.secret]) {
        Ok(event) => {
            // A real shop stores the event before it answers.
            let _ = receiver.received.send(event);
            StatusCode::NO_CONTENT
        }
        Err(error) => {
            eprintln!("refused: {error}");
            StatusCode::UNAUTHORIZED
        }
    }
}

/// Prints the steps of an order until it ends. Skips a step that arrives after a later one.
async fn print_steps(webhooks: &mut mpsc::UnboundedReceiver<WebhookEvent>, order_id: &str) {
    let mut last_seq = 0;
    while let Some(event) = webhooks.recv().await {
        let Some(step) = event.step() else { continue };
        if step.order_id != order_id || step.seq <= last_seq {
            continue;
        }
        last_seq = step.seq;
        println!("{} {}", event.r#type, step.status);
        if ["order.completed", "order.cancelled"].contains(&event.r#type.as_str()) {
            return;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (received, mut webhooks) = mpsc::unbounded_channel();
    let receiver = Receiver { secret: register_endpoint()?, received };
    let listener = TcpListener::bind(("127.0.0.1", setting("SHOP_PORT", Some("7070"))?.parse::<u16>()?)).await?;
    let app = Router::new().route("/webhooks", post(receive)).with_state(receiver);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());

    let client = Client::new(&setting("SHOP_URL", Some("http://127.0.0.1:8080"))?, &setting("SHOP_KEY", None)?)?;
    let order = client.create_order(&NewOrder::new("RIDE", Place::new(-6.2088, 106.8456)), None).await?;
    println!("created {}", order.order_id);
    print_steps(&mut webhooks, &order.order_id).await;
    // Waits until the last webhook is answered.
    drop(stop);
    Ok(server.await??)
}
