//! HTTP requests that leave this process.

use std::time::Duration;

/// Chooses the TLS of this process: ring. Choosing twice is fine.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client that gives up, and follows no redirect: addresses are configured, not found.
pub fn client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    install_tls();
    reqwest::Client::builder()
        .timeout(timeout)
        .connect_timeout(timeout.min(Duration::from_secs(3)))
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("dispatchq/", env!("CARGO_PKG_VERSION")))
        .build()
}
