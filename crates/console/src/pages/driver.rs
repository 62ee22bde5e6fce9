//! Page of one driver: current activity, last position and its age, and the outcome of offers.

use askama::Template;
use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
};
use chrono::{DateTime, TimeDelta, Utc};

use super::{
    roles::{CALLERS, OPERATORS, STAFF},
    rows::Deed,
};
use crate::{
    form::{encode_component, read_query},
    language::{Words, both, say},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Countdown, Moment, describe_age, describe_distance, group_digits},
    table::{Action, Field},
};
use app::App;
use desk::reports::page_changes::ChangeTopic;
use foundation::db;
use model::{
    ids::{DriverId, ServiceType},
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

pub(super) const SERVICES: Words = both("Service types, with commas", "Jenis layanan, dengan koma");
pub(super) const NO_DRIVER: Words = both("There is no driver of this id.", "Tidak ada pengemudi dengan id ini.");

/// Returns the address of a driver's page. `base` is the console's path.
pub(super) fn driver_page(base: &str, id: &str) -> String {
    format!("{base}/drivers/{}", encode_component(id))
}

/// Returns the current activity of a driver.
pub(super) fn driver_chip(driver: &DriverRecord) -> Chip {
    match driver.active_order {
        _ if driver.disabled_at.is_some() => Chip::new("bad", both("disabled", "dinonaktifkan")),
        Some(_) => Chip::new("busy", both("has an order", "memegang pesanan")),
        None if driver.available => Chip::new("good", both("free", "bebas")),
        None => Chip::new("plain", both("off duty", "tidak bertugas")),
    }
}

/// Returns the form that disables or enables a driver. It returns to `back`, or else to the list.
pub(super) fn change_of_driver(driver: &DriverRecord, back: Option<&str>) -> Action {
    let (label, word) = if driver.disabled_at.is_some() {
        (both("Enable", "Aktifkan"), "enable")
    } else {
        (both("Disable", "Nonaktifkan"), "disable")
    };
    let mut fields: Vec<Field> = back.map(|back| Field::hidden("back", back)).into_iter().collect();
    fields.push(Field::reason());
    Action::new(label, format!("/drivers/{}/{word}", encode_component(driver.id.as_str())), fields)
}

/// Returns the form that changes a driver's service types and phone number.
fn form_for_change(driver: &DriverRecord) -> Action {
    let services: Vec<&str> = driver.service_types.iter().map(ServiceType::as_str).collect();
    let fields = vec![
        Field { value: services.join(", "), ..Field::required("service_types", SERVICES) },
        Field::text(
            "phone",
            both(
                "Phone, such as +628123456789; empty: it stays; -: none",
                "Telepon, misalnya +628123456789; kosong: tetap; -: tidak ada",
            ),
            "",
        ),
        Field::reason(),
    ];
    let path = format!("/drivers/{}/change", encode_component(driver.id.as_str()));
    Action::new(both("Change", "Ubah"), path, fields)
}

/// Returns the state of an offer.
fn offer_chip(state: OfferState) -> Chip {
    let (tone, word) = match state {
        OfferState::Offered => ("wait", both("is asked", "sedang ditanya")),
        OfferState::Accepted => ("good", both("won", "diterima")),
        OfferState::Declined => ("warn", both("declined", "ditolak")),
        OfferState::Expired => ("warn", both("not answered", "tidak dijawab")),
        OfferState::Superseded => ("plain", both("lost to another driver", "didahului pengemudi lain")),
        OfferState::Withdrawn => ("plain", both("taken back", "ditarik kembali")),
    };
    Chip::new(tone, word)
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
    let driver = drivers::find_driver(&app.core.db, &id).await?.ok_or(PageError::NotFound(NO_DRIVER))?;
    let located = drivers::find_located_at(&app.core.db, &id).await?;
    let offers = driver_offers::list_latest(&app.core.db, &id, OFFERS).await?;
    let ends = driver_offers::count_ended(&app.core.db, &id, COUNTED).await?;
    let now = db::database_now(&app.core.db).await?;
    let services: Vec<&str> = driver.service_types.iter().map(ServiceType::as_str).collect();
    let wants_work = if driver.available { both("yes", "ya") } else { both("no", "tidak") };
    let facts = vec![
        (both("Drives for", "Melayani"), services.join(", ")),
        (both("Wants work", "Ingin bekerja"), wants_work.into()),
        (both("Last place", "Tempat terakhir"), format!("{:.5}, {:.5}", driver.lat, driver.lng)),
        (
            both("Age of the place", "Umur tempat itu"),
            match located {
                Some(_) => describe_age(located, now),
                None => both("not known", "tidak diketahui").into(),
            },
        ),
    ];
    let back = format!("/drivers/{}", encode_component(driver.id.as_str()));
    let actions = if person.may(&OPERATORS) {
        vec![form_for_change(&driver), change_of_driver(&driver, Some(&back))]
    } else {
        Vec::new()
    };
    let title = say!("Driver {id}", "Pengemudi {id}");
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
