//! A person's browser: signs in with a key, asks for pages on connections that stay open, and listens for changes.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, COOKIE, SET_COOKIE},
    redirect::Policy,
};
use tokio::time::timeout;

/// Longer than any answer of a server that is alive: it gives a page up itself after some seconds.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// A page as it came.
#[derive(Debug)]
pub(super) struct LoadedPage {
    pub(super) html: String,
    /// From the request to the last byte.
    pub(super) took: Duration,
}

/// Cheap to clone; clones share connections and session.
#[derive(Debug, Clone)]
pub(super) struct Browser {
    client: reqwest::Client,
    base: String,
    /// Where the console is.
    home: String,
    cookie: String,
}

impl Browser {
    /// `base` as in `http://127.0.0.1:8080`, `home` as in `/console`.
    pub(super) async fn sign_in(base: &str, home: &str, key: &str) -> anyhow::Result<Self> {
        // A stream lasts: what bounds a page is its own timeout.
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build();
        let client = client.context("cannot make an HTTP client")?;
        // A key has no character that a form would escape.
        let answer = client
            .post(format!("{base}{home}/login"))
            .header("sec-fetch-site", "same-origin")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(format!("key={key}"))
            .send()
            .await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "signing in to the console was answered {}", answer.status());
        let cookie = answer.headers().get(SET_COOKIE).context("the console gave no cookie")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { client, base: base.to_owned(), home: home.to_owned(), cookie })
    }

    /// Where the console is, as in `/console`.
    pub(super) fn home(&self) -> &str {
        &self.home
    }

    /// Loads a page, as when a person opens it. The error says what else came.
    pub(super) async fn open_page(&self, path: &str) -> Result<LoadedPage, String> {
        load(self.request(path)).await.map_err(|error| format!("{path} was answered {error}"))
    }

    /// Loads a page again, as it does by itself while a person looks at it.
    pub(super) async fn refresh_page(&self, path: &str) -> Result<LoadedPage, String> {
        let request = self.request(path).header("x-console-refresh", "1");
        load(request).await.map_err(|error| format!("{path} was answered {error} when it was refreshed"))
    }

    /// Opens a stream of changes. `None`: the server has none to give.
    pub(super) async fn open_stream(&self, path: &str) -> Result<Option<Response>, String> {
        let asked = self.request(path).header(ACCEPT, "text/event-stream").send();
        match timeout(PAGE_TIMEOUT, asked).await {
            Ok(Ok(answer)) if answer.status() == StatusCode::OK => Ok(Some(answer)),
            Ok(Ok(answer)) if answer.status() == StatusCode::NO_CONTENT => Ok(None),
            Ok(Ok(answer)) => Err(format!("{path} was answered {}", answer.status())),
            Ok(Err(error)) => Err(format!("{path}: {}", error.without_url())),
            Err(_) => Err(format!("{path} was not answered within {PAGE_TIMEOUT:?}")),
        }
    }

    fn request(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie)
    }
}

async fn load(request: RequestBuilder) -> Result<LoadedPage, String> {
    let begun = Instant::now();
    let loaded = async {
        let answer = request.send().await?;
        let status = answer.status();
        Ok::<_, reqwest::Error>((status, answer.text().await?))
    };
    match timeout(PAGE_TIMEOUT, loaded).await {
        Ok(Ok((StatusCode::OK, html))) => Ok(LoadedPage { html, took: begun.elapsed() }),
        Ok(Ok((status, _))) => Err(status.to_string()),
        Ok(Err(error)) => Err(error.without_url().to_string()),
        Err(_) => Err(format!("nothing within {PAGE_TIMEOUT:?}")),
    }
}
