//! Drivers: how they stand, and what is decided for them.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use dispatch::{
    accounts::{api_keys::AccountRole, staff_actions::ActionAuthor},
    app::App,
    fleet::driver_admin::{self, DriverError, DriverFilter},
    ids::{DriverId, ServiceType},
};
use serde::Deserialize;

use super::{
    STAFF,
    driver::{NO_DRIVER, change_of_driver, driver_chip, driver_page},
};
use crate::{
    form::{REASON, given_text, optional_text, read_form, read_query, write_query},
    language::{Words, both},
    page::{NO_ACTION, PageError, Shell, go_back, render, safe_path},
    session::SignedIn,
    shown::{Moment, sentence},
    table::{Cell, Field, TablePage, TableRow},
};

const PAGE: u32 = 100;
const OPERATORS: [AccountRole; 1] = [AccountRole::Operator];

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
