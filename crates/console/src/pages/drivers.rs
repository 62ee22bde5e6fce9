//! Page of all drivers: their state, and forms to create, change, disable and enable them.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{
    driver::{NO_DRIVER, SERVICES, change_of_driver, driver_chip, driver_page},
    roles::{OPERATORS, STAFF},
};
use crate::{
    form::{REASON, encode_component, given_text, optional_text, read_form, read_query, split_names, write_query},
    language::{Words, both, say},
    page::{Shell, go_back, render, safe_path},
    page_error::{NO_ACTION, PageError},
    session::SignedIn,
    shown::{Moment, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::ids::{DriverId, ServiceType};
use orders::fleet::{
    driver_admin::{self, DriverChange, DriverError, DriverFilter},
    drivers::NewDriver,
};

const PAGE: u32 = 100;
const REFRESH_S: u32 = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DriverQuery {
    /// Redirects to the page of this driver.
    id: String,
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
    if let Some(id) = optional_text(both("id", "id"), Some(&query.id))? {
        return Ok(Redirect::to(&driver_page(&app.config.console.path, &id)).into_response());
    }
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
    let drivers = driver_admin::list_page(&app.core.db, &filter, after.as_ref(), PAGE).await?;
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
    let shell = Shell::for_person(&app.config, &person, "/drivers", both("Drivers", "Pengemudi"), query.did.as_deref());
    let shell = shell.live(if query.after.is_empty() { REFRESH_S } else { 0 });
    let free = [
        ("", both("any", "semua").get()),
        ("true", both("on duty", "bertugas").get()),
        ("false", both("off duty", "tidak bertugas").get()),
    ];
    let page = TablePage {
        filters: vec![
            Field::text("id", both("Open a driver by id", "Buka pengemudi dengan id"), ""),
            Field::text("service_type", both("Service type", "Jenis layanan"), &query.service_type),
            Field::choice("available", both("Duty", "Tugas"), &query.available, &free),
        ],
        actions: if may_act { vec![form_for_new_driver()] } else { Vec::new() },
        if_empty: (
            both("No driver fits", "Tidak ada pengemudi yang cocok"),
            both(
                "Operators add drivers above, by dispatchq driver import FILE, or by POST /api/v1/drivers.",
                "Operator menambahkan pengemudi di atas, dengan dispatchq driver import FILE, atau dengan POST /api/v1/drivers.",
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

/// Disables or enables a driver.
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
    match driver_admin::set_disabled(&app.core.db, &DriverId::from(id), disabled, by).await {
        Ok(()) => Ok(go_back(&app.config, safe_path(back.as_deref(), "/drivers"), deed).into_response()),
        Err(error) => Err(refuse_driver(error)),
    }
}

pub(super) fn refuse_driver(error: DriverError) -> PageError {
    match error {
        DriverError::NotFound => PageError::NotFound(NO_DRIVER),
        DriverError::Exists(id) => PageError::Conflict(say!(
            "A driver of the id '{id}' exists: choose another id, or change that driver.",
            "Pengemudi dengan id '{id}' sudah ada: pilih id lain, atau ubah pengemudi itu."
        )),
        DriverError::Invalid(error) => PageError::Invalid(sentence(&error.message)),
        DriverError::Database(error) => error.into(),
    }
}

fn form_for_new_driver() -> Action {
    let wants = [
        ("false", both("when the driver says so", "saat pengemudi menyatakannya").get()),
        ("true", both("at once", "segera").get()),
    ];
    let required = Field::required;
    let fields = vec![
        required("id", both("Id: letters, digits, _ and -", "Id: huruf, angka, _ dan -")),
        required("service_types", SERVICES),
        required("latitude", both("Latitude, such as -6.2088", "Garis lintang, misalnya -6.2088")),
        required("longitude", both("Longitude, such as 106.8456", "Garis bujur, misalnya 106.8456")),
        Field::choice("available", both("Wants work", "Ingin bekerja"), "false", &wants),
        Field::text(
            "phone",
            both("Phone, such as +628123456789; empty: none", "Telepon, misalnya +628123456789; kosong: tidak ada"),
            "",
        ),
        Field::reason(),
    ];
    Action::new(both("Add a driver", "Tambahkan pengemudi"), "/fleet/create".to_owned(), fields)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewDriverForm {
    id: String,
    service_types: String,
    latitude: String,
    longitude: String,
    available: String,
    phone: String,
    reason: String,
}

fn parse_services(text: &str) -> Vec<ServiceType> {
    split_names(text).map(ServiceType::from).collect()
}

fn parse_degrees(text: &str) -> Result<f64, PageError> {
    text.trim().parse::<f64>().map_err(|_| {
        let text = both("A place is two numbers of degrees.", "Tempat adalah dua angka derajat.");
        PageError::Invalid(text.into())
    })
}

/// Creates a driver.
pub(crate) async fn create_driver(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<NewDriverForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let form = read_form(form)?;
    let reason = given_text(REASON, &form.reason)?;
    let phone = form.phone.trim();
    let new = NewDriver {
        id: DriverId::from(form.id.trim()),
        service_types: parse_services(&form.service_types),
        latitude: parse_degrees(&form.latitude)?,
        longitude: parse_degrees(&form.longitude)?,
        available: form.available == "true",
        phone: Some(if phone.is_empty() { None } else { Some(phone.to_owned()) }),
    };
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let made = driver_admin::create_driver(&app.orders, &new, by).await.map_err(refuse_driver)?;
    let page = format!("/drivers/{}", encode_component(made.id.as_str()));
    Ok(go_back(&app.config, &page, "driver-created").into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DriverChangeForm {
    service_types: String,
    phone: String,
    reason: String,
}

/// Changes a driver's service types and phone number. An empty phone number stays unchanged; `-` removes it.
pub(crate) async fn change_driver(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<DriverChangeForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let DriverChangeForm { service_types, phone, reason } = read_form(form)?;
    let reason = given_text(REASON, &reason)?;
    let phone = match phone.trim() {
        "" => None,
        "-" => Some(None),
        number => Some(Some(number.to_owned())),
    };
    let change = DriverChange { service_types: Some(parse_services(&service_types)), phone };
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let page = format!("/drivers/{}", encode_component(&id));
    driver_admin::change_driver(&app.orders, &DriverId::from(id), &change, by).await.map_err(refuse_driver)?;
    Ok(go_back(&app.config, &page, "driver-changed").into_response())
}
