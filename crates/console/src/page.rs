//! The frame of a page, and errors as pages.

use std::{sync::Arc, time::Duration};

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{Html, IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};
use dispatch::{
    accounts::{api_keys::AccountRole, known_keys::LookupError},
    app::App,
    db,
    error::ServiceError,
    orders::{OrderRefusal, commit::ChangeError, search::SearchError},
    recovery::pauses::PausedQueue,
    reports::page_changes::ChangeTopic,
};

use crate::{
    assets,
    deeds::describe_deed,
    form::write_query,
    language::{Language, Words, both, say},
    refusal::{self, Refusal},
    service_words::describe_refusal,
    session::SignedIn,
    shown::{self, Moment},
};

/// What pages of orders say of an id that is none.
pub(crate) const NO_ORDER: Words = both("There is no order of this id.", "Tidak ada pesanan dengan id ini.");
/// What the addresses of forms say of a last word that is none.
pub(crate) const NO_ACTION: Words = both("There is no such action.", "Tidak ada tindakan seperti itu.");

/// Why there is no page, or no change.
#[derive(Debug)]
pub(crate) enum PageError {
    /// Sign in first; then the person sees this address.
    SignIn(Option<String>),
    Forbidden(Words),
    NotFound(Words),
    /// What was sent breaks a rule.
    Invalid(String),
    /// What is asked for cannot be done as things stand.
    Conflict(String),
    /// Too many requests with this session.
    TooMany(Duration),
    /// Too many wrong keys, or sign-ins at a provider, from one address.
    TooManyFailures(Duration),
    /// Others wait long for Postgres.
    Overloaded(Duration),
    /// A statement of the page took longer than those of pages may.
    TooSlow,
    /// The body of the request was not complete in time.
    SlowBody,
    /// Postgres or Redis cannot be asked.
    Unavailable(String),
    /// A fault of ours.
    Broken(String),
}

/// Why a request has no page, or changed nothing.
#[derive(Debug, Clone)]
pub(crate) struct PageProblem {
    pub(crate) title: Words,
    pub(crate) text: String,
    /// The person must sign in first, and then sees this address.
    pub(crate) sign_in: Option<Option<String>>,
}

impl PageError {
    fn describe(self) -> (StatusCode, PageProblem) {
        let problem = |title, text: String| PageProblem { title, text, sign_in: None };
        let wait = |wait: Duration| {
            let s = wait.as_secs().max(1);
            say!("Try again in {s} s.", "Coba lagi dalam {s} s.")
        };
        match self {
            Self::SignIn(target) => {
                let text =
                    both("Your session has ended, or you have none yet.", "Sesi Anda sudah berakhir, atau belum ada.");
                let title = both("Sign in", "Masuk");
                (StatusCode::UNAUTHORIZED, PageProblem { title, text: text.into(), sign_in: Some(target) })
            }
            Self::Forbidden(text) => {
                (StatusCode::FORBIDDEN, problem(both("Not allowed", "Tidak diizinkan"), text.into()))
            }
            Self::NotFound(text) => (StatusCode::NOT_FOUND, problem(both("Not found", "Tidak ditemukan"), text.into())),
            Self::Invalid(text) => {
                (StatusCode::UNPROCESSABLE_ENTITY, problem(both("That cannot be read", "Tidak dapat dibaca"), text))
            }
            Self::Conflict(text) => {
                (StatusCode::CONFLICT, problem(both("That was not done", "Itu tidak dilakukan"), text))
            }
            Self::TooMany(after) => {
                let title = both("Too many requests", "Terlalu banyak permintaan");
                (StatusCode::TOO_MANY_REQUESTS, problem(title, wait(after)))
            }
            Self::TooManyFailures(after) => {
                let wait = wait(after);
                let text = say!(
                    "Too many wrong keys or sign-ins came from this address. {wait}",
                    "Terlalu banyak kunci yang salah atau upaya masuk datang dari alamat ini. {wait}"
                );
                let title = both("Too many wrong keys", "Terlalu banyak kunci yang salah");
                (StatusCode::TOO_MANY_REQUESTS, problem(title, text))
            }
            Self::Overloaded(after) => {
                let wait = wait(after);
                let text = say!(
                    "The database has more to do than it can. {wait}",
                    "Pekerjaan basis data melebihi kemampuannya. {wait}"
                );
                (StatusCode::SERVICE_UNAVAILABLE, problem(both("Busy", "Sibuk"), text))
            }
            Self::TooSlow => {
                let text = both(
                    "The database needed more than two seconds for this page, and orders come first. Ask for less, or try again.",
                    "Basis data memerlukan lebih dari dua detik untuk halaman ini, dan pesanan didahulukan. Minta lebih sedikit, atau coba lagi.",
                );
                (StatusCode::SERVICE_UNAVAILABLE, problem(both("Too slow", "Terlalu lambat"), text.into()))
            }
            Self::SlowBody => {
                let text = both(
                    "The form did not arrive completely in time. Try again.",
                    "Formulir tidak tiba lengkap pada waktunya. Coba lagi.",
                );
                (StatusCode::REQUEST_TIMEOUT, problem(both("Too slow", "Terlalu lambat"), text.into()))
            }
            Self::Unavailable(cause) => {
                tracing::warn!(error = cause, "A page of the console could not be made.");
                let text = both(
                    "Postgres or Redis does not answer right now. Nothing that was accepted is lost. Try again in a moment.",
                    "Postgres atau Redis sedang tidak menjawab. Yang sudah diterima tidak hilang. Coba lagi sebentar lagi.",
                );
                (StatusCode::SERVICE_UNAVAILABLE, problem(both("Not available", "Tidak tersedia"), text.into()))
            }
            Self::Broken(cause) => {
                tracing::error!(error = cause, "A page of the console failed.");
                let text = both(
                    "This page failed by a fault of ours; the log has the details.",
                    "Halaman ini gagal karena kesalahan kami; rinciannya ada di log.",
                );
                (StatusCode::INTERNAL_SERVER_ERROR, problem(both("Something broke", "Ada yang rusak"), text.into()))
            }
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooMany(wait) | Self::TooManyFailures(wait) | Self::Overloaded(wait) => Some(*wait),
            _ => None,
        }
    }
}

/// Without a body: the guard makes the page.
impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after();
        let (status, problem) = self.describe();
        let mut answer = status.into_response();
        if let Some(wait) = retry_after {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        answer.extensions_mut().insert(problem);
        answer
    }
}

impl From<sqlx::Error> for PageError {
    fn from(error: sqlx::Error) -> Self {
        if db::is_refused_value(&error) {
            tracing::warn!(%error, "Postgres refused a value of a page's request.");
            let text = both(
                "A value cannot be stored or compared: a number, a time or a text is out of its range.",
                "Sebuah nilai tidak dapat disimpan atau dibandingkan: angka, waktu, atau teksnya di luar batas.",
            );
            return Self::Invalid(text.into());
        }
        if db::is_out_of_time(&error) { Self::TooSlow } else { Self::Unavailable(error.to_string()) }
    }
}

impl From<workers::StoreError> for PageError {
    fn from(error: workers::StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<ServiceError> for PageError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Unusable(text) => Self::Conflict(text),
            ServiceError::Database(error) => error.into(),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<LookupError> for PageError {
    fn from(error: LookupError) -> Self {
        match error {
            // Of keys that no process knows.
            LookupError::Overrun => Self::TooMany(Duration::from_secs(1)),
            error @ LookupError::Unanswered(_) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<SearchError> for PageError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::TooLong | SearchError::TooSlow => Self::Invalid(shown::sentence(&error.to_string())),
            SearchError::Database(error) => error.into(),
        }
    }
}

impl From<ChangeError> for PageError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound | ChangeError::Refused(OrderRefusal::NoSuchOrder) => Self::NotFound(NO_ORDER),
            ChangeError::Refused(refusal) => Self::Conflict(describe_refusal(&refusal)),
            ChangeError::Busy => {
                let text =
                    both("The order is changing too quickly. Try again.", "Pesanan berubah terlalu cepat. Coba lagi.");
                Self::Conflict(text.into())
            }
            ChangeError::Database(error) => error.into(),
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    shell: Shell,
    status: u16,
    /// It may go better at another time, and was asked for by an address.
    may_repeat: bool,
    title: Words,
    text: String,
    /// The form that may be sent again: its address, and what was filled in.
    again: Option<(String, Vec<(String, String)>)>,
}

/// Makes a page of a problem; sends those who have no session to the page for signing in. `is_refresh`: a script asks, and
/// cannot show another page in the place of a part of one. `is_read`: nothing was to be changed. `again`: the form that may be sent again.
pub(crate) fn dress_problem(
    app: &App,
    PageProblem { title, text, sign_in }: PageProblem,
    (is_refresh, is_read): (bool, bool),
    again: Option<(String, Vec<(String, String)>)>,
    mut answer: Response,
) -> Response {
    let base = app.config.console.path.as_str();
    if let Some(target) = sign_in {
        let query = write_query(&[("next", target.as_deref().unwrap_or_default())]);
        let address = format!("{base}/login{query}");
        return match HeaderValue::from_str(&address) {
            Ok(address) if is_refresh => ([("hx-redirect", address)], StatusCode::OK).into_response(),
            _ => Redirect::to(&address).into_response(),
        };
    }
    let status = answer.status();
    let may_repeat = is_read && (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error());
    let shell = Shell::without_person(base, title);
    let page = ProblemPage { shell, status: status.as_u16(), may_repeat, title, text, again };
    let body = page.render().unwrap_or_else(|_| title.into());
    let mut dressed = (status, Html(body)).into_response();
    if let Some(wait) = answer.headers_mut().remove(RETRY_AFTER) {
        dressed.headers_mut().insert(RETRY_AFTER, wait);
    }
    dressed
}

/// For addresses below the console's path that are none.
pub(crate) async fn no_such_page() -> PageError {
    PageError::NotFound(both("There is no page at this address.", "Tidak ada halaman di alamat ini."))
}

/// Renders a page.
pub(crate) fn render(page: &impl Template) -> Result<Response, PageError> {
    let render = || page.render().map_err(|error| PageError::Broken(error.to_string()));
    let body = render()?;
    // Whether a form shows a refusal is known at the end.
    let body = if refusal::move_to_top() { render()? } else { body };
    Ok(Html(body).into_response())
}

/// What an action leads back to, with a word that [`describe_deed`] knows.
pub(crate) fn go_back(app: &App, path: &str, deed: &'static str) -> Redirect {
    let base = &app.config.console.path;
    let lead = if path.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{base}{path}{lead}did={deed}"))
}

/// The address of [`go_back`] that a form names, if it is one of the console's; else `usual`.
pub(crate) fn safe_path<'a>(named: Option<&'a str>, usual: &'a str) -> &'a str {
    let is_plain = |path: &str| {
        path.starts_with('/')
            && !path.starts_with("//")
            && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_.~?&=%+".contains(&b))
    };
    named.filter(|path| is_plain(path)).unwrap_or(usual)
}

/// One entry of the menu.
pub(crate) struct NavLink {
    pub(crate) path: &'static str,
    pub(crate) label: Words,
    pub(crate) is_here: bool,
}

/// Entries of the menu under one heading.
pub(crate) struct NavGroup {
    pub(crate) heading: Words,
    pub(crate) links: Vec<NavLink>,
}

type MenuEntry = (&'static str, Words);

/// For all staff; below for operators, and for admins.
const MENU: [(Words, &[MenuEntry]); 2] = [
    (
        both("Watch", "Pantau"),
        &[
            ("/", both("Now", "Sekarang")),
            ("/desk", both("Desk", "Meja")),
            ("/alerts", both("Alerts", "Peringatan")),
            ("/orders", both("Orders", "Pesanan")),
            ("/refunds", both("Refunds", "Pengembalian dana")),
        ],
    ),
    (
        both("Fleet", "Armada"),
        &[
            ("/areas", both("Areas", "Wilayah")),
            ("/drivers", both("Drivers", "Pengemudi")),
            ("/partners", both("Partners", "Mitra")),
            ("/bindings", both("Bindings", "Binding")),
            ("/plans", both("Plans", "Rencana")),
        ],
    ),
];
const OPERATORS_MENU: [MenuEntry; 6] = [
    ("/queues", both("Queues", "Antrean")),
    ("/jobs", both("Jobs", "Pekerjaan")),
    ("/workers", both("Workers", "Pekerja")),
    ("/dead", both("Dead letters", "Pekerjaan mati")),
    ("/outbox", both("Outbox", "Kotak keluar")),
    ("/audit", both("Audit", "Audit")),
];
const ADMINS_MENU: [MenuEntry; 3] =
    [("/keys", both("Keys", "Kunci")), ("/sessions", both("Sessions", "Sesi")), ("/users", both("Users", "Pengguna"))];

/// What every page has around it.
pub(crate) struct Shell {
    pub(crate) language: Language,
    pub(crate) base: String,
    pub(crate) title: String,
    /// Empty: not signed in.
    pub(crate) person: String,
    pub(crate) role: &'static str,
    pub(crate) menu: Vec<NavGroup>,
    /// What was just done.
    pub(crate) deed: Option<Words>,
    /// The queues that operators stopped.
    pub(crate) pauses: Vec<PausedQueue>,
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
    pub(crate) htmx: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) made_at: Moment,
    /// The page refreshes itself every so many seconds; 0: it does not.
    pub(crate) refresh_s: u32,
    /// What a stream says changes of, so that the page need not ask by itself as often; empty: no stream does.
    pub(crate) topic: &'static str,
}

impl Shell {
    fn new(base: &str, title: String) -> Self {
        Self {
            language: Language::current(),
            base: base.to_owned(),
            title,
            person: String::new(),
            role: "",
            menu: Vec::new(),
            deed: None,
            pauses: Vec::new(),
            style: assets::style_name(),
            script: assets::script_name(),
            htmx: assets::htmx_name(),
            icon: assets::icon_name(),
            made_at: Moment(Utc::now()),
            refresh_s: 0,
            topic: "",
        }
    }

    /// For errors, and for signing in.
    pub(crate) fn without_person(base: &str, title: Words) -> Self {
        Self::new(base, title.into())
    }

    /// `here`: the path of the menu's entry this page belongs to. `did`: what was just done.
    pub(crate) fn for_person(
        app: &App,
        person: &SignedIn,
        here: &str,
        title: impl Into<String>,
        did: Option<&str>,
    ) -> Self {
        let links = |entries: &[MenuEntry]| -> Vec<NavLink> {
            entries.iter().map(|&(path, label)| NavLink { path, label, is_here: path == here }).collect()
        };
        let mut menu: Vec<NavGroup> =
            MENU.iter().map(|&(heading, entries)| NavGroup { heading, links: links(entries) }).collect();
        if person.may(&[AccountRole::Operator]) {
            menu.push(NavGroup { heading: both("Engine", "Mesin"), links: links(&OPERATORS_MENU) });
        }
        if person.may(&[]) {
            menu.push(NavGroup { heading: both("Access", "Akses"), links: links(&ADMINS_MENU) });
        }
        Self {
            person: person.0.key.name.clone(),
            role: shown::role_word(person.role()),
            menu,
            deed: did.and_then(describe_deed),
            pauses: person.0.paused_queues.0.clone(),
            ..Self::new(&app.config.console.path, title.into())
        }
    }

    /// A text of a template, in the language of the request.
    pub(crate) fn say(&self, english: &'static str, indonesian: &'static str) -> &'static str {
        match self.language {
            Language::English => english,
            Language::Indonesian => indonesian,
        }
    }

    /// When the queue was stopped.
    pub(crate) fn paused_since(&self, pause: &PausedQueue) -> Moment {
        Moment(pause.paused_at)
    }

    /// The refusal that no form of the page shows.
    pub(crate) fn refused(&self) -> Option<Arc<Refusal>> {
        refusal::refusal_on_top()
    }

    /// The address of a page that is shown again because an action was refused.
    pub(crate) fn shown_again(&self) -> Option<String> {
        refusal::page_shown_again()
    }

    /// Refreshes itself every so many seconds.
    pub(crate) fn live(self, refresh_s: u32) -> Self {
        Self { refresh_s, ..self }
    }

    /// Refreshes itself when these have changed, and no more often than [`live`](Self::live) says.
    pub(crate) fn follow(self, topic: ChangeTopic) -> Self {
        Self { topic: topic.as_str(), ..self }
    }

    /// Shows this time: that of Postgres.
    pub(crate) fn made_at(self, at: DateTime<Utc>) -> Self {
        Self { made_at: Moment(at), ..self }
    }
}
