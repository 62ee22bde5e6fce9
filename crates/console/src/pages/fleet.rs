//! Areas and drivers: how they stand, and what is decided for them.

use std::collections::HashMap;

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use chrono::TimeDelta;
use dispatch::{
    accounts::{api_keys::AccountRole, staff_actions::ActionAuthor},
    app::App,
    areas::table::{ChangeAuthor, TableError, overrides},
    fleet::driver_admin::{self, DriverError, DriverFilter},
    ids::{AreaId, DriverId, ServiceType},
    reports::{
        area_status::{self, AreaStatus},
        page_changes::ChangeTopic,
    },
};
use model::admission::limits::ForcedStatus;
use serde::Deserialize;

use super::{
    STAFF,
    area::{NO_AREA, area_page},
    desk::Deed,
    driver::{NO_DRIVER, change_of_driver, driver_chip, driver_page},
};
use crate::{
    form::{REASON, given_text, optional_text, read_form, read_query, write_query},
    language::{Words, both, say},
    map::{AreaLoad, AreaShape, draw_areas},
    page::{NO_ACTION, PageError, Shell, go_back, render, safe_path},
    session::SignedIn,
    shown::{Chip, Moment, describe_age, sentence, spaced},
    table::{Action, Cell, Field, TablePage, TableRow},
};

const PAGE: u32 = 100;
const AREAS_REFRESH_S: u32 = 10;
/// Who overrides areas.
const DECIDERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Operator];
const OPERATORS: [AccountRole; 1] = [AccountRole::Operator];
/// The longest an override set here lasts.
const LONGEST_OVERRIDE_MIN: i64 = 7 * 24 * 60;

const AREA_HEADINGS: [Words; 6] = [
    both("Area", "Wilayah"),
    both("Service", "Layanan"),
    both("Waiting", "Menunggu"),
    both("Mode", "Mode"),
    both("Threshold holds", "Ambang batas berlaku"),
    both("Oldest waits", "Terlama menunggu"),
];

pub(crate) async fn show_areas(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let mut areas = area_status::area_statuses(&app).await?;
    areas.sort_by(|one, other| other.utilization.total_cmp(&one.utilization));
    let now = app.rules.database_now();
    let may_decide = person.may(&DECIDERS);
    let figure = draw_map(&app, &areas);
    let base = &app.config.console.path;
    let rows = areas.into_iter().map(|area| {
        let href = area_page(base, area.area_id.as_str());
        let mode = match area.mode {
            "AUTO" => Chip::new("plain", both("by its count", "menurut hitungan")),
            "FORCE_AVAILABLE" => Chip::new("good", both("forced open", "dipaksa buka")),
            other => Chip::new("warn", spaced(other)),
        };
        let modes = [
            ("FORCE_BUSY", both("busy: take no more orders", "sibuk: tidak menerima pesanan lagi").get()),
            ("FORCE_AVAILABLE", both("open: whatever waits", "buka: berapa pun yang menunggu").get()),
            ("AUTO", both("by its count again", "kembali menurut hitungan").get()),
        ];
        let fields = vec![
            Field::choice("status", both("The area is", "Wilayah ini"), "FORCE_BUSY", &modes),
            Field::text(
                "minutes",
                both(
                    "For so many minutes; empty: until a person ends it",
                    "Selama sekian menit; kosong: sampai diakhiri orang",
                ),
                "",
            ),
            Field::reason(),
        ];
        let decide =
            Action::new(both("Override", "Tetapkan manual"), format!("/areas/{}/override", area.area_id), fields);
        TableRow {
            cells: vec![
                Cell::link(&href, area.area_id.as_str()),
                Cell::text(&area.service_type),
                Cell::meter(area.waiting, area.threshold),
                Cell::html(mode),
                Cell::text(spaced(&format!("{:?}", area.enforcement))),
                Cell::text(describe_age(area.oldest_waiting_since, now)),
            ],
            actions: if may_decide { vec![decide] } else { Vec::new() },
            href,
        }
    });
    let shell = Shell::for_person(&app, &person, "/areas", both("Areas", "Wilayah"), did.as_deref());
    let shell = shell.live(AREAS_REFRESH_S).follow(ChangeTopic::Orders).made_at(now);
    let page = TablePage {
        note: both(
            "The fullest first. An override holds for all service types of its area.",
            "Yang terpenuh lebih dulu. Ketetapan manual berlaku untuk semua jenis layanan di wilayahnya.",
        )
        .into(),
        figure,
        if_empty: (
            both("No areas yet", "Belum ada wilayah"),
            both("Import them: dispatchq area import FILE.geojson", "Impor dengan: dispatchq area import FILE.geojson"),
        ),
        ..TablePage::new(shell, "/areas", &AREA_HEADINGS, rows.collect())
    };
    render(&page)
}

/// Draws the areas, each as full as its fullest service type. What may be said of one is in the table, too.
fn draw_map(app: &App, statuses: &[AreaStatus]) -> String {
    let rules = app.rules.get();
    let mut fullest: HashMap<&AreaId, &AreaStatus> = HashMap::new();
    for status in statuses {
        let kept = fullest.entry(&status.area_id).or_insert(status);
        if status.utilization > kept.utilization {
            *kept = status;
        }
    }
    let shapes = fullest.into_values().filter_map(|status| {
        let area = rules.geofence.get(&status.area_id)?;
        let is_closed = matches!(status.mode, "FORCE_BUSY" | "DISABLED");
        let (id, name, mode) = (&area.id, &area.name, spaced(status.mode));
        let AreaStatus { waiting, threshold, service_type, .. } = status;
        let told = say!(
            "{id} ({name}): {waiting} of {threshold} wait for {service_type}, {mode}",
            "{id} ({name}): {waiting} dari {threshold} menunggu {service_type}, {mode}"
        );
        Some(AreaShape {
            id: area.id.as_str(),
            outlines: area.outlines(),
            load: AreaLoad::new(is_closed, status.utilization),
            utilization: status.utilization,
            told,
        })
    });
    draw_areas(shapes.collect())
}

#[derive(Debug, Deserialize)]
pub(crate) struct OverrideForm {
    #[serde(default)]
    status: String,
    #[serde(default)]
    minutes: String,
    #[serde(default)]
    reason: String,
}

/// Decides for an area, whatever its count; or gives it back to its count.
pub(crate) async fn set_override(
    State(app): State<App>,
    person: SignedIn,
    Path(area): Path<String>,
    form: Result<Form<OverrideForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&DECIDERS)?;
    let OverrideForm { status, minutes, reason } = read_form(form)?;
    let reason = given_text(REASON, &reason)?;
    let minutes = match minutes.trim() {
        "" => None,
        text => match text.parse::<i64>() {
            Ok(minutes) if (1..=LONGEST_OVERRIDE_MIN).contains(&minutes) => Some(minutes),
            _ => {
                return Err(PageError::Invalid(say!(
                    "An override lasts 1 to {LONGEST_OVERRIDE_MIN} minutes.",
                    "Ketetapan manual berlaku 1 sampai {LONGEST_OVERRIDE_MIN} menit."
                )));
            }
        },
    };
    let until = minutes.map(|minutes| app.rules.database_now() + TimeDelta::minutes(minutes));
    let forced = match status.as_str() {
        "FORCE_BUSY" => Some((ForcedStatus::ForceBusy, until)),
        "FORCE_AVAILABLE" => Some((ForcedStatus::ForceAvailable, until)),
        "AUTO" => None,
        _ => {
            let text = both(
                "An area is forced busy, forced open, or goes by its count.",
                "Wilayah dipaksa sibuk, dipaksa buka, atau mengikuti hitungannya.",
            );
            return Err(PageError::Invalid(text.into()));
        }
    };
    let author = ChangeAuthor { actor: &person.actor(), reason: Some(&reason) };
    match overrides::set_override(&app.db, &AreaId::from(area), forced, None, author).await {
        Ok(_) => {}
        Err(TableError::NoSuchArea) => {
            return Err(PageError::NotFound(NO_AREA));
        }
        Err(TableError::Database(error)) => return Err(error.into()),
        Err(error) => return Err(PageError::Conflict(sentence(&error.to_string()))),
    }
    Ok(go_back(&app, "/areas", if forced.is_some() { "override" } else { "auto" }).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DriverQuery {
    service_type: String,
    available: String,
    after: String,
    did: Option<String>,
}

const DRIVER_HEADINGS: [Words; 6] = [
    both("Driver", "Pengemudi"),
    both("State", "Status"),
    both("Drives for", "Melayani"),
    both("Order", "Pesanan"),
    both("Idle since", "Menganggur sejak"),
    both("Place", "Tempat"),
];

pub(crate) async fn show_drivers(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<DriverQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let query: DriverQuery = read_query(query)?;
    let filter = DriverFilter {
        service_type: optional_text(both("service type", "jenis layanan"), Some(&query.service_type))?.map(Into::into),
        available: match query.available.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        disabled: None,
    };
    let after = optional_text(both("cursor", "penanda halaman"), Some(&query.after))?.map(DriverId::from);
    let drivers = driver_admin::list_page(&app.db, &filter, after.as_ref(), PAGE).await?;
    let is_full = u32::try_from(drivers.len()).is_ok_and(|n| n == PAGE);
    let address = |after: &str| {
        write_query(&[("service_type", &query.service_type), ("available", &query.available), ("after", after)])
    };
    let next = drivers.last().filter(|_| is_full).map(|driver| address(driver.id.as_str()));
    let base = &app.config.console.path;
    let may_act = person.may(&OPERATORS);
    let rows = drivers.into_iter().map(|driver| {
        let href = driver_page(base, driver.id.as_str());
        let order_page =
            driver.active_order.as_deref().map(|order| format!("{base}/orders/{order}")).unwrap_or_default();
        let services: Vec<&str> = driver.service_types.iter().map(ServiceType::as_str).collect();
        TableRow {
            cells: vec![
                Cell::link(&href, driver.id.as_str()),
                Cell::html(driver_chip(&driver)),
                Cell::text(services.join(", ")),
                driver.active_order.as_deref().map_or_else(|| Cell::text(""), |order| Cell::link(&order_page, order)),
                Cell::html(Moment(driver.idle_since)),
                Cell::text(format!("{:.4}, {:.4}", driver.lat, driver.lng)),
            ],
            actions: if may_act { vec![change_of_driver(&driver, None)] } else { Vec::new() },
            href,
        }
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app, &person, "/drivers", both("Drivers", "Pengemudi"), query.did.as_deref());
    let free = [
        ("", both("any", "semua").get()),
        ("true", both("on duty", "bertugas").get()),
        ("false", both("off duty", "tidak bertugas").get()),
    ];
    let page = TablePage {
        filters: vec![
            Field::text("service_type", both("Service type", "Jenis layanan"), &query.service_type),
            Field::choice("available", both("Duty", "Tugas"), &query.available, &free),
        ],
        if_empty: (
            both("No driver fits", "Tidak ada pengemudi yang cocok"),
            both(
                "Add drivers: dispatchq driver import FILE, or POST /api/v1/drivers.",
                "Tambahkan pengemudi: dispatchq driver import FILE, atau POST /api/v1/drivers.",
            ),
        ),
        next,
        ..TablePage::new(shell, &format!("/drivers{}", address(&query.after)), &DRIVER_HEADINGS, rows)
    };
    render(&page)
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReasonForm {
    #[serde(default)]
    pub(super) reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DriverForm {
    #[serde(default)]
    reason: String,
    back: Option<String>,
}

/// Gives a driver no more work, or takes that back.
pub(crate) async fn set_driver(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<DriverForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let (disabled, deed) = match word.as_str() {
        "disable" => (true, "driver-disabled"),
        "enable" => (false, "driver-enabled"),
        _ => return Err(PageError::NotFound(NO_ACTION)),
    };
    let DriverForm { reason, back } = read_form(form)?;
    let reason = given_text(REASON, &reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    match driver_admin::set_disabled(&app.db, &DriverId::from(id), disabled, by).await {
        Ok(()) => Ok(go_back(&app, safe_path(back.as_deref(), "/drivers"), deed).into_response()),
        Err(DriverError::NotFound) => Err(PageError::NotFound(NO_DRIVER)),
        Err(DriverError::Database(error)) => Err(error.into()),
        Err(error) => Err(PageError::Conflict(sentence(&error.to_string()))),
    }
}
