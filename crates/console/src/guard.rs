//! Headers of every answer of the console, and the requests that are refused before a handler runs.

use std::sync::Arc;

use api::{BODY_TIME, UNKNOWN_CALLERS_BODY_TIME, body, client::ClientAddress};
use axum::{
    Router,
    body::Body,
    extract::{Form, FromRequest, Query, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{
            CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERER,
            REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::TryStreamExt;
use parking_lot::Mutex;
use tower_service::Service;

use crate::{
    catalogue::tr,
    cookie::Transport,
    language::{LANGUAGE, Language},
    page,
    page_error::{PageError, PageProblem},
    refusal::{self, Refusal},
};
use app::App;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const FETCH_SITE: &str = "sec-fetch-site";
/// Fields with a secret. Pages never show their values again.
const SECRET_FIELDS: [&str; 2] = ["key", "otp"];

/// The application, and its pages without this guard.
#[derive(Clone)]
pub(crate) struct PageGuard {
    pub(crate) app: App,
    pub(crate) pages: Router,
}

/// Outermost middleware of the console.
pub(crate) async fn guard_request(State(guard): State<PageGuard>, request: Request, next: Next) -> Response {
    let language = Language::of_request(request.headers());
    LANGUAGE.scope(language, answer_request(guard, request, next)).await
}

/// Copy of a form's body, so that a page can show the values again. The handler reads the form after it has identified
/// the person.
#[derive(Debug, Clone, Default)]
struct ReadForm(Arc<Mutex<Vec<u8>>>);

impl ReadForm {
    fn record_body(&self, request: Request) -> Request {
        let copy = self.0.clone();
        request.map(|body| {
            Body::from_stream(body.into_data_stream().inspect_ok(move |part| {
                copy.lock().extend_from_slice(part);
            }))
        })
    }

    /// Returns the names and values of the form; empty if it cannot be read.
    async fn into_values(self) -> Vec<(String, String)> {
        let bytes = std::mem::take(&mut *self.0.lock());
        let form = Request::post("/").header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(Body::from(bytes));
        let Ok(form) = form else { return Vec::new() };
        Form::from_request(form, &()).await.map_or_else(|_| Vec::new(), |Form(values)| values)
    }
}

/// A request whose refusal may be shown on a page.
struct SentForm {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    transport: Transport,
    address: ClientAddress,
    form: ReadForm,
}

impl SentForm {
    fn is_read(&self) -> bool {
        self.method.is_safe()
    }

    fn referer(&self) -> Option<Uri> {
        self.headers.get(REFERER).and_then(|page| page.to_str().ok()?.parse().ok())
    }

    /// Returns the pages that may have sent the request.
    fn list_pages(&self, base: &str) -> Vec<String> {
        if self.is_read() {
            // If a filter cannot be read, the page is shown without the filter.
            return vec![self.uri.path().to_owned()];
        }
        refusal::list_pages(base, self.referer().as_ref(), self.uri.path())
    }

    /// Returns a request of the same person for a page.
    fn ask_for(&self, page: &str) -> Option<Request> {
        let mut request = Request::get(page).body(Body::empty()).ok()?;
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().remove(CONTENT_LENGTH);
        request.headers_mut().remove(CONTENT_TYPE);
        request.extensions_mut().insert(self.transport);
        request.extensions_mut().insert(self.address);
        Some(request)
    }

    /// Returns the names and values that a page may show again.
    async fn into_values(self) -> SentValues {
        let all: Vec<(String, String)> = if self.method.is_safe() {
            Query::try_from_uri(&self.uri).map_or_else(|_| Vec::new(), |Query(values)| values)
        } else {
            self.form.into_values().await
        };
        let count = all.len();
        let shown: Vec<_> = all.into_iter().filter(|(name, _)| !SECRET_FIELDS.contains(&name.as_str())).collect();
        SentValues { had_secret: shown.len() < count, shown }
    }
}

/// Values of a form without its secrets.
struct SentValues {
    shown: Vec<(String, String)>,
    had_secret: bool,
}

/// Renders the page that sent a refused form, together with the refusal. Returns `None` if no page can show it.
async fn show_again(guard: &PageGuard, sent: SentForm, status: StatusCode, problem: &PageProblem) -> Option<Response> {
    let base = guard.app.config.console.path.as_str();
    let requests: Vec<(String, Option<Request>)> =
        sent.list_pages(base).into_iter().map(|page| (page.clone(), sent.ask_for(&page))).collect();
    let action = sent.uri.path().to_owned();
    let values = sent.into_values().await.shown;
    for (page, request) in requests {
        let Some(request) = request else { continue };
        let refusal = Refusal::new(&action, values.clone(), (problem.title, problem.text.clone()), &page);
        let refusal = Arc::new(refusal.about(problem.field));
        let answer = refusal::show_refusal(refusal.clone(), guard.pages.clone().call(request)).await;
        let Ok(mut answer) = answer;
        if answer.status() == StatusCode::OK && refusal.is_shown() {
            *answer.status_mut() = status;
            return Some(answer);
        }
    }
    None
}

/// Renders an error page for an answer that carries a problem.
async fn dress_answer(guard: &PageGuard, sent: SentForm, is_refresh: bool, mut answer: Response) -> Response {
    let Some(mut problem) = answer.extensions_mut().remove::<PageProblem>() else { return answer };
    let app = &guard.app;
    let (status, is_read) = (answer.status(), sent.is_read());
    if let Some(target @ None) = &mut problem.sign_in {
        // After the sign-in the person returns to the page of the form.
        *target = sent.referer().and_then(|page| page.path_and_query().map(ToString::to_string));
    }
    let may_repeat = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let is_shown_again = !may_repeat && (!is_read || status == StatusCode::UNPROCESSABLE_ENTITY);
    if problem.sign_in.is_none() && !is_refresh && is_shown_again {
        if let Some(page) = show_again(guard, sent, status, &problem).await {
            return page;
        }
        return page::dress_problem(&app.config.console.path, problem, (is_refresh, is_read), None, answer);
    }
    // The servers are too busy to render the page again. The form can be sent again unchanged, unless it contained a
    // secret.
    let again = if may_repeat && !is_read {
        let action = sent.uri.path().to_owned();
        Some(sent.into_values().await).filter(|values| !values.had_secret).map(|values| (action, values.shown))
    } else {
        None
    };
    page::dress_problem(&app.config.console.path, problem, (is_refresh, is_read), again, answer)
}

async fn answer_request(guard: PageGuard, mut request: Request, next: Next) -> Response {
    let app = &guard.app;
    let (transport, address) = identify_client(app, &mut request);
    let is_refresh = request.headers().contains_key("hx-request");
    let is_read = request.method().is_safe();
    let is_foreign = !is_read && !is_same_origin(request.headers());
    let sent = SentForm {
        method: request.method().clone(),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
        transport,
        address,
        form: ReadForm::default(),
    };
    let mut answer = if is_foreign {
        let text = tr("problem.request_came_from_another");
        let mut answer = PageError::Forbidden(text).into_response();
        match answer.extensions_mut().remove() {
            // A form that another site sent is not on any page of the console.
            Some(problem) => {
                page::dress_problem(&app.config.console.path, problem, (is_refresh, is_read), None, answer)
            }
            None => answer,
        }
    } else {
        let answer = if app.core.db.is_overloaded() || (is_read && app.core.pages.is_overloaded()) {
            PageError::Overloaded(app.accounts.limits.retry_wait()).into_response()
        } else if is_read {
            next.run(request).await
        } else {
            next.run(sent.form.record_body(request)).await
        };
        dress_answer(&guard, sent, is_refresh, answer).await
    };
    protect_answer(&guard.app, &mut answer);
    answer
}

/// Adds the transport and the client's address to a request, and returns them.
pub(crate) fn identify_client(app: &App, request: &mut Request) -> (Transport, ClientAddress) {
    // The configuration check has parsed this value.
    let proxies = app.config.http.trusted_networks().unwrap_or_default();
    let transport = Transport::of_request(request, &proxies);
    let address = ClientAddress::of_request(request);
    request.extensions_mut().insert(transport);
    request.extensions_mut().insert(address);
    (transport, address)
}

/// Adds the headers that every answer has.
pub(crate) fn protect_answer(app: &App, answer: &mut Response) {
    let headers = answer.headers_mut();
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer` browsers would not send the origin of forms.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        let wait = app.accounts.limits.retry_wait().as_secs();
        answer.headers_mut().entry(RETRY_AFTER).or_insert(wait.into());
    }
}

/// Middleware that refuses a form that is incomplete after the time limit. The sign-in has less time, because its
/// caller is unknown.
pub(crate) async fn limit_form_time(State(sign_in): State<String>, request: Request, next: Next) -> Response {
    let limit = if request.uri().path() == sign_in { UNKNOWN_CALLERS_BODY_TIME } else { BODY_TIME };
    let (request, time) = body::begin_body_time(request, limit);
    let answer = next.run(request).await;
    if time.is_over() { PageError::SlowBody.into_response() } else { answer }
}

/// Returns whether a page of this origin made the request. Browsers report it in `Sec-Fetch-Site`, older ones in
/// `Origin`. A request without both headers does not come from a browser with a session.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(FETCH_SITE) {
        return site == "same-origin";
    }
    let origin = text(ORIGIN.as_str()).and_then(|origin| origin.parse::<Uri>().ok());
    let named = origin.as_ref().and_then(Uri::authority).map(Authority::as_str);
    named.is_some() && named == text(HOST.as_str())
}
