//! Where the API is. A key goes to other machines over TLS alone, unless a person says otherwise.

use std::net::IpAddr;

use anyhow::{Context, ensure};
use reqwest::Url;

/// Reads the address of an API, such as `https://dispatch.example.com`; it may lie below a path. `insecure`: a key may be sent
/// unencrypted to another machine.
pub(super) fn parse_api_url(text: &str, insecure: bool) -> anyhow::Result<Url> {
    let mut url =
        Url::parse(text).with_context(|| format!("'{text}' is no address of an API, such as https://HOST:PORT"))?;
    ensure!(
        matches!(url.scheme(), "http" | "https"),
        "the address of an API begins with https:// or http://, not {}:",
        url.scheme()
    );
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "the address of an API holds no password: the key is in the file of --key-file"
    );
    ensure!(url.query().is_none() && url.fragment().is_none(), "the address of an API ends with its path");
    ensure!(
        url.scheme() == "https" || insecure || is_this_machine(&url),
        "http:// would send the key unencrypted to {}: use https://, or say --insecure-http",
        url.host_str().unwrap_or_default()
    );
    // The paths of requests begin with it.
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

    // Rule F30: The address of the API may end with /api/v1, which is not doubled.
    #[test]
    fn address_may_end_with_the_path_of_the_api() {
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
    fn a_key_leaves_this_machine_encrypted() {
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
