//! Clients that send a request and hang up 0 to 8 ms later, without waiting for the answer.

use std::time::Duration;

use serde_json::Value;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};

/// Maximum time before a client hangs up.
pub(super) const LONGEST: Duration = Duration::from_millis(8);
/// Timeout for connecting and sending, so that a frozen process does not block the client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends `POST path` to an API process and closes the connection after `pause`. Ignores whether the request arrived.
pub(super) async fn post_and_hang_up(base: &str, path: &str, headers: &[(&str, &str)], body: &Value, pause: Duration) {
    let address = base.trim_start_matches("http://");
    let body = body.to_string();
    let mut head = format!(
        "POST /api/v1{path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let request = format!("{head}\r\n{body}");
    let sent = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(request.as_bytes()).await?;
        tokio::time::sleep(pause).await;
        std::io::Result::Ok(())
    };
    let _ = timeout(CONNECT_TIMEOUT, sent).await;
}
