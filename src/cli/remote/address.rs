//! Address of the API. A key is sent to another machine only over TLS, unless `--insecure-http` is given.

use std::net::IpAddr;

use anyhow::{Context, ensure};
use reqwest::Url;

/// Parses the address of an API, such as `https://dispatch.example.com`. It may contain a path. `insecure` allows to
/// send the key unencrypted to another machine.
pub(super) fn parse_api_url(text: &str, insecure: bool) -> anyhow::Result<Url> {
    let mut url = Url::parse(text)
        .with_context(|| format!("'{text}' is not the address of an API, such as https://HOST:PORT"))?;
    ensure!(
        matches!(url.scheme(), "http" | "https"),
        "the address of an API must start with https:// or http://, not {}:",
        url.scheme()
    );
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "the address of an API must not contain a password: the key is in the file of --key-file"
    );
    ensure!(url.query().is_none() && url.fragment().is_none(), "the address of an API must end with its path");
    ensure!(
        url.scheme() == "https" || insecure || is_this_machine(&url),
        "http:// would send the key unencrypted to {}: use https://, or add --insecure-http",
        url.host_str().unwrap_or_default()
    );
    // Request paths add `/api/v1`.
    let path = url.path().trim_end_matches('/');
    let base = path.strip_suffix("/api/v1").or_else(|| path.strip_suffix("/api")).unwrap_or(path).to_owned();
    url.set_path(&base);
    Ok(url)
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule F30: The address of the API may end with /api/v1, which is not added a second time.
    #[test]
    fn api_address_may_include_the_api_path() {
        for (text, expected) in [
            ("http://127.0.0.1:8080/api/v1", "http://127.0.0.1:8080/"),
            ("http://127.0.0.1:8080/api/v1/", "http://127.0.0.1:8080/"),
            ("http://127.0.0.1:8080/api", "http://127.0.0.1:8080/"),
            ("https://h.example/dispatch/api/v1//", "https://h.example/dispatch"),
            ("https://h.example/dispatch/", "https://h.example/dispatch"),
            ("https://h.example/myapi", "https://h.example/myapi"),
        ] {
            assert_eq!(parse_api_url(text, false).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn key_needs_tls_to_other_machines() {
        for fine in [
            "https://h.example",
            "https://h.example/dispatch/",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://localhost:1",
        ] {
            assert!(parse_api_url(fine, false).is_ok(), "{fine}");
        }
        for open in ["http://h.example", "http://10.0.0.7:8080", "http://localhost.example"] {
            assert!(parse_api_url(open, false).unwrap_err().to_string().contains("--insecure-http"), "{open}");
            assert!(parse_api_url(open, true).is_ok(), "{open}");
        }
        for wrong in ["h.example", "ftp://h.example", "https://u:p@h.example", "https://h.example?x=1"] {
            assert!(parse_api_url(wrong, true).is_err(), "{wrong}");
        }
    }
}
