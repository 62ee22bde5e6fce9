//! HTTP requests that leave this process.

use std::time::Duration;

/// A client that gives up, follows no redirect (addresses are configured, not found), and brings its own TLS.
pub fn client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    // Chosen once for the process; "already chosen" is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(timeout)
        .connect_timeout(timeout.min(Duration::from_secs(3)))
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("dispatchq/", env!("CARGO_PKG_VERSION")))
        .build()
}
