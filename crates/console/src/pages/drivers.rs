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
    driver::{change_of_driver, driver_chip, driver_page},
    roles::{OPERATORS, STAFF},
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, optional_text, read_form, read_query, split_names, write_query},
    page::{Shell, go_back, render, safe_path},
    page_error::PageError,
    session::SignedIn,
    shown::{Moment, describe_place, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::{
    ids::{DriverId, LatLng, ServiceType},
    skills::SkillSet,
};
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
    tr("common.driver"),
    tr("common.state"),
    tr("common.service_types"),
    tr("common.order"),
    tr("common.idle_since"),
    tr("drivers.location"),
];

pub(crate) async fn show_drivers(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<DriverQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let query: DriverQuery = read_query(query)?;
    if let Some(id) = optional_text(tr("common.id"), Some(&query.id))? {
        return Ok(Redirect::to(&driver_page(&app.config.console.path, &id)).into_response());
    }
    let filter = DriverFilter {
        service_type: optional_text(tr("common.service_type"), Some(&query.service_type))?.map(Into::into),
        available: match query.available.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        disabled: None,
    };
    let after = optional_text(tr("common.page_position"), Some(&query.after))?.map(DriverId::from);
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
                Cell::text(describe_place(LatLng { lat: driver.lat, lng: driver.lng })),
            ],
            actions: if may_act { vec![change_of_driver(&driver, None)] } else { Vec::new() },
            href,
        }
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/drivers", tr("common.drivers"), query.did.as_deref());
    let shell = shell.live(if query.after.is_empty() { REFRESH_S } else { 0 });
    let free =
        [("", tr("common.any").get()), ("true", tr("common.on_duty").get()), ("false", tr("common.off_duty").get())];
    let page = TablePage {
        filters: vec![
            Field::text("id", tr("drivers.open_driver_id"), ""),
            Field::text("service_type", tr("common.service_type"), &query.service_type),
            Field::choice("available", tr("drivers.duty"), &query.available, &free),
        ],
        actions: if may_act { vec![form_for_new_driver()] } else { Vec::new() },
        if_empty: (tr("drivers.no_drivers_found"), tr("drivers.operators_add_drivers_above")),
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
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    let DriverForm { reason, back } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    match driver_admin::set_disabled(&app.core.db, &DriverId::from(id), disabled, by).await {
        Ok(()) => Ok(go_back(&app.config, safe_path(back.as_deref(), "/drivers"), deed).into_response()),
        Err(error) => Err(refuse_driver(error)),
    }
}

pub(super) fn refuse_driver(error: DriverError) -> PageError {
    match error {
        DriverError::NotFound => PageError::NotFound(tr("driver.no_driver_id")),
        DriverError::Exists(id) => PageError::Conflict(fill!("drivers.driver_id_already_exists", id)),
        DriverError::Invalid(error) => PageError::Invalid(sentence(&error.message)),
        DriverError::Database(error) => error.into(),
    }
}

fn form_for_new_driver() -> Action {
    let wants = [("false", tr("drivers.no_until_driver_goes").get()), ("true", tr("drivers.yes_immediately").get())];
    let required = Field::required;
    let fields = vec![
        required("id", tr("drivers.id_letters_digits")),
        required("service_types", tr("driver.service_types_separated_commas")),
        required("latitude", tr("drivers.latitude_such_as_6")),
        required("longitude", tr("drivers.longitude_such_as_106")),
        Field::choice("available", tr("common.on_duty"), "false", &wants),
        Field::text("skills", tr("driver.skills_separated_commas"), ""),
        Field::text("name", tr("common.name"), ""),
        Field::text("phone", tr("common.phone_example"), ""),
        Field::reason(),
    ];
    Action::new(tr("drivers.add_driver"), "/fleet/create".to_owned(), fields)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewDriverForm {
    id: String,
    service_types: String,
    latitude: String,
    longitude: String,
    available: String,
    skills: String,
    name: String,
    phone: String,
    reason: String,
}

fn parse_services(text: &str) -> Vec<ServiceType> {
    split_names(text).map(ServiceType::from).collect()
}

fn parse_skills(text: &str) -> SkillSet {
    split_names(text).map(str::to_owned).collect()
}

/// Returns the text of a field, or `None` if it is empty.
fn filled(text: &str) -> Option<String> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn parse_degrees(text: &str) -> Result<f64, PageError> {
    text.trim().parse::<f64>().map_err(|_| {
        let text = tr("drivers.latitude_longitude_numbers_degrees");
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
    let reason = given_text(tr("common.reason"), &form.reason)?;
    let new = NewDriver {
        id: DriverId::from(form.id.trim()),
        service_types: parse_services(&form.service_types),
        latitude: parse_degrees(&form.latitude)?,
        longitude: parse_degrees(&form.longitude)?,
        available: form.available == "true",
        phone: Some(filled(&form.phone)),
        name: Some(filled(&form.name)),
        skills: Some(parse_skills(&form.skills)),
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
    skills: String,
    name: String,
    phone: String,
    reason: String,
}

/// Changes a driver's service types, labels, name and phone number. An empty phone number stays unchanged; `-` removes it.
pub(crate) async fn change_driver(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<DriverChangeForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let DriverChangeForm { service_types, skills, name, phone, reason } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let phone = match phone.trim() {
        "" => None,
        "-" => Some(None),
        number => Some(Some(number.to_owned())),
    };
    let change = DriverChange {
        service_types: Some(parse_services(&service_types)),
        phone,
        name: Some(filled(&name)),
        skills: Some(parse_skills(&skills)),
    };
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let page = format!("/drivers/{}", encode_component(&id));
    driver_admin::change_driver(&app.orders, &DriverId::from(id), &change, by).await.map_err(refuse_driver)?;
    Ok(go_back(&app.config, &page, "driver-changed").into_response())
}
