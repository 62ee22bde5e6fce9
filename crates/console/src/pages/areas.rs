//! Page of all areas: their status, thresholds and overrides.

use std::collections::HashMap;

use areas::capability::Areas;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use chrono::TimeDelta;
use model::admission::limits::ForcedStatus;
use serde::Deserialize;

use super::{
    admission::{change_of_flag, describe_flag, parse_version, refuse_change},
    area::area_page,
    roles::{OPERATORS, STAFF},
    rows::Deed,
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, read_form, read_query},
    map::{AreaShade, AreaShape, draw_areas},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, Countdown, describe_age},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use accounts::api_keys::AccountRole;
use app::App;
use areas::table::{
    ChangeAuthor, flag,
    limit_field::LimitField,
    limits::{self, LimitsChange, LimitsRow},
    overrides,
};
use desk::reports::{
    area_status::{self, AreaStatus},
    page_changes::ChangeTopic,
};
use model::ids::{AreaId, ServiceType};

const AREAS_REFRESH_S: u32 = 10;
/// Roles that override areas.
const DECIDERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Operator];
/// Maximum duration of an override from this page, in minutes.
const LONGEST_OVERRIDE_MIN: i64 = 7 * 24 * 60;

const AREA_HEADINGS: [Words; 6] = [
    tr("common.area"),
    tr("common.service_type"),
    tr("areas.waiting_orders"),
    tr("areas.mode"),
    tr("areas.threshold_applies"),
    tr("areas.oldest_waiting_order"),
];

pub(crate) async fn show_areas(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let mut areas = area_status::area_statuses(&app.desk).await?;
    areas.sort_by(|one, other| other.utilization.total_cmp(&one.utilization));
    let flag = flag::load_flag(&app.core.db).await?;
    let set = limits::list_limits(&app.core.db, None).await?;
    let set: HashMap<(&AreaId, &ServiceType), &LimitsRow> =
        set.iter().map(|row| ((&row.area_id, &row.service_type), row)).collect();
    let figure = draw_map(&app.areas, &areas);
    let rows = areas.iter().map(|area| {
        let own = set.get(&(&area.area_id, &area.service_type)).copied();
        row_of(&app, &person, area, own)
    });
    let rows = rows.collect();
    let flag_text = describe_flag(&flag);
    let note = fill!("areas.fullest_area_comes_first", flag_text);
    let shell = Shell::for_person(&app.config, &person, "/areas", tr("common.areas"), did.as_deref());
    let shell = shell.live(AREAS_REFRESH_S).follow(ChangeTopic::Orders).made_at(app.core.database_clock.now());
    let page = TablePage {
        note,
        figure,
        actions: if person.may(&OPERATORS) { vec![change_of_flag(&flag)] } else { Vec::new() },
        if_empty: (tr("areas.no_areas"), tr("areas.import_areas_dispatchq_area")),
        ..TablePage::new(shell, "/areas", &AREA_HEADINGS, rows)
    };
    render(&page)
}

/// Returns the table row for one service type of an area. `set` has the limits that are set for them.
fn row_of(app: &App, person: &SignedIn, area: &AreaStatus, set: Option<&LimitsRow>) -> TableRow {
    let now = app.core.database_clock.now();
    let href = area_page(&app.config.console.path, area.area_id.as_str());
    let mode = match area.mode {
        "AUTO" => Chip::new("plain", tr("areas.automatic")),
        "FORCE_AVAILABLE" => Chip::new("good", tr("areas.forced_open")),
        other => Chip::of_code("warn", Code::new("area_mode", other)),
    };
    let mode = match area.refuses {
        Some(cause) => {
            let cause = Chip::of_code("warn", Code::new("area_refusal", cause.as_str()));
            fill!("areas.mode_refuses", mode, cause)
        }
        None => mode.to_string(),
    };
    let rules = app.areas.rules.get();
    let forced = rules.override_for(&area.area_id).filter(|forced| forced.is_in_force(now));
    let until = forced.and_then(|forced| forced.expires_at).map(|to| Countdown { to, now });
    let mut actions = Vec::new();
    if person.may(&DECIDERS) {
        actions.push(override_of(area));
    }
    if person.may(&OPERATORS) {
        actions.push(change_of_threshold(area, set));
    }
    TableRow {
        cells: vec![
            Cell::link(&href, area.area_id.as_str()),
            Cell::text(&area.service_type),
            Cell::meter(area.waiting, area.threshold),
            Cell::html(until.map_or_else(|| mode.clone(), |until| fill!("areas.mode_ends", mode, until))),
            Cell::html(Code::new("enforcement", area.enforcement.as_str())),
            Cell::text(describe_age(area.oldest_waiting_since, now)),
        ],
        actions,
        // The rows of an area have one page. The service type tells them apart after a refresh.
        href: format!("{href}#{}", area.service_type),
    }
}

/// Returns the form that overrides an area, regardless of its count.
fn override_of(area: &AreaStatus) -> Action {
    let modes = [
        ("FORCE_BUSY", tr("areas.busy_refuse_new_orders").get()),
        ("FORCE_AVAILABLE", tr("areas.open_admit_all_orders").get()),
        ("AUTO", tr("areas.automatic_number_waiting_orders").get()),
    ];
    let fields = vec![
        Field::choice("status", tr("areas.state_area"), "FORCE_BUSY", &modes),
        Field::text("minutes", tr("areas.duration_minutes_empty_until"), ""),
        Field::reason(),
    ];
    let path = format!("/areas/{}/override", encode_component(area.area_id.as_str()));
    Action::new(tr("areas.override_area"), path, fields)
}

/// Returns the form that sets the threshold of an area for a service type.
fn change_of_threshold(area: &AreaStatus, set: Option<&LimitsRow>) -> Action {
    let most = set.and_then(|row| row.max_waiting_orders).map(|most| most.to_string()).unwrap_or_default();
    let version = set.map_or(0, |row| row.version).to_string();
    let label = if area.effective.scheduled {
        tr("areas.threshold_while_schedule_none")
    } else {
        tr("areas.threshold_empty_configured_value")
    };
    let fields = vec![
        Field::hidden("service_type", area.service_type.as_str()),
        Field::hidden("version", &version),
        Field::text("max_waiting_orders", label, &most),
        Field::reason(),
    ];
    let path = format!("/areas/{}/threshold", encode_component(area.area_id.as_str()));
    Action::new(tr("areas.set_threshold"), path, fields)
}

/// Draws the areas, each with the load of its fullest service type. The table below has the same data.
fn draw_map(areas: &Areas, statuses: &[AreaStatus]) -> String {
    let rules = areas.rules.get();
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
        let (id, name, mode) = (&area.id, &area.name, Code::new("area_mode", status.mode).text());
        let AreaStatus { waiting, threshold, service_type, .. } = status;
        let told = fill!("areas.orders_wait_mode", id, name, waiting, threshold, service_type, mode);
        Some(AreaShape {
            id: area.id.as_str(),
            outlines: area.outlines(),
            load: AreaShade::new(is_closed, status.utilization),
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

/// Overrides an area regardless of its count, or ends the override.
pub(crate) async fn set_override(
    State(app): State<App>,
    person: SignedIn,
    Path(area): Path<String>,
    form: Result<Form<OverrideForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&DECIDERS)?;
    let OverrideForm { status, minutes, reason } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let minutes = match minutes.trim() {
        "" => None,
        text => match text.parse::<i64>() {
            Ok(minutes) if (1..=LONGEST_OVERRIDE_MIN).contains(&minutes) => Some(minutes),
            _ => {
                return Err(PageError::Invalid(fill!("areas.override_last_from_1", most = LONGEST_OVERRIDE_MIN)));
            }
        },
    };
    let until = minutes.map(|minutes| app.core.database_clock.now() + TimeDelta::minutes(minutes));
    let forced = match status.as_str() {
        "FORCE_BUSY" => Some((ForcedStatus::ForceBusy, until)),
        "FORCE_AVAILABLE" => Some((ForcedStatus::ForceAvailable, until)),
        "AUTO" => None,
        _ => {
            let text = tr("areas.choose_busy_open_automatic");
            return Err(PageError::Invalid(text.into()));
        }
    };
    let author = ChangeAuthor { actor: &person.actor(), reason: Some(&reason) };
    overrides::set_override(&app.core.db, &AreaId::from(area), forced, None, author).await.map_err(refuse_change)?;
    Ok(go_back(&app.config, "/areas", if forced.is_some() { "override" } else { "auto" }).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ThresholdForm {
    service_type: String,
    max_waiting_orders: String,
    version: String,
    reason: String,
}

/// Sets the threshold of an area for a service type, or restores the configured threshold.
pub(crate) async fn set_threshold(
    State(app): State<App>,
    person: SignedIn,
    Path(area): Path<String>,
    form: Result<Form<ThresholdForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let ThresholdForm { service_type, max_waiting_orders, version, reason } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let service_type = ServiceType::from(service_type);
    if !app.config.knows_service_type(&service_type) {
        let text = tr("areas.service_type_not_exist");
        return Err(PageError::Invalid(text.into()));
    }
    let mut change = LimitsChange { service_type, ..LimitsChange::default() };
    match max_waiting_orders.trim() {
        "" => {
            change.inherit.insert(LimitField::MaxWaitingOrders);
        }
        text => match text.parse() {
            Ok(most) => change.max_waiting_orders = Some(most),
            Err(_) => {
                let text = tr("areas.threshold_not_a_number");
                return Err(PageError::Invalid(text.into()));
            }
        },
    }
    let author = ChangeAuthor { actor: &person.actor(), reason: Some(&reason) };
    let expected = parse_version(&version)?;
    limits::set_limits(&app.core.db, &AreaId::from(area), &change, expected, author).await.map_err(refuse_change)?;
    Ok(go_back(&app.config, "/areas", "threshold").into_response())
}
