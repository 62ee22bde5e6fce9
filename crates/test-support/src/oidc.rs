//! A real OpenID Connect provider: `oidc-provider` from npm, which scripts/setup installs in the cache folder.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE},
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{PATIENCE, secs};
use foundation::outbound;
use settings::{OidcConfig, StaffRole};

const MISSING: &str =
    "oidc-provider is not installed as crates/test-support/oidc wants it: with node and npm, run `make setup`";
const LOCK: &str = include_str!("../oidc/package-lock.json");
/// Id and secret of the client dispatchq. The secret contains characters that must be encoded.
const CLIENT: (&str, &str) = ("dispatchq", "a secret + of 100 %");
/// A second client with the same redirect address.
const OTHER_CLIENT: (&str, &str) = ("other", "another secret");

/// The provider with the two clients. Dropping it stops the process.
#[derive(Debug)]
pub struct OidcServer {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    issuer: Url,
    callback: String,
    client: Client,
}

/// Returns the folder where scripts/setup installs the packages.
fn packages() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache"))).expect(MISSING);
    cache.join("dispatchq/oidc-provider")
}

impl OidcServer {
    /// Starts the provider on a free port, without clients.
    pub async fn start() -> Self {
        Self::start_on(None).await
    }

    async fn start_on(port: Option<u16>) -> Self {
        let home = packages();
        assert!(fs::read_to_string(home.join("installed.json")).is_ok_and(|lock| lock == LOCK), "{MISSING}");
        let mut process = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc/provider.mjs"))
            .args(port.map(|port| port.to_string()))
            .env("OIDC_PROVIDER_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("node cannot be run ({error}): {MISSING}"));
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let issuer = read_line(&mut output).await.parse().unwrap();
        let client = outbound::build_client(secs(30)).unwrap();
        Self { process, input, output, issuer, callback: String::new(), client }
    }

    /// Registers both clients at the provider with this redirect address.
    pub async fn register_clients(&mut self, callback: &str) {
        callback.clone_into(&mut self.callback);
        let client = |(id, secret): (&str, &str), alg: &str| {
            json!({
                "client_id": id,
                "client_secret": secret,
                "redirect_uris": [callback],
                "id_token_signed_response_alg": alg,
            })
        };
        let clients = json!([client(CLIENT, "RS256"), client(OTHER_CLIENT, "ES256")]);
        self.input.write_all(format!("{clients}\n").as_bytes()).await.unwrap();
        assert_eq!(read_line(&mut self.output).await, "ready");
    }

    /// Returns the configuration of dispatchq for the first client.
    pub fn config(&self) -> OidcConfig {
        let roles = [("desk", StaffRole::Dispatcher), ("ops", StaffRole::Operator)];
        OidcConfig {
            issuer: self.issuer.as_str().trim_end_matches('/').to_owned(),
            client_id: CLIENT.0.to_owned(),
            client_secret: CLIENT.1.to_owned(),
            client_secret_env: None,
            client_secret_file: None,
            scopes: ["openid", "email", "groups"].map(str::to_owned).to_vec(),
            name_claim: "email".to_owned(),
            role_claim: "groups".to_owned(),
            roles: roles.map(|(value, role)| (value.to_owned(), role)).into(),
        }
    }

    /// Returns the configuration for the second client.
    pub fn config_of_other(&self) -> OidcConfig {
        let (id, secret) = OTHER_CLIENT;
        OidcConfig { client_id: id.to_owned(), client_secret: secret.to_owned(), ..self.config() }
    }

    pub async fn stop(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Restarts the provider at the same address, with new keys.
    pub async fn restart(&mut self) {
        let again = Self::start_on(self.issuer.port()).await;
        let callback = std::mem::replace(self, again).callback;
        self.register_clients(&callback).await;
    }

    /// Visits the provider like a browser, signs in as `login` and grants all consents. Without a login, it cancels the
    /// sign-in. Returns the address to which the provider redirects the browser.
    pub async fn visit(&self, address: &str, login: Option<&str>) -> String {
        let mut cookies = BTreeMap::new();
        let mut request = self.client.get(address);
        let mut here: Url = address.parse().unwrap();
        // Covers the sign-in form, the consent form and the redirects between them.
        for _ in 0..12 {
            let brought: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let answer = request.header(COOKIE, brought.join("; ")).send().await.unwrap();
            for cookie in answer.headers().get_all(SET_COOKIE) {
                let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
                cookies.insert(name.to_owned(), rest.split(';').next().unwrap().to_owned());
            }
            if let Some(location) = answer.headers().get(LOCATION) {
                here = here.join(location.to_str().unwrap()).unwrap();
                if here.as_str().starts_with(&self.callback) {
                    return here.into();
                }
                request = self.client.get(here.clone());
                continue;
            }
            let status = answer.status();
            let page = answer.text().await.unwrap();
            let Some(prompt) = text_between(&page, "name=\"prompt\" value=\"", "\"") else {
                panic!("{status} at {here}: {page}")
            };
            request = match login {
                Some(login) => self
                    .client
                    .post(here.clone())
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(format!("prompt={prompt}&login={login}&password=x")),
                None => self.client.get(format!("{here}/abort")),
            };
        }
        panic!("the provider sends the browser around in circles")
    }
}

async fn read_line(output: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = timeout(PATIENCE, output.next_line()).await.expect("the provider says nothing");
    line.unwrap().unwrap_or_else(|| panic!("the provider has ended; its errors are above"))
}

fn text_between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split_once(after).map(|(inner, _)| inner)
}
