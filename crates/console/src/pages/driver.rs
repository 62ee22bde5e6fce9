//! Page of one driver: current activity, last position and its age, and the outcome of offers.

use askama::Template;
use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
};
use chrono::{DateTime, TimeDelta, Utc};

use super::{
    roles::{CALLERS, DISPATCHERS, OPERATORS, STAFF},
    rows::Deed,
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, read_query},
    outside_link::OutsideLink,
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, Countdown, Moment, describe_age, describe_distance, describe_place, group_digits},
    table::{Action, Field},
};
use app::App;
use desk::reports::page_changes::ChangeTopic;
use foundation::db;
use model::{
    ids::{DriverId, LatLng, ServiceType},
    order::OfferState,
};
use orders::fleet::{
    driver_offers::{self, DriverOffer, MOST_COUNTED},
    drivers::{self, DriverRecord},
};

const REFRESH_S: u32 = 5;
/// Number of offers on the page.
const OFFERS: u32 = 50;
/// Time range of the counts.
const COUNTED: TimeDelta = TimeDelta::days(7);

/// Returns the address of a driver's page. `base` is the console's path.
pub(super) fn driver_page(base: &str, id: &str) -> String {
    format!("{base}/drivers/{}", encode_component(id))
}

/// Returns the current activity of a driver.
pub(super) fn driver_chip(driver: &DriverRecord) -> Chip {
    match driver.active_order {
        _ if driver.disabled_at.is_some() => Chip::new("bad", tr("common.disabled")),
        Some(_) => Chip::new("busy", tr("driver.order")),
        None if driver.available => Chip::new("good", tr("driver.available")),
        None => Chip::new("plain", tr("common.off_duty")),
    }
}

/// Returns the form that disables or enables a driver. It returns to `back`, or else to the list.
pub(super) fn change_of_driver(driver: &DriverRecord, back: Option<&str>) -> Action {
    let (label, word) = if driver.disabled_at.is_some() {
        (tr("driver.enable_driver"), "enable")
    } else {
        (tr("driver.disable_driver"), "disable")
    };
    let mut fields: Vec<Field> = back.map(|back| Field::hidden("back", back)).into_iter().collect();
    fields.push(Field::reason());
    Action::new(label, format!("/drivers/{}/{word}", encode_component(driver.id.as_str())), fields)
}

/// Returns the form that changes a driver's service types, labels, name and phone number.
fn form_for_change(driver: &DriverRecord) -> Action {
    let services: Vec<&str> = driver.service_types.iter().map(ServiceType::as_str).collect();
    let fields = vec![
        Field {
            value: services.join(", "),
            ..Field::required("service_types", tr("driver.service_types_separated_commas"))
        },
        Field::text("skills", tr("driver.skills_separated_commas"), &driver.skills.join(", ")),
        Field::text("name", tr("common.name"), driver.name.as_deref().unwrap_or_default()),
        Field::text("phone", tr("driver.phone_field"), ""),
        Field::reason(),
    ];
    let path = format!("/drivers/{}/change", encode_component(driver.id.as_str()));
    Action::new(tr("driver.change_driver"), path, fields)
}

/// Returns the form that creates a one-time link for the driver page.
fn form_for_link(id: &DriverId) -> Action {
    let path = format!("/drivers/{}/sign-in-link", encode_component(id.as_str()));
    Action::new(tr("driver_link.create"), path, vec![Field::reason()])
}

/// Returns the state of an offer.
pub(super) fn offer_chip(state: OfferState) -> Chip {
    let tone = match state {
        OfferState::Offered => "wait",
        OfferState::Accepted => "good",
        OfferState::Declined | OfferState::Expired => "warn",
        OfferState::Superseded | OfferState::Withdrawn => "plain",
    };
    Chip::of_code(tone, Code::new("offer_state", state.as_str()))
}

struct OfferRow {
    order: String,
    attempt: i32,
    state: Chip,
    distance: String,
    offered: Moment,
    /// Time when the offer ended.
    ended: Option<Moment>,
    /// Time until which the driver may answer.
    expires: Option<Countdown>,
    reason: String,
}

impl OfferRow {
    fn new(offer: DriverOffer, now: DateTime<Utc>) -> Self {
        let is_open = offer.state == OfferState::Offered;
        Self {
            order: offer.order_id,
            attempt: offer.attempt_no,
            state: offer_chip(offer.state),
            distance: offer.distance_m.map_or_else(|| "–".to_owned(), describe_distance),
            offered: Moment(offer.offered_at),
            ended: offer.responded_at.map(Moment),
            expires: is_open.then_some(Countdown { to: offer.expires_at, now }),
            reason: offer.reason.unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "driver.html")]
struct DriverDetailPage {
    shell: Shell,
    /// Address of this page.
    here: String,
    id: String,
    state: Chip,
    /// Order that the driver carries out.
    order: Option<String>,
    facts: Vec<(Words, String)>,
    idle_since: Moment,
    disabled: Option<Moment>,
    located: Option<Moment>,
    /// Page of the driver in another system.
    link: Option<OutsideLink>,
    /// Outcomes of the last days, each with its count.
    ends: Vec<(Chip, String)>,
    offers: Vec<OfferRow>,
    /// Whether this person may see phone numbers.
    may_call: bool,
    /// Path below the console's path.
    back: String,
    actions: Vec<Action>,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let id = DriverId::from(id);
    let Deed { did } = read_query(query)?;
    let driver =
        drivers::find_driver(&app.core.db, &id).await?.ok_or(PageError::NotFound(tr("driver.no_driver_id")))?;
    let located = drivers::find_located_at(&app.core.db, &id).await?;
    let offers = driver_offers::list_latest(&app.core.db, &id, OFFERS).await?;
    let ends = driver_offers::count_ended(&app.core.db, &id, COUNTED).await?;
    let now = db::database_now(&app.core.db).await?;
    let services: Vec<&str> = driver.service_types.iter().map(ServiceType::as_str).collect();
    let wants_work = if driver.available { tr("common.yes") } else { tr("common.no") };
    let facts = vec![
        (tr("common.name"), driver.name.clone().unwrap_or_else(|| "–".to_owned())),
        (tr("common.service_types"), services.join(", ")),
        (tr("driver.skills"), driver.skills.join(", ")),
        (tr("common.on_duty"), wants_work.into()),
        (tr("driver.last_location"), describe_place(LatLng { lat: driver.lat, lng: driver.lng })),
        (
            tr("driver.age_location"),
            match located {
                Some(_) => describe_age(located, now),
                None => tr("common.not_known").into(),
            },
        ),
    ];
    let back = format!("/drivers/{}", encode_component(driver.id.as_str()));
    let mut actions = Vec::new();
    if app.config.http.driver_page && driver.disabled_at.is_none() && person.may(&DISPATCHERS) {
        actions.push(form_for_link(&driver.id));
    }
    if person.may(&OPERATORS) {
        actions.extend([form_for_change(&driver), change_of_driver(&driver, Some(&back))]);
    }
    let title = fill!("driver.title", id);
    let shell = Shell::for_person(&app.config, &person, "/drivers", title, did.as_deref());
    let page = DriverDetailPage {
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(now),
        here: driver_page(&app.config.console.path, driver.id.as_str()),
        id: driver.id.to_string(),
        state: driver_chip(&driver),
        facts,
        idle_since: Moment(driver.idle_since),
        disabled: driver.disabled_at.map(Moment),
        located: located.map(Moment),
        link: OutsideLink::of_driver(app.config.console.links.driver.as_deref(), &driver.id),
        ends: ends.into_iter().map(|(state, count)| (offer_chip(state), count_text(count))).collect(),
        offers: offers.into_iter().map(|offer| OfferRow::new(offer, now)).collect(),
        order: driver.active_order,
        may_call: person.may(&CALLERS),
        back,
        actions,
    };
    render(&page)
}

/// Returns a count such as `1,234`, or `10,000+` if counting stopped there.
fn count_text(count: i64) -> String {
    let more = if count >= MOST_COUNTED { "+" } else { "" };
    format!("{}{more}", group_digits(count.unsigned_abs()))
}
