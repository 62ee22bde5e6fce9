//! A load balancer with one process behind it.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{
        HeaderMap, Method, StatusCode, Uri,
        header::{CONTENT_LENGTH, HOST},
    },
    response::{IntoResponse, Response},
};
use foundation::outbound;

use crate::{millis, secs};

const TRIES: u32 = 10;

/// Forwards requests while /readyz of the process reports ready, and answers 502 otherwise.
pub(crate) fn balance_to(process: &str) -> Router {
    let client = outbound::build_client(secs(30)).unwrap();
    Router::new().fallback(pass_on).with_state((client, process.to_owned()))
}

/// Checks /readyz before each request, so that a test sees a change at once. A busy process gets several tries.
async fn pass_on(
    State((client, process)): State<(reqwest::Client, String)>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut tries = 0;
    while !client.get(format!("{process}/readyz")).send().await.is_ok_and(|answer| answer.status() == 200) {
        tries += 1;
        if tries == TRIES {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        tokio::time::sleep(millis(500)).await;
    }
    for name in [HOST, CONTENT_LENGTH] {
        headers.remove(name);
    }
    let answer = client.request(method, format!("{process}{uri}")).headers(headers).body(body).send().await.unwrap();
    (answer.status(), answer.bytes().await.unwrap()).into_response()
}
