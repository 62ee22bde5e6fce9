//! HTTP client for providers' servers. The contract is docs/PROVIDER.md.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, SecondsFormat, Utc};
use model::{
    binding::{
        ProviderAnswer, ProviderCall,
        answer::{HIDDEN_SECRET, MAX_ANSWER_BYTES},
    },
    ids::ProviderName,
};
use reqwest::{
    Response, Url,
    dns::Resolve,
    header::{AUTHORIZATION, HeaderValue, RETRY_AFTER},
};
use serde_json::json;

use crate::{otp_seal::PlainOtp, provider_hosts::ProviderHosts};
use foundation::{
    config::{error::ConfigError, secret::Secret},
    crash,
    outbound::{self, MachineResolver},
    traces,
};
use settings::ProviderConfig;

/// Maximum bytes of an answer that are kept in a record.
const KEPT_ANSWER_BYTES: usize = 4096;
/// Prefix of the key in the `Authorization` header.
const BEARER: &str = "Bearer ";
/// Minimum time that must be left for a call. A call with less time is not sent.
const SHORTEST_CALL: Duration = Duration::from_millis(1);
/// Timeout of the HTTP clients. Each call has its own shorter timeout, which includes connecting.
const LONGEST_CALL: Duration = Duration::from_secs(120);

/// Clients for the configured providers. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ProviderRegistry {
    providers: BTreeMap<ProviderName, Arc<ConfiguredProvider>>,
    clients: Option<ProviderClients>,
}

/// A `[providers.NAME]` section with its secret.
#[derive(Debug)]
struct ConfiguredProvider {
    key: HeaderValue,
    hosts: ProviderHosts,
}

impl ConfiguredProvider {
    /// Returns the secrets that an answer may repeat and that records must not keep: the provider's key, and the OTP of
    /// the call.
    fn secrets<'a>(&'a self, otp: Option<&'a PlainOtp>) -> impl Iterator<Item = &'a str> + Clone {
        let key = self.key.to_str().ok().and_then(|header| header.strip_prefix(BEARER));
        key.into_iter().chain(otp.map(PlainOtp::reveal))
    }
}

#[derive(Debug, Clone)]
struct ProviderClients {
    /// Client that connects only to public addresses, even if a name resolves to a private one.
    public: reqwest::Client,
    /// Client for providers with `allow_private`. It uses no proxy: these servers are nearby, and some are called over
    /// http.
    any: reqwest::Client,
}

/// Request and response of a call, for the record. It contains neither the key nor an OTP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallRecord {
    pub http_status: Option<u16>,
    /// `None`: nothing was sent.
    pub sent_after: Option<Duration>,
    pub latency: Option<Duration>,
    pub request: Option<String>,
    pub response: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedCall {
    pub answer: ProviderAnswer,
    pub record: CallRecord,
}

impl EndedCall {
    /// Returns the end of a call that was claimed but not sent.
    pub fn not_sent(call: &ProviderCall, why: &str) -> Self {
        let record = CallRecord { request: Some(request_body(call, None).to_string()), ..CallRecord::default() };
        Self { answer: ProviderAnswer::Unreachable(format!("not sent: {why}")), record }
    }
}

/// Deadline of a call, on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct CallDeadline {
    /// Deadline on this process' monotonic clock, at which the caller aborts the call.
    pub instant: Instant,
    /// The same instant on Postgres' clock; sent to the provider.
    pub until: DateTime<Utc>,
}

impl ProviderRegistry {
    pub fn new(providers: &BTreeMap<ProviderName, ProviderConfig>) -> Result<Self, ConfigError> {
        Self::with_resolver(providers, MachineResolver)
    }

    /// Creates the clients. Hosts of providers without `allow_private` are resolved by `resolver`.
    fn with_resolver(
        providers: &BTreeMap<ProviderName, ProviderConfig>,
        resolver: impl Resolve + 'static,
    ) -> Result<Self, ConfigError> {
        let (mut known, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, config) in providers {
            let hosts = ProviderHosts::parse(name, config);
            match read_key(config).and_then(|key| Ok(ConfiguredProvider { key, hosts: hosts? })) {
                Ok(provider) => drop(known.insert(name.clone(), Arc::new(provider))),
                Err(error) => problems.push(error.within(&format!("providers.{name}"))),
            }
        }
        ConfigError::refuse_problems(problems)?;
        let clients = if known.is_empty() {
            None
        } else {
            let public = outbound::build_public_client_with(resolver, LONGEST_CALL)?;
            Some(ProviderClients { public, any: outbound::build_direct_client(LONGEST_CALL)? })
        };
        Ok(Self { providers: known, clients })
    }

    /// Returns the names of the configured providers.
    pub fn names(&self) -> Vec<&str> {
        self.providers.keys().map(ProviderName::as_str).collect()
    }

    /// Returns the names of the configured providers that list no host. None of their servers can be called.
    pub fn names_without_hosts(&self) -> Vec<&str> {
        let without = self.providers.iter().filter(|(_, provider)| provider.hosts.is_empty());
        without.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns whether the provider is configured.
    pub fn knows_provider(&self, name: &ProviderName) -> bool {
        self.providers.contains_key(name)
    }

    /// Checks that the configuration allows calls to this provider at this address.
    pub fn check_address(&self, name: &ProviderName, base_url: &str) -> Result<(), ConfigError> {
        self.find_endpoint(name, base_url).map(drop)
    }

    fn find_endpoint(&self, name: &ProviderName, base_url: &str) -> Result<(&ConfiguredProvider, Url), ConfigError> {
        let Some(provider) = self.providers.get(name) else {
            let cure = format!("set [providers.{name}] api_key and hosts");
            return Err(ConfigError::new(format!("provider '{name}' is not configured: {cure}")));
        };
        Ok((provider, provider.hosts.parse_url(base_url)?))
    }

    /// Makes a claimed call. When this returns, the call has an answer or its connection is closed.
    pub async fn make_call(
        &self,
        provider: &ProviderName,
        base_url: &str,
        call: &ProviderCall,
        otp: Option<&PlainOtp>,
        deadline: CallDeadline,
    ) -> EndedCall {
        let begun = Instant::now();
        let mut record = CallRecord { request: Some(request_body(call, None).to_string()), ..CallRecord::default() };
        // The key and OTPs are never sent to a host that the configuration does not list, whatever the row contains.
        let (configured, url) = match self.find_endpoint(provider, base_url) {
            Ok((configured, url)) => (configured, endpoint_url(url, call.action.wire_path())),
            Err(error) => return EndedCall { answer: ProviderAnswer::Unavailable(error.to_string()), record },
        };
        let Some(clients) = &self.clients else { return EndedCall::not_sent(call, "no HTTP client is available") };
        let http = if configured.hosts.allow_private() { &clients.any } else { &clients.public };
        // Checked immediately before sending: a process that was suspended must not send an expired call.
        let left = deadline.instant.saturating_duration_since(Instant::now());
        if left <= SHORTEST_CALL {
            return EndedCall::not_sent(call, "its deadline had passed");
        }
        let mut request = http
            .post(url)
            .timeout(left)
            .header(AUTHORIZATION, configured.key.clone())
            .header("fence", call.fence)
            .header("call-until", deadline.until.to_rfc3339_opts(SecondsFormat::Millis, true))
            .json(&request_body(call, otp));
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        crash::reach_point("provider", "sends");
        record.sent_after = Some(begun.elapsed());
        let sent = Instant::now();
        let answer = match traces::send_request("provider", call.action.wire_path(), request).await {
            Ok(response) => read_answer(response, configured.secrets(otp), &mut record).await,
            Err(error) => ProviderAnswer::Unreachable(outbound::describe_error(&error)),
        };
        record.latency = Some(sent.elapsed());
        crash::reach_point("provider", "answered");
        EndedCall { answer, record }
    }
}

fn read_key(config: &ProviderConfig) -> Result<HeaderValue, ConfigError> {
    let secret = Secret {
        name: "api_key",
        value: Some(config.api_key.as_str()).filter(|key| !key.is_empty()),
        env: config.api_key_env.as_deref(),
        file: config.api_key_file.as_deref(),
    };
    let key = secret.read()?.ok_or_else(|| ConfigError::new("api_key is missing"))?;
    let mut header = HeaderValue::from_str(&format!("{BEARER}{key}"))
        .map_err(|_| ConfigError::new("api_key cannot be sent in a header"))?;
    header.set_sensitive(true);
    Ok(header)
}

fn endpoint_url(mut url: Url, path: &str) -> Url {
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(path);
    }
    url
}

fn request_body(call: &ProviderCall, otp: Option<&PlainOtp>) -> serde_json::Value {
    let mut body = json!({
        "trx_id": call.trx_id,
        "binding_id": call.binding_id,
        "account_id": call.account_id,
        "cycle": call.cycle,
    });
    if let Some(otp) = otp {
        body["otp"] = otp.reveal().into();
    }
    body
}

async fn read_answer<'a>(
    mut response: Response,
    secrets: impl Iterator<Item = &'a str> + Clone,
    record: &mut CallRecord,
) -> ProviderAnswer {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    record.http_status = Some(status);
    let mut body = Vec::new();
    while body.len() <= MAX_ANSWER_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(error) => {
                record.response = Some(readable_text(&body, secrets.clone()));
                return ProviderAnswer::Unreachable(outbound::describe_error(&error));
            }
        }
    }
    body.truncate(MAX_ANSWER_BYTES + 1);
    record.response = Some(readable_text(&body, secrets.clone()));
    let answer = ProviderAnswer::from_response(status, retry_after.map(Duration::from_secs), &body);
    secrets.fold(answer, ProviderAnswer::hide_secret)
}

/// Returns the text of an answer for the record: shortened, valid for Postgres, and without secrets.
fn readable_text<'a>(body: &[u8], secrets: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::from_utf8_lossy(body).replace('\0', "\u{fffd}");
    for secret in secrets {
        // Also replaces the secret where it is escaped as in JSON.
        let quoted = serde_json::Value::from(secret).to_string();
        text = text.replace(&quoted[1..quoted.len() - 1], HIDDEN_SECRET).replace(secret, HIDDEN_SECRET);
    }
    let end = (0..=KEPT_ANSWER_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use model::binding::CallAction;
    use reqwest::dns::{Addrs, Name, Resolving};

    use super::*;

    /// Resolver that returns this machine for every name.
    struct PrivateNames;

    impl Resolve for PrivateNames {
        fn resolve(&self, _: Name) -> Resolving {
            let found: Addrs = Box::new(std::iter::once(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
            Box::pin(std::future::ready(Ok(found)))
        }
    }

    // Rule F33: The record of a call shows neither the provider's key nor the OTP, even if the provider repeats them.
    #[test]
    fn records_show_no_secret_and_fit_into_a_column() {
        let text = |body: &[u8], secrets: &[&str]| readable_text(body, secrets.iter().copied());
        assert_eq!(text(b"{\"otp\":\"4711\"}\0", &["4711"]), "{\"otp\":\"***\"}\u{fffd}");
        assert_eq!(text(br#"{"otp":"4\"7\\1"} 4"7\1"#, &[r#"4"7\1"#]), r#"{"otp":"***"} ***"#);
        let repeated = br#"{"authorization":"Bearer hunter2","otp":"4711"}"#;
        assert_eq!(text(repeated, &["hunter2", "4711"]), r#"{"authorization":"Bearer ***","otp":"***"}"#);
        assert_eq!(text("ä".repeat(5000).as_bytes(), &[]).len(), KEPT_ANSWER_BYTES);
        // The secret is replaced before the text is cut.
        let body = format!("{}4711", "x".repeat(KEPT_ANSWER_BYTES - 2));
        assert!(!text(body.as_bytes(), &["4711"]).contains("47"));
        let otp = PlainOtp::parse("4711".to_owned()).unwrap();
        let config = ProviderConfig { api_key: "hunter2".to_owned(), ..ProviderConfig::default() };
        let hosts = ProviderHosts::parse(&"acme".into(), &config).unwrap();
        let provider = ConfiguredProvider { key: read_key(&config).unwrap(), hosts };
        assert_eq!(provider.secrets(Some(&otp)).collect::<Vec<_>>(), ["hunter2", "4711"]);
    }

    fn status_call() -> ProviderCall {
        ProviderCall {
            binding_id: "B".parse().unwrap(),
            server_id: "S1".parse().unwrap(),
            account_id: "A".parse().unwrap(),
            trx_id: "B.1".parse().unwrap(),
            cycle: 1,
            call_no: 1,
            action: CallAction::Status,
            fence: 1,
            call_until: Utc::now(),
            key: None,
            otp_value: None,
        }
    }

    fn soon() -> CallDeadline {
        CallDeadline { instant: Instant::now() + Duration::from_secs(10), until: Utc::now() }
    }

    #[test]
    fn base_url_path_is_kept() {
        let url = |base: &str| endpoint_url(base.parse().unwrap(), "status").to_string();
        assert_eq!(url("http://h:1/servers/S1"), "http://h:1/servers/S1/status");
        assert_eq!(url("http://h:1/servers/S1/"), "http://h:1/servers/S1/status");
    }

    // Rule F33: A name that resolves only to a private address is not called unless `allow_private` is set.
    #[tokio::test]
    async fn private_answer_of_resolver_is_not_called() {
        let config = ProviderConfig {
            api_key: "hunter2".to_owned(),
            hosts: vec!["s1.acme.example".to_owned()],
            ..ProviderConfig::default()
        };
        let registry =
            ProviderRegistry::with_resolver(&BTreeMap::from([("acme".into(), config)]), PrivateNames).unwrap();
        let url = "https://s1.acme.example:1/x";
        let ended = registry.make_call(&"acme".into(), url, &status_call(), None, soon()).await;
        let ProviderAnswer::Unreachable(problem) = ended.answer else { panic!("{ended:?}") };
        assert!(problem.contains("only to private addresses") && !problem.contains("hunter2"), "{problem}");
        // The restriction also applies to the machine's usual resolver.
        let public = outbound::build_public_client(Duration::from_secs(10)).unwrap();
        let error = public.get("https://localhost:1/x").send().await.unwrap_err();
        assert!(outbound::describe_error(&error).contains("only to private addresses"), "{error:?}");
    }

    /// Started by the test below, with proxies in its environment.
    #[tokio::test]
    #[ignore = "needs the environment of another test"]
    async fn child_calls_this_machine() {
        let server = std::env::var("SERVER_ADDRESS").unwrap();
        let url = format!("http://{server}/x");
        let config = ProviderConfig {
            api_key: "hunter2".to_owned(),
            hosts: vec![server],
            allow_private: true,
            ..ProviderConfig::default()
        };
        let registry = ProviderRegistry::new(&BTreeMap::from([("acme".into(), config)])).unwrap();
        let ended = registry.make_call(&"acme".into(), &url, &status_call(), None, soon()).await;
        assert_eq!(ended.record.http_status, Some(404), "{ended:?}");
        let answer = outbound::build_client(Duration::from_secs(10)).unwrap().get(&url).send().await.unwrap();
        assert_eq!(answer.status(), 404);
    }

    // Rule F33: A request over http ignores the proxies in the environment, so no key leaves this machine unencrypted.
    #[test]
    fn http_request_uses_no_proxy() {
        use std::io::{Read, Write};
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in server.incoming() {
                let mut connection = connection.unwrap();
                assert!(connection.read(&mut [0; 4096]).unwrap() > 0, "a request");
                connection.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n").unwrap();
            }
        });
        // The proxy address refuses connections.
        let proxy = "http://127.0.0.1:1";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "provider_client::tests::child_calls_this_machine"])
            .envs(["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, proxy)))
            .env("NO_PROXY", "")
            .env("SERVER_ADDRESS", address)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
    }
}
