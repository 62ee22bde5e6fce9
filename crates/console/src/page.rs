//! The frame of a page, and the pages of errors.

use std::sync::Arc;

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{Html, IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};

use crate::{
    assets,
    deeds::describe_deed,
    form::write_query,
    language::{Language, Words, both},
    page_error::{PageError, PageProblem},
    refusal::{self, Refusal},
    session::SignedIn,
    shown::{Moment, role_word},
};
use accounts::api_keys::AccountRole;
use app::App;
use desk::reports::page_changes::ChangeTopic;
use foundation::queue_pauses::PausedQueue;

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
            role: role_word(person.role()),
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
