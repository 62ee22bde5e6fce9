//! Desk: the orders that wait for a person, longest waiting first, with their desk claims and the drivers nearby.

use std::collections::HashMap;

use ::desk::capability::Desk;
use askama::Template;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::{
    ranking::RankingPart,
    roles::{CALLERS, DISPATCHERS, STAFF},
    rows::{BackForm, OrderRow, parse_order},
};
use crate::{
    catalogue::{fill, tr},
    form::{read_form, read_query, write_query},
    page::{Shell, go_back, render, safe_path},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Countdown},
    table::{Action, Field},
};
use ::desk::{
    operator::desk::{self, OrderTake, TakeError},
    reports::page_changes::ChangeTopic,
};
use api::scope::retain_visible;
use app::App;
use foundation::{db, staff_actions::ActionAuthor};
use model::{
    actor::Actor,
    order::{OrderStatus, Snapshot},
};
use orders::{order_store::load, search};

const PAGE: u32 = 100;
const REFRESH_S: u32 = 5;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeskQuery {
    /// Order whose nearby drivers are shown; empty for none.
    order: String,
    did: Option<String>,
}

/// Returns the address of the desk with the drivers of this order, below the console's path.
fn desk_of(order: &str) -> String {
    format!("/desk{}", write_query(&[("order", order)]))
}

/// Desk claim on an order, and its expiry.
pub(super) struct TakenBy {
    pub(super) person: Chip,
    pub(super) is_me: bool,
    pub(super) ends: Countdown,
}

impl TakenBy {
    pub(super) fn new(take: OrderTake, me: &Actor, now: DateTime<Utc>) -> Self {
        let is_me = take.taken_by == me.to_string();
        let person = if is_me { Chip::new("busy", tr("desk.you")) } else { Chip::new("busy", take.taken_by) };
        Self { person, is_me, ends: Countdown { to: take.ends_at, now } }
    }
}

/// An order that waits for a person.
struct DeskRow {
    order: OrderRow,
    taken: Option<TakenBy>,
    /// Address of the desk with the order's drivers.
    address: String,
    /// `None` if this person may not decide.
    decide: Option<Action>,
}

impl ChosenOrder {
    fn assign(&self, driver: &str) -> Action {
        form_to_assign(&self.id, driver)
    }
}

impl DeskRow {
    fn is_mine(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.is_me)
    }
}

/// Returns the form for a decision on an order that waits.
/// `suggestions` are drivers for the order, each with a description.
fn form_to_decide(order: &OrderRow, suggestions: Vec<(String, String)>) -> Action {
    let path = |word: &str| format!("/orders/{}/{word}", order.id);
    let mut fields = vec![Field::hidden("back", "/desk")];
    let mut decide = if order.has_driver {
        fields.push(Field::reason());
        Action::new(tr("desk.decide"), path("release"), fields).button(tr("common.release_from_driver"))
    } else {
        fields.push(Field { suggestions, ..Field::text("driver_id", tr("common.driver"), "") });
        fields.push(Field::reason());
        let assign = Action::new(tr("desk.decide"), path("assign"), fields).button(tr("common.assign_driver"));
        assign.or(tr("orders.search_again"), path("redispatch"))
    };
    if order.held.is_some() {
        decide = decide.or(tr("common.resume_order"), path("resume"));
    }
    decide
}

/// Returns the form that assigns the driver of one row.
fn form_to_assign(order: &str, driver: &str) -> Action {
    let fields = vec![
        Field::hidden("back", "/desk"),
        Field::hidden("driver_id", driver),
        // Distinguishes this form from the form of the order's row.
        Field::hidden("list", "near"),
        Field::reason(),
    ];
    let label = fill!("desk.assign", driver);
    Action::new(label, format!("/orders/{order}/assign"), fields).button(tr("common.assign_driver"))
}

/// The order whose drivers are shown.
struct ChosenOrder {
    id: String,
    status: Chip,
    /// `None` if the status of the order does not allow an assignment.
    ranking: Option<RankingPart>,
    address: String,
}

#[derive(Template)]
#[template(path = "desk.html")]
struct DeskPage {
    shell: Shell,
    /// Address that refreshes this page.
    here: String,
    chosen: Option<ChosenOrder>,
    rows: Vec<DeskRow>,
    may_act: bool,
    /// Whether this person may see phone numbers.
    may_call: bool,
    is_full: bool,
}

impl DeskPage {
    /// Returns the number of orders, such as `17`, or `100+`.
    fn count_text(&self) -> String {
        let more = if self.is_full { "+" } else { "" };
        format!("{}{more}", self.rows.len())
    }
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<DeskQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    // The ranking also reads orders outside of the person's scope, so that busy drivers are not proposed.
    let ranking = app.clone().showing().desk.clone();
    let app = person.showing(app);
    let DeskQuery { order, did } = read_query(query)?;
    let (now, chosen) = match order.trim() {
        "" => (db::database_now(&app.core.db).await?, None),
        id => {
            let id = parse_order(Path(id.to_owned()))?;
            let found = load::load_order(&app.core.db, &id).await?;
            let found = found.filter(|s| person.scope().is_none_or(|scope| scope.contains(&s.order)));
            let snapshot = found.ok_or(PageError::NotFound(tr("problem.no_order_id")))?;
            (snapshot.now, Some(choose_order(&ranking, &snapshot).await?))
        }
    };
    let mut orders = search::list_to_decide(&app.core.db, PAGE).await?;
    retain_visible(&app, person.scope(), &mut orders, |order| Some(order.id.as_str())).await?;
    let ids: Vec<&str> = orders.iter().map(|order| order.id.as_str()).collect();
    let takes = desk::list_takes(&app.core.db, &ids).await?;
    let mut takes: HashMap<String, OrderTake> = takes.into_iter().map(|take| (take.order_id.clone(), take)).collect();
    let is_full = u32::try_from(orders.len()).is_ok_and(|n| n == PAGE);
    let me = person.actor();
    let may_act = person.may(&DISPATCHERS);
    let rows = orders.into_iter().map(|order| {
        let taken = takes.remove(order.id.as_str()).map(|take| TakenBy::new(take, &me, now));
        let address = desk_of(order.id.as_str());
        let order = OrderRow::new(order, now);
        let nearby = chosen.as_ref().filter(|chosen| chosen.id == order.id).and_then(|chosen| chosen.ranking.as_ref());
        let suggestions = nearby.map(RankingPart::suggestions).unwrap_or_default();
        let decide = may_act.then(|| form_to_decide(&order, suggestions));
        DeskRow { order, taken, address, decide }
    });
    let rows: Vec<DeskRow> = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/desk", tr("common.desk"), did.as_deref());
    let page = DeskPage {
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(now),
        here: chosen.as_ref().map_or_else(|| "/desk".to_owned(), |chosen| chosen.address.clone()),
        chosen,
        rows,
        may_act,
        may_call: person.may(&CALLERS),
        is_full,
    };
    render(&page)
}

/// Ranks the drivers near an order in the same way as a search.
async fn choose_order(desk: &Desk, snapshot: &Snapshot) -> Result<ChosenOrder, PageError> {
    let order = &snapshot.order;
    let ranking = match order.status {
        OrderStatus::Dispatching | OrderStatus::Pending => {
            let ranking = desk::rank_now(desk, snapshot).await?;
            Some(RankingPart::new(order.attempt_no, snapshot.now, ranking))
        }
        _ => None,
    };
    let id = order.id.to_string();
    Ok(ChosenOrder { status: Chip::of_status(order.status), ranking, address: desk_of(&id), id })
}

fn refuse_take(error: TakeError) -> PageError {
    let text = match error {
        TakeError::Database(error) => return error.into(),
        TakeError::NotWaiting => tr("desk.order_no_longer_waits"),
        TakeError::NotYours => tr("desk.you_do_not_handle"),
    };
    PageError::Conflict(text.into())
}

/// Claims an order for this person, and shows the drivers nearby.
pub(crate) async fn take_order(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<BackForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&DISPATCHERS)?;
    let id = parse_order(path)?;
    let BackForm { back } = read_form(form)?;
    let by = ActionAuthor { actor: &person.actor(), reason: None };
    desk::take_order(&app.core.db, &id, by).await.map_err(refuse_take)?;
    Ok(go_back(&app.config, safe_path(back.as_deref(), &desk_of(id.as_str())), "take").into_response())
}

/// Ends this person's claim on an order.
pub(crate) async fn leave_order(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<BackForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&DISPATCHERS)?;
    let id = parse_order(path)?;
    let BackForm { back } = read_form(form)?;
    let by = ActionAuthor { actor: &person.actor(), reason: None };
    desk::leave_order(&app.core.db, &id, by).await.map_err(refuse_take)?;
    Ok(go_back(&app.config, safe_path(back.as_deref(), "/desk"), "leave").into_response())
}
