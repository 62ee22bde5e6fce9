//! Page of one order: the cause of its state, its next jobs, its history, and the possible actions.

use askama::Template;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    alerts::{form_to_acknowledge, may_acknowledge},
    area::area_page,
    desk::TakenBy,
    driver::{driver_page, offer_chip},
    living_jobs::job_cell,
    order_form::join_labels,
    order_map,
    ranking::RankingPart,
    roles::{BOOKERS, CALLERS, DISPATCHERS, REFUNDERS, STAFF},
    rows::{Deed, parse_order},
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{given_text, read_form, read_query, write_query},
    outside_link::OutsideLink,
    page::{Shell, go_back, render, safe_path},
    page_error::PageError,
    reasons::{describe_job, describe_reason},
    session::SignedIn,
    shown::{Chip, Code, Countdown, Moment, describe_amount, describe_place},
    table::{Action, Cell, Field},
    ticket_link::TicketLink,
};
use ::desk::{
    explain::{JobStanding, NextJob, OperatorAdvice, OrderExplanation, gather},
    operator::{
        desk,
        order::{self, OrderAction},
    },
    reports::page_changes::ChangeTopic,
};
use app::App;
use model::{
    decide::{actions, contents::is_before_pickup},
    details::OrderPlace,
    ids::{DriverId, LatLng},
    messages,
    order::{Booking, OfferState, OrderStatus, RefundProgress},
    view::OrderView,
};
use notify::alerts::{self, AlertFilter, RaisedAlert};
use orders::{query::TimelineEvent, seen::Basis};
use settings::ConsoleConfig;

const REFRESH_S: u32 = 3;
/// Maximum number of alerts on the page.
const ALERTS: u32 = 20;

/// A job that runs next.
struct NextStep {
    what: &'static str,
    when: Countdown,
    job: Cell,
    queue: String,
    standing: Chip,
    /// Worker that holds the job, or the error of a dead job.
    more: String,
}

impl NextStep {
    fn new(person: &SignedIn, base: &str, job: NextJob, now: chrono::DateTime<chrono::Utc>) -> Self {
        let (standing, more) = match job.state {
            JobStanding::Waiting { .. } => (Chip::new("wait", tr("common.waiting")), String::new()),
            JobStanding::Parked { .. } => (Chip::new("wait", tr("common.waits_slot")), String::new()),
            JobStanding::Running { worker, .. } => {
                let by = worker.map(|worker| fill!("common.runs_on", worker)).unwrap_or_default();
                (Chip::new("busy", tr("common.running")), by)
            }
            JobStanding::Dead { error } => (Chip::new("bad", tr("common.dead")), error),
            JobStanding::Missing => {
                let more = tr("order.it_missing_redis_restored");
                (Chip::new("warn", tr("order.missing")), more.into())
            }
            JobStanding::Unknown => (Chip::new("plain", tr("common.not_known")), String::new()),
        };
        let when = Countdown { to: job.at, now };
        let what = describe_job(&job.job);
        Self { what, when, job: job_cell(person, base, &job.job), queue: job.queue, standing, more }
    }
}

struct TimelineRow {
    at: Moment,
    what: Code,
    /// Status after the event; `None` if the event did not change it.
    status: Option<Chip>,
    actor: String,
    attempt: Option<i32>,
    detail: String,
}

impl TimelineRow {
    fn new(event: TimelineEvent) -> Self {
        let is_step = event.from_status != Some(event.to_status);
        Self {
            at: Moment(event.at),
            what: Code::new("order_event", event.reason),
            status: is_step.then(|| Chip::of_status(event.to_status)),
            actor: event.actor,
            attempt: event.attempt_no,
            detail: event.detail.unwrap_or_default(),
        }
    }
}

struct OrderOfferRow {
    attempt: i32,
    wave: i32,
    driver: String,
    state: Chip,
    offered: Moment,
    expires: Countdown,
    is_open: bool,
}

struct BookingRow {
    attempt: i32,
    partner: String,
    state: Code,
    booking: String,
    job: String,
    error: String,
    link: Option<OutsideLink>,
}

struct OrderAlertRow {
    kind: Code,
    raised: Moment,
    is_open: bool,
    acked: String,
    acknowledge: Option<Action>,
    tickets: Vec<TicketLink>,
}

impl OrderAlertRow {
    fn new(alert: RaisedAlert, person: &SignedIn) -> Self {
        let may_ack = alert.acked_at.is_none() && may_acknowledge(person, &alert.kind);
        let back = alert.order_id.as_ref().map(|order| format!("/orders/{order}"));
        let acked = alert.acked_by.map(|by| format!("{by}: {}", alert.ack_note.unwrap_or_default()));
        Self {
            acknowledge: may_ack.then(|| form_to_acknowledge(alert.id, back.as_deref())),
            kind: Code::new("message_kind", alert.kind),
            raised: Moment(alert.raised_at),
            is_open: alert.acked_at.is_none(),
            acked: acked.unwrap_or_default(),
            tickets: TicketLink::link_all(alert.tickets),
        }
    }
}

/// Returns the facts about an order, with links to their pages. Missing facts are omitted, except the driver.
fn list_facts(config: &ConsoleConfig, order: &OrderView, pickup: LatLng) -> Vec<(Words, Cell)> {
    let (base, links) = (config.path.as_str(), &config.links);
    let link = |template: &Option<String>, id: Option<&str>| {
        OutsideLink::of_order(template.as_deref(), order, id, order.job_id.as_deref())
    };
    let area = order.area_id.as_deref().map(|area| Cell::link(&area_page(base, area), area));
    let customer = order.customer_id.as_deref().map(|customer| {
        let found = write_query(&[("q", customer)]);
        Cell::link(&format!("{base}/orders{found}"), customer)
    });
    let customer = Cell::with_link(customer, link(&links.customer, order.customer_id.as_deref()));
    let driver = match (order.driver_id.as_deref(), &order.partner) {
        (Some(driver), None) => {
            let cell = Cell::link(&driver_page(base, driver), driver);
            cell.and_link(link(&links.driver, Some(driver)))
        }
        // A partner's driver has no page.
        (driver, _) => Cell::id(driver.unwrap_or_default()),
    };
    let amount = describe_amount(order.amount_minor, order.currency.as_deref());
    let facts = [
        (tr("order.elsewhere"), link(&links.order, Some(order.order_id.as_str())).map(Cell::html)),
        (tr("common.service_type"), Some(Cell::text(&order.service_type))),
        (tr("common.pickup"), Some(Cell::text(describe_address(pickup, order.pickup.as_ref())))),
        (tr("order.pickup_time"), order.pickup_at.map(|at| Cell::html(Moment(at)))),
        (
            tr("order.dropoff"),
            order.dropoff.as_ref().map(|place| Cell::text(describe_address(place.as_lat_lng(), Some(place)))),
        ),
        (tr("order.notes"), order.notes.as_deref().map(Cell::text)),
        (tr("order.requires"), (!order.requires.is_empty()).then(|| Cell::text(join_labels(&order.requires)))),
        (tr("common.area"), area),
        (tr("common.customer"), customer),
        (tr("common.driver"), Some(driver)),
        (tr("common.partner"), order.partner.as_ref().map(Cell::text)),
        (tr("common.job_id"), order.job_id.as_ref().map(Cell::id)),
        (tr("order.attempts"), Some(Cell::text(order.attempt_no))),
        (tr("order.payment"), Some(Cell::html(Code::new("payment_state", order.payment_status.as_str())))),
        (tr("order.first_payment"), order.paid_at.map(|at| Cell::html(Moment(at)))),
        (tr("common.amount"), Some(Cell::text(amount))),
        (
            tr("order.admission"),
            order.admission.as_deref().map(|verdict| Cell::html(Code::new("admission_verdict", verdict))),
        ),
    ];
    let facts = facts.into_iter().filter_map(|(name, cell)| Some((name, cell?)));
    let metadata =
        order.metadata.iter().map(|(key, value)| (tr("order.metadata"), Cell::text(format!("{key} = {value}"))));
    facts.chain(metadata).collect()
}

/// Returns the address with the coordinates, or only the coordinates.
fn describe_address(at: LatLng, place: Option<&OrderPlace>) -> String {
    let coordinates = describe_place(at);
    match place.and_then(|place| place.address.as_deref()) {
        Some(address) => format!("{address} ({coordinates})"),
        None => coordinates,
    }
}

/// Returns the actions that this person may take in the current state of the order. The services check again.
fn list_actions(person: &SignedIn, order: &OrderView, ranking: Option<&RankingPart>) -> Vec<Action> {
    let (status, is_held) = (order.status, order.held_for_review);
    let path = |word: &str| format!("/orders/{}/{word}", order.order_id);
    let of_reason = |label: Words, word: &str| Action::new(label, path(word), vec![Field::reason()]);
    let dispatches = person.may(&DISPATCHERS);
    let refunds = person.may(&REFUNDERS);
    let is_owed = order.refund.as_ref().is_some_and(|refund| refund.state == RefundProgress::Owed);
    let mut actions = Vec::new();
    if dispatches && status.is_searching() {
        let driver = Field::required("driver_id", tr("common.driver"));
        let driver = Field { suggestions: ranking.map(RankingPart::suggestions).unwrap_or_default(), ..driver };
        let assign = Action::new(tr("common.assign_driver"), path("assign"), vec![driver, Field::reason()]);
        actions.push(assign);
    }
    if dispatches && status.occupies_driver() {
        actions
            .push(of_reason(tr("common.release_from_driver"), "release").hint(tr("order.search_continues_driver_not")));
    }
    if dispatches && status.is_searching() {
        actions.push(of_reason(tr("orders.search_again"), "redispatch"));
    }
    if dispatches && !status.is_closed() && !is_held {
        actions.push(of_reason(tr("order.hold_order"), "hold").hint(tr("order.timers_order_stop_until")));
    }
    if dispatches && is_held {
        actions.push(of_reason(tr("common.resume_order"), "resume"));
    }
    if refunds && is_owed {
        let note = vec![Field::text("note", tr("common.note"), "")];
        actions.push(Action::new(tr("common.start_refund"), path("refund-start"), note));
    }
    if refunds && status == OrderStatus::RefundPending {
        let note = vec![Field::required("note", tr("refunds.how_money_paid_back"))];
        actions.push(Action::new(tr("common.complete_refund"), path("refund-done"), note));
    }
    if person.may(&BOOKERS) && !status.is_closed() && status != OrderStatus::PickedUp {
        let cancel = of_reason(tr("common.cancel_order"), "cancel");
        actions.push(cancel.danger().hint(tr("order.cannot_undone_paid_amount")));
    }
    actions
}

#[derive(Template)]
#[template(path = "order.html")]
struct OrderDetailPage {
    shell: Shell,
    /// Error of Redis, if it does not answer.
    redis_problem: Option<String>,
    id: String,
    status: Chip,
    is_held: bool,
    /// Desk claim on the order.
    taken: Option<TakenBy>,
    why: String,
    facts: Vec<(Words, Cell)>,
    created: Moment,
    closed: Option<Moment>,
    lifetime: Option<Countdown>,
    next: Vec<NextStep>,
    to_do: Vec<OperatorAdvice>,
    /// SVG of the pickup and of the known drivers.
    map: String,
    offers: Vec<OrderOfferRow>,
    ranking: Option<RankingPart>,
    /// Searches of earlier attempts.
    earlier: Vec<RankingPart>,
    bookings: Vec<BookingRow>,
    alerts: Vec<OrderAlertRow>,
    timeline: Vec<TimelineRow>,
    /// Own driver whose phone number this person may see.
    callable: Option<String>,
    /// Whether the order has a contact that this person may read.
    shows_contact: bool,
    /// Path below the console's path.
    back: String,
    /// Whether this person may claim the order.
    may_take: bool,
    may_leave: bool,
    /// Whether this person may change the contents.
    may_change: bool,
    actions: Vec<Action>,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.showing(app);
    let id = parse_order(path)?;
    let Deed { did } = read_query(query)?;
    let explained = gather::explain_order_even_without_redis(&app.desk, &id).await?;
    let (explained, redis_error) = explained.ok_or(PageError::NotFound(tr("problem.no_order_id")))?;
    let filter = AlertFilter { order: Some(id), limit: ALERTS, ..AlertFilter::default() };
    let raised = alerts::list_alerts(&app.core.db, &filter).await?;
    let raised = raised.into_iter().map(|alert| alert.link_tickets(&app.notify.channels)).collect();
    let map = order_map::draw_map(&app.core, &explained).await?;
    let takes = desk::list_takes(&app.core.db, &[explained.order.order_id.as_str()]).await?;
    let taken = takes.into_iter().next().map(|take| TakenBy::new(take, &person.actor(), explained.now));
    let around = OrderAround { raised, map, taken, redis_problem: redis_error.map(|error| error.to_string()) };
    render(&build_page((&app, &person), explained, around, did.as_deref()))
}

/// Returns whether the page has no button for the command of this advice.
fn has_no_button(advice: &OperatorAdvice) -> bool {
    let has_button =
        |command: &str| ["dispatchq order ", "dispatchq alert ack "].iter().any(|verb| command.starts_with(verb));
    !advice.command.as_deref().is_some_and(has_button)
}

/// Data about the order from other sources.
struct OrderAround {
    raised: Vec<RaisedAlert>,
    map: String,
    taken: Option<TakenBy>,
    /// Error of Redis, if it does not answer.
    redis_problem: Option<String>,
}

fn build_page(
    (app, person): (&App, &SignedIn),
    explained: OrderExplanation,
    OrderAround { raised, map, taken, redis_problem }: OrderAround,
    did: Option<&str>,
) -> OrderDetailPage {
    let OrderExplanation {
        order,
        pickup,
        has_contact,
        reason,
        next,
        to_do,
        offers,
        ranking,
        earlier_rankings,
        bookings,
        timeline,
        now,
        ..
    } = explained;
    let text = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let base = app.config.console.path.as_str();
    let facts = list_facts(&app.config.console, &order, pickup);
    let tells_overdue = |alert: &RaisedAlert| alert.kind == messages::STALE_TRIP && alert.acked_at.is_none();
    let is_overdue = order.status.occupies_driver() && raised.iter().any(tells_overdue);
    let waits = order.status == OrderStatus::Pending || order.held_for_review || is_overdue;
    let id = &order.order_id;
    let shell = Shell::for_person(&app.config, person, "/orders", fill!("order.title", id), did);
    let offers = offers.into_iter().rev().map(|offer| OrderOfferRow {
        attempt: offer.attempt_no,
        wave: offer.wave,
        driver: offer.driver_id.into_string(),
        state: offer_chip(offer.state),
        offered: Moment(offer.offered_at),
        expires: Countdown { to: offer.expires_at, now },
        is_open: offer.state == OfferState::Offered,
    });
    let link_booking = |booking: &Booking| {
        let template = app.config.console.links.booking.as_deref();
        OutsideLink::of_order(template, &order, booking.booking_id.as_deref(), booking.job_id.as_deref())
    };
    let bookings = bookings.into_iter().map(|booking| BookingRow {
        link: link_booking(&booking),
        attempt: booking.attempt_no,
        partner: booking.partner.into_string(),
        state: Code::new("booking_state", booking.state.as_str()),
        booking: text(booking.booking_id),
        job: text(booking.job_id),
        error: booking.last_error.unwrap_or_default(),
    });
    let dispatches = person.may(&DISPATCHERS);
    let is_mine = taken.as_ref().is_some_and(|taken| taken.is_me);
    let ranking = ranking.map(RankingPart::of_attempt);
    OrderDetailPage {
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(now),
        redis_problem,
        id: order.order_id.to_string(),
        status: Chip::of_status(order.status),
        is_held: order.held_for_review,
        why: describe_reason(&reason),
        facts,
        created: Moment(order.created_at),
        closed: order.closed_at.map(Moment),
        lifetime: order.lifetime_left_sec.map(|_| Countdown { to: order.lifetime_deadline, now }),
        next: next.into_iter().map(|job| NextStep::new(person, base, job, now)).collect(),
        to_do: to_do.into_iter().filter(has_no_button).collect(),
        map,
        offers: offers.collect(),
        actions: list_actions(person, &order, ranking.as_ref()),
        callable: order
            .driver_id
            .as_ref()
            .filter(|_| order.partner.is_none() && person.may(&CALLERS))
            .map(ToString::to_string),
        shows_contact: has_contact && person.may(&CALLERS),
        back: format!("/orders/{}", order.order_id),
        may_take: dispatches && waits && !is_mine,
        may_leave: dispatches && is_mine,
        may_change: person.may(&BOOKERS) && is_before_pickup(order.status),
        ranking,
        earlier: earlier_rankings.into_iter().map(RankingPart::of_attempt).collect(),
        bookings: bookings.collect(),
        alerts: raised.into_iter().map(|alert| OrderAlertRow::new(alert, person)).collect(),
        timeline: timeline.into_iter().rev().map(TimelineRow::new).collect(),
        taken,
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionForm {
    #[serde(default)]
    driver_id: String,
    #[serde(default)]
    reason: String,
    back: Option<String>,
}

/// Assigns, releases, redispatches, holds or resumes an order, as the path specifies.
pub(crate) async fn act_on_order(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<ActionForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&DISPATCHERS)?;
    let id = parse_order(Path(id))?;
    let ActionForm { driver_id, reason, back } = read_form(form)?;
    let action = match word.as_str() {
        "assign" => {
            let driver = driver_id.trim();
            if driver.is_empty() {
                return Err(PageError::Invalid(tr("order.enter_driver_who_gets").into()));
            }
            OrderAction::Assign(DriverId::from(driver))
        }
        "release" => OrderAction::Release,
        "redispatch" => OrderAction::Redispatch,
        "hold" => OrderAction::Hold,
        "resume" => OrderAction::Resume,
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    let reason = given_text(tr("common.reason"), &reason)?;
    order::act_on_order(&app.desk, &id, &action, &person.actor(), Some(&reason)).await?;
    let usual = format!("/orders/{id}");
    Ok(go_back(&app.config, safe_path(back.as_deref(), &usual), action.as_str()).into_response())
}

/// Cancels an order for its customer.
pub(crate) async fn cancel_order(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<ActionForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let id = parse_order(path)?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let actor = person.actor();
    let decide = |s: &model::order::Snapshot| actions::cancel_order(s, &actor, Some(reason.clone())).signed_by(&actor);
    app.orders.change(&id, Basis::Fresh, decide).await?.effects.run(&app.orders).await;
    Ok(go_back(&app.config, &format!("/orders/{id}"), "cancel").into_response())
}
