//! The frame of pages, and error pages.

use std::sync::Arc;

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{Html, IntoResponse, Redirect, Response},
};
use chrono::{DateTime, TimeDelta, Utc};
use settings::{Config, ScheduledTask};

use crate::{
    assets,
    catalogue::{self, Words, fill, find_text, tr},
    form::write_query,
    language::Language,
    page_error::{PageError, PageProblem},
    refusal::{self, Refusal},
    scope::is_limited,
    session::SignedIn,
    shown::{Moment, describe_span, escape, group_digits, role_word},
};
use accounts::{api_keys::AccountRole, sessions::ProofGlance};
use desk::reports::page_changes::ChangeTopic;
use foundation::queue_pauses::PausedQueue;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    shell: Shell,
    status: u16,
    /// Whether the same request may succeed later. Only true for requests that read.
    may_repeat: bool,
    title: Words,
    text: String,
    /// The form that can be sent again: its address and its values.
    again: Option<(String, Vec<(String, String)>)>,
}

/// Renders the page of an error, or redirects a person without a session to the sign-in.
///
/// `base`: the path of the pages. `is_refresh`: a script sent the request and can replace only a part of its page. `is_read`: the request changes
/// nothing. `again`: the form that can be sent again.
pub(crate) fn dress_problem(
    base: &str,
    PageProblem { title, text, sign_in, .. }: PageProblem,
    (is_refresh, is_read): (bool, bool),
    again: Option<(String, Vec<(String, String)>)>,
    mut answer: Response,
) -> Response {
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

/// Answers paths below the console that do not exist.
pub(crate) async fn no_such_page() -> PageError {
    PageError::NotFound(tr("menu.page_not_exist"))
}

/// Renders a page.
pub(crate) fn render(page: &impl Template) -> Result<Response, PageError> {
    let render = || page.render().map_err(|error| PageError::Broken(error.to_string()));
    let body = render()?;
    // A form shows the refusal while the page is rendered. If no form showed it, the page is rendered again with the
    // refusal at its top.
    let body = if refusal::move_to_top() { render()? } else { body };
    Ok(Html(body).into_response())
}

/// Redirects to a page after an action. `deed` is a name in the group `done` of the catalogue.
pub(crate) fn go_back(config: &Config, path: &str, deed: &'static str) -> Redirect {
    let base = &config.console.path;
    let lead = if path.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{base}{path}{lead}did={deed}"))
}

/// Returns the path that a form names for [`go_back`] if it is a path of the console; otherwise `usual`.
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
    /// Key that opens the page after `g`.
    pub(crate) key: &'static str,
    pub(crate) is_here: bool,
}

/// Entries of the menu under one heading.
pub(crate) struct NavGroup {
    pub(crate) heading: Words,
    pub(crate) links: Vec<NavLink>,
}

/// How far the history is proven, for the header.
pub(crate) struct ProofLine {
    pub(crate) text: String,
    /// Text about open violations; empty if there is none.
    pub(crate) violations: String,
    /// Whether the person may open the page of the proof.
    pub(crate) is_link: bool,
}

impl ProofLine {
    fn for_person(person: &SignedIn) -> Self {
        let ProofGlance { event, lag_s, open } = person.0.proof.0;
        let event = group_digits(event);
        let age = describe_span(TimeDelta::try_milliseconds(as_ms(lag_s)).unwrap_or_default());
        let violations =
            if open > 0 { fill!("proof.open_violations", count = group_digits(open)) } else { String::new() };
        Self {
            text: fill!("proof.proven_until", event, age),
            violations,
            is_link: person.may(&[AccountRole::Operator]),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a lag of centuries is shown as the longest one")]
fn as_ms(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

/// Path of a page, its name, and the key that opens it after `g`. No two pages of the menus have the same key.
type MenuEntry = (&'static str, Words, &'static str);

/// Menu of all staff. The menus of operators and admins follow.
const MENU: [(Words, &[MenuEntry]); 2] = [
    (
        tr("menu.daily_work"),
        &[
            ("/", tr("common.now"), "n"),
            ("/desk", tr("common.desk"), "d"),
            ("/alerts", tr("common.alerts"), "a"),
            ("/orders", tr("common.orders"), "o"),
            ("/scheduled", tr("common.scheduled"), "s"),
            ("/refunds", tr("common.refunds"), "r"),
            ("/charts", tr("charts.title"), "c"),
        ],
    ),
    (
        tr("menu.fleet"),
        &[
            ("/map", tr("fleet_map.title"), "m"),
            ("/areas", tr("common.areas"), "e"),
            ("/drivers", tr("common.drivers"), "v"),
            ("/partners", tr("common.partners"), "p"),
            ("/bindings", tr("common.bindings"), "b"),
            ("/plans", tr("common.plans"), "l"),
        ],
    ),
];
const OPERATORS_MENU: [MenuEntry; 7] = [
    ("/queues", tr("common.queues"), "q"),
    ("/jobs", tr("common.jobs"), "j"),
    ("/workers", tr("common.workers"), "w"),
    ("/dead", tr("common.dead_jobs"), "x"),
    ("/outbox", tr("common.outbox"), "t"),
    ("/audit", tr("common.audit"), "u"),
    ("/proof", tr("proof.title"), "f"),
];
const ADMINS_MENU: [MenuEntry; 4] = [
    ("/keys", tr("common.keys"), "k"),
    ("/sessions", tr("common.sessions"), "i"),
    ("/users", tr("common.users"), "z"),
    ("/webhooks", tr("webhooks.title"), "h"),
];

/// Data of the frame around every page.
pub(crate) struct Shell {
    pub(crate) language: Language,
    pub(crate) base: String,
    pub(crate) title: String,
    /// Name of the signed-in person; empty without a sign-in.
    pub(crate) person: String,
    pub(crate) role: &'static str,
    pub(crate) menu: Vec<NavGroup>,
    /// Text in the search field.
    pub(crate) searched: String,
    /// Whether the frame has the search, which no scope limits.
    pub(crate) may_search: bool,
    /// Text about the action that was just done.
    pub(crate) deed: Option<&'static str>,
    /// How far the history is proven; `None` without a sign-in, or if the proof does not run.
    pub(crate) proof: Option<ProofLine>,
    /// Queues that operators paused.
    pub(crate) pauses: Vec<PausedQueue>,
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
    pub(crate) htmx: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) made_at: Moment,
    /// Seconds between refreshes of the page; 0 disables them.
    pub(crate) refresh_s: u32,
    /// Topic of the stream that reports changes, so that the page refreshes less often by itself. Empty if the page has
    /// no stream.
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
            searched: String::new(),
            may_search: false,
            deed: None,
            proof: None,
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

    /// Returns the frame for errors and for the sign-in.
    pub(crate) fn without_person(base: &str, title: Words) -> Self {
        Self::new(base, title.into())
    }

    /// Returns the frame for a signed-in person. `here` is the path of the page's menu entry. `did` is the action that
    /// was just done.
    pub(crate) fn for_person(
        config: &Config,
        person: &SignedIn,
        here: &str,
        title: impl Into<String>,
        did: Option<&str>,
    ) -> Self {
        let links = |entries: &[MenuEntry]| -> Vec<NavLink> {
            let is_shown = |path: &str| person.scope().is_none() || is_limited(path);
            let entries = entries.iter().filter(|(path, ..)| is_shown(path));
            entries.map(|&(path, label, key)| NavLink { path, label, key, is_here: path == here }).collect()
        };
        let mut menu: Vec<NavGroup> =
            MENU.iter().map(|&(heading, entries)| NavGroup { heading, links: links(entries) }).collect();
        if person.may(&[AccountRole::Operator]) {
            menu.push(NavGroup { heading: tr("menu.system"), links: links(&OPERATORS_MENU) });
        }
        if person.may(&[]) {
            menu.push(NavGroup { heading: tr("menu.access"), links: links(&ADMINS_MENU) });
        }
        menu.retain(|group| !group.links.is_empty());
        Self {
            person: person.0.key.name.clone(),
            role: role_word(person.role()),
            menu,
            deed: did.and_then(|did| find_text(Language::current(), &format!("done.{did}"))),
            proof: config.schedules.contains_key(&ScheduledTask::Proof).then(|| ProofLine::for_person(person)),
            may_search: person.scope().is_none(),
            // The reason of a pause may name an order outside of the person's scope.
            pauses: if person.scope().is_none() { person.0.paused_queues.0.clone() } else { Vec::new() },
            ..Self::new(&config.console.path, title.into())
        }
    }

    /// Returns a text of a template in the language of the request.
    pub(crate) fn tr(&self, key: &'static str) -> &'static str {
        tr(key).get()
    }

    /// Returns HTML of a text in which backticks mark code.
    pub(crate) fn with_code(&self, key: &'static str) -> String {
        let parts = self.tr(key).split('`').enumerate();
        parts
            .map(|(i, part)| if i % 2 == 0 { escape(part) } else { format!("<code>{}</code>", escape(part)) })
            .collect()
    }

    /// Returns the texts of the script as JSON.
    pub(crate) fn script_texts(&self) -> String {
        catalogue::script_texts(self.language)
    }

    /// Returns when the queue was paused.
    pub(crate) fn paused_since(&self, pause: &PausedQueue) -> Moment {
        Moment(pause.paused_at)
    }

    /// Returns the refusal if no form of the page shows it.
    pub(crate) fn refused(&self) -> Option<Arc<Refusal>> {
        refusal::refusal_on_top()
    }

    /// Returns the address of a page that is shown again because an action was refused.
    pub(crate) fn shown_again(&self) -> Option<String> {
        refusal::page_shown_again()
    }

    /// Refreshes the page every `refresh_s` seconds.
    pub(crate) fn live(self, refresh_s: u32) -> Self {
        Self { refresh_s, ..self }
    }

    /// Refreshes the page when rows of this topic have changed, at most as often as [`live`](Self::live) sets.
    pub(crate) fn follow(self, topic: ChangeTopic) -> Self {
        Self { topic: topic.as_str(), ..self }
    }

    /// Sets the text in the search field.
    pub(crate) fn searching(self, text: &str) -> Self {
        Self { searched: text.to_owned(), ..self }
    }

    /// Sets the displayed time, which is that of Postgres.
    pub(crate) fn made_at(self, at: DateTime<Utc>) -> Self {
        Self { made_at: Moment(at), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_page_of_the_menus_has_its_key() {
        let entries = MENU.iter().flat_map(|(_, entries)| *entries).chain(&OPERATORS_MENU).chain(&ADMINS_MENU);
        let keys: Vec<&str> = entries.map(|(_, _, key)| *key).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
        assert!(keys.iter().all(|key| key.len() == 1 && *key != "g"), "{keys:?}");
    }
}
