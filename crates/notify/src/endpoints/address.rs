//! URLs that an endpoint may have: https and public, so that the creator of an endpoint cannot make this process call
//! internal services. The rules are checked at the creation and before each try. Names are checked when they are
//! resolved for a connection.

use foundation::{
    config::secret::{address_of, stays_here},
    outbound,
};
use model::plain_text;
use reqwest::Url;

/// Maximum length of a URL in characters.
pub const LONGEST_URL: usize = 2_000;

/// A URL that an endpoint may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointUrl {
    pub url: Url,
    /// Whether the URL is on this machine.
    pub is_local: bool,
}

impl EndpointUrl {
    /// Parses a URL. `allow_local` also accepts a URL on this machine, with http or https. The error is worded to follow
    /// the name of the value.
    pub fn parse(text: &str, allow_local: bool) -> Result<Self, String> {
        if let Some(problem) = plain_text::find_problem(text, LONGEST_URL) {
            return Err(problem);
        }
        let url: Url = text.parse().map_err(|error| format!("is not a URL: {error}"))?;
        let is_local = allow_local && stays_here(&url);
        let is_http = url.scheme() == "http" && is_local;
        if url.scheme() != "https" && !is_http {
            return Err("must be https".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not have a user or a password".to_owned());
        }
        let is_public = !stays_here(&url) && address_of(&url).is_none_or(outbound::is_public);
        if !is_local && !is_public {
            return Err("leads to an address that is not public".to_owned());
        }
        Ok(Self { url, is_local })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_must_be_https_and_public() {
        for good in ["https://shop.example.com", "https://shop.example.com:8443/a?b=c", "https://8.8.8.8/x"] {
            assert_eq!(EndpointUrl::parse(good, false).map(|url| url.is_local), Ok(false), "{good}");
        }
        for bad in [
            "",
            "shop.example.com",
            "ftp://shop.example.com/",
            "http://shop.example.com/",
            "http://169.254.169.254/x",
            "https://169.254.169.254/x",
            "https://2852039166/x",
            "https://0x7f.1/",
            "https://10.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fd00::1]/",
            "https://localhost/",
            "https://127.0.0.1:8080/",
            "https://user:word@shop.example.com/",
            "https://user@shop.example.com/",
            "https://shop.example.com/\n",
            &format!("https://shop.example.com/{}", "a".repeat(LONGEST_URL)),
        ] {
            assert!(EndpointUrl::parse(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn local_urls_need_the_switch() {
        for url in ["http://127.0.0.1:9/x", "http://localhost/", "https://localhost/", "http://[::1]:9/"] {
            assert_eq!(EndpointUrl::parse(url, true).map(|url| url.is_local), Ok(true), "{url}");
            assert!(EndpointUrl::parse(url, false).is_err(), "{url}");
        }
        for url in ["http://10.0.0.1/", "http://169.254.169.254/x", "http://shop.example.com/"] {
            assert!(EndpointUrl::parse(url, true).is_err(), "{url}");
        }
    }
}
