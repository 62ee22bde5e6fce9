//! HTTP requests that leave this process.

use std::time::Duration;

/// Chooses the TLS of this process: ring. Choosing twice is fine.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What went wrong with a request, to its cause, without the address: the path is often a secret.
pub fn describe_error(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "no answer in time".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

/// A client that gives up, and follows no redirect: addresses are configured, not found.
pub fn build_client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    install_tls();
    reqwest::Client::builder()
        .timeout(timeout)
        .connect_timeout(timeout.min(Duration::from_secs(3)))
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("dispatchq/", env!("CARGO_PKG_VERSION")))
        .build()
}
