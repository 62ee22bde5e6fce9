//! Addresses that a provider's servers may have. The configuration lists them next to the provider's key.

use std::{fmt, net::IpAddr};

use model::ids::ProviderName;
use reqwest::Url;

use foundation::{
    config::{
        error::{ConfigError, ensure_fits},
        secret::{address_of, ensure_encrypted, parse_web_address, stays_here},
    },
    outbound,
};
use settings::ProviderConfig;

/// Hosts that the configuration of one provider lists.
#[derive(Debug, Clone)]
pub(crate) struct ProviderHosts {
    provider: ProviderName,
    hosts: Vec<AllowedHost>,
    allow_private: bool,
}

/// One entry of `hosts`, in the form that URLs use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedHost {
    host: String,
    /// `None`: every port.
    port: Option<u16>,
}

impl ProviderHosts {
    /// Parses the hosts of `[providers.NAME]`.
    pub(crate) fn parse(provider: &ProviderName, config: &ProviderConfig) -> Result<Self, ConfigError> {
        let hosts = config.hosts.iter().map(|entry| AllowedHost::parse(entry)).collect::<Result<_, _>>()?;
        Ok(Self { provider: provider.clone(), hosts, allow_private: config.allow_private })
    }

    /// Returns true if no host is listed, which means that no server can be called.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn allow_private(&self) -> bool {
        self.allow_private
    }

    /// Returns the URL of a server. Fails if the configuration does not list its host, or if requests to it would be
    /// unsafe.
    pub(crate) fn parse_url(&self, base_url: &str) -> Result<Url, ConfigError> {
        let url = parse_base_url(base_url)?;
        let provider = &self.provider;
        let is_listed = self.hosts.iter().any(|allowed| allowed.matches(&url));
        let host = url.host_str().unwrap_or_default();
        ensure_fits(
            is_listed,
            format_args!(
                "base_url: [providers.{provider}] hosts does not list the host {host}; it lists {}. Choose one of \
                 these, or add the host to the configuration of serve and work",
                self.list()
            ),
        )?;
        ensure_encrypted("base_url", &url)?;
        let is_public = !stays_here(&url) && address_of(&url).is_none_or(outbound::is_public);
        let problem = format_args!(
            "base_url: {host} is a private address; set allow_private = true in [providers.{provider}] if it should be \
             called"
        );
        ensure_fits(self.allow_private || is_public, problem)?;
        Ok(url)
    }

    fn list(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") }
    }
}

impl AllowedHost {
    /// Parses `host`, `host:port` or an IP address. Other parts of a URL are refused.
    fn parse(entry: &str) -> Result<Self, ConfigError> {
        let refused = || {
            let form = "expected a host such as s1.acme.example or s1.acme.example:8443, without https:// and a path";
            ConfigError::new(format!("hosts: '{}' is not a host: {form}", entry.escape_debug()))
        };
        let is_bare_v6 = entry.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        let authority = if is_bare_v6 { format!("[{entry}]") } else { entry.to_owned() };
        let has_url_parts =
            authority.contains(['/', '\\', '?', '#', '@', '*']) || authority.contains(char::is_whitespace);
        let url = format!("https://{authority}").parse::<Url>().ok().filter(|_| !has_url_parts).ok_or_else(refused)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(refused)?.to_owned();
        let digits = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
        let port = digits.map(str::parse::<u16>).transpose().map_err(|_| refused())?;
        Ok(Self { host, port })
    }

    fn matches(&self, url: &Url) -> bool {
        url.host_str() == Some(&self.host) && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// Parses the base URL of a server. A login, a query or a fragment is refused.
fn parse_base_url(text: &str) -> Result<Url, ConfigError> {
    let url = parse_web_address("base_url", text)?;
    let has_login = !url.username().is_empty() || url.password().is_some();
    if has_login || url.query().is_some() || url.fragment().is_some() {
        return Err(ConfigError::new("base_url must have neither a login nor '?' nor '#'"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listed: &[&str], allow_private: bool) -> ProviderHosts {
        let hosts = listed.iter().map(|&host| host.to_owned()).collect();
        let config = ProviderConfig { hosts, allow_private, ..ProviderConfig::default() };
        ProviderHosts::parse(&"acme".into(), &config).unwrap()
    }

    fn refusal(hosts: &ProviderHosts, url: &str) -> String {
        hosts.parse_url(url).map_or_else(|error| error.to_string(), |url| format!("allowed: {url}"))
    }

    // Rule F33: A row may name only hosts that the configuration lists next to the provider's secret.
    #[test]
    fn listed_hosts_alone_are_allowed() {
        let listed = hosts(&["S1.acme.example", "s2.acme.example:8443", "bücher.example"], false);
        for allowed in [
            "https://s1.acme.example",
            "https://S1.ACME.example/api/v2",
            "https://s1.acme.example:9000/api",
            "https://s2.acme.example:8443",
            "https://xn--bcher-kva.example/",
        ] {
            assert!(listed.parse_url(allowed).is_ok(), "{allowed}: {}", refusal(&listed, allowed));
        }
        for refused in [
            "https://evil.example",
            "https://s1.acme.example.evil.example",
            "https://evil.s1.acme.example",
            "https://s1.acme.example./",
            "https://s2.acme.example",
            "https://s2.acme.example:443",
            "https://169.254.169.254/latest",
            "https://127.0.0.1:18291/x",
        ] {
            let problem = refusal(&listed, refused);
            assert!(problem.contains("[providers.acme] hosts does not list"), "{refused}: {problem}");
            assert!(problem.contains("s1.acme.example, s2.acme.example:8443"), "names the choices: {problem}");
        }
        assert!(refusal(&hosts(&[], true), "https://a.example").contains("it lists none"));
    }

    // Rule F33: A server is called over https, except on this machine.
    #[test]
    fn other_machines_need_https() {
        let listed = hosts(&["s1.acme.example", "10.0.0.7", "localhost", "127.0.0.1", "::1"], true);
        for refused in ["http://s1.acme.example", "http://10.0.0.7/api"] {
            assert!(refusal(&listed, refused).contains("must be https"), "{refused}");
        }
        for allowed in ["https://10.0.0.7/", "http://localhost:1/x", "http://127.0.0.1:1/x", "http://[::1]:1/x"] {
            assert!(listed.parse_url(allowed).is_ok(), "{}", refusal(&listed, allowed));
        }
    }

    // Rule F33: Private addresses are refused unless allow_private is set.
    #[test]
    fn private_addresses_need_permission() {
        let names = ["10.0.0.7", "127.0.0.1", "localhost", "169.254.169.254", "::ffff:10.0.0.7", "fd00::1", "8.8.8.8"];
        let listed = hosts(&names, false);
        for refused in [
            "https://10.0.0.7",
            "https://0x7f.1/",
            "http://127.0.0.1:1",
            "https://localhost",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.7]/",
            "https://[fd00::1]/",
        ] {
            assert!(
                refusal(&listed, refused).contains("allow_private = true"),
                "{refused}: {}",
                refusal(&listed, refused)
            );
        }
        assert!(listed.parse_url("https://8.8.8.8/").is_ok());
        assert!(hosts(&["10.0.0.7"], true).parse_url("https://10.0.0.7").is_ok());
    }

    // Rule F33: An entry of `hosts` that is not a host is refused, and the error names it.
    #[test]
    fn entries_are_hosts_and_nothing_else() {
        for bad in [
            "",
            " ",
            "https://a.example",
            "a.example/api",
            "a@b.example",
            "a b",
            "*.acme.example",
            "a.example:x",
            "a:1:2",
            "a:70000",
            "[::1",
        ] {
            let config = ProviderConfig { hosts: vec![bad.to_owned()], ..ProviderConfig::default() };
            let error = ProviderHosts::parse(&"acme".into(), &config).unwrap_err().to_string();
            assert!(error.contains("is not a host"), "{bad}: {error}");
        }
        let listed = |entry: &str| AllowedHost::parse(entry).unwrap().to_string();
        assert_eq!(
            (listed("A.example:443"), listed("::1"), listed("[::1]:80")),
            ("a.example:443".into(), "[::1]".into(), "[::1]:80".into())
        );
    }

    #[test]
    fn base_url_with_login_or_query_is_refused() {
        let listed = hosts(&["h"], true);
        for bad in ["", "ftp://h", "h:1", "https://u:p@h/", "https://h/?a=b", "https://h/#a"] {
            assert!(listed.parse_url(bad).is_err(), "{bad}");
        }
    }
}
