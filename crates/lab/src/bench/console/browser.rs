//! Browser of a viewer: signs in with a key, loads pages over persistent connections, and listens for changes.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, COOKIE, SET_COOKIE},
    redirect::Policy,
};
use tokio::time::timeout;

/// Timeout for a page, longer than any answer of a working server, which aborts a page after some seconds.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// A loaded page.
#[derive(Debug)]
pub(super) struct LoadedPage {
    pub(super) html: String,
    /// Time from the request to the last byte.
    pub(super) took: Duration,
}

/// A signed-in browser. Cheap to clone; clones share connections and session.
#[derive(Debug, Clone)]
pub(super) struct Browser {
    client: reqwest::Client,
    base: String,
    /// Path of the console.
    home: String,
    cookie: String,
}

impl Browser {
    /// Signs in. `base` is a URL such as `http://127.0.0.1:8080`, `home` a path such as `/console`.
    pub(super) async fn sign_in(base: &str, home: &str, key: &str) -> anyhow::Result<Self> {
        // No client timeout, because streams stay open; pages have their own timeout.
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build();
        let client = client.context("cannot create an HTTP client")?;
        // A key contains no character that needs escaping in a form.
        let answer = client
            .post(format!("{base}{home}/login"))
            .header("sec-fetch-site", "same-origin")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(format!("key={key}"))
            .send()
            .await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "signing in to the console was answered {}", answer.status());
        let cookie = answer.headers().get(SET_COOKIE).context("the console set no cookie")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { client, base: base.to_owned(), home: home.to_owned(), cookie })
    }

    /// Returns the path of the console, such as `/console`.
    pub(super) fn home(&self) -> &str {
        &self.home
    }

    /// Loads a page in the same way as a person opens it. The error describes any other answer.
    pub(super) async fn open_page(&self, path: &str) -> Result<LoadedPage, String> {
        load(self.request(path)).await.map_err(|error| format!("{path} was answered {error}"))
    }

    /// Reloads a page in the same way as an open page reloads itself.
    pub(super) async fn refresh_page(&self, path: &str) -> Result<LoadedPage, String> {
        let request = self.request(path).header("x-console-refresh", "1");
        load(request).await.map_err(|error| format!("{path} was answered {error} when it was refreshed"))
    }

    /// Opens a stream of changes. `None` if the server has no stream for this page.
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
