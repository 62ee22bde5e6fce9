//! The flag of admission: the areas, channels and users whose orders thresholds may refuse; and errors of refused
//! changes.

use axum::{
    extract::{Form, State, rejection::FormRejection},
    response::{IntoResponse, Response},
};
use model::admission::limits::AdmissionFlag;
use serde::Deserialize;

use super::roles::OPERATORS;
use crate::{
    catalogue::{Words, fill, tr},
    form::{given_text, read_form, split_names},
    page::go_back,
    page_error::PageError,
    session::SignedIn,
    shown::sentence,
    table::{Action, Field},
};
use app::App;
use areas::table::{ChangeAuthor, TableError, flag};
use model::ids::AreaId;

/// Describes the areas, channels and users that thresholds apply to.
pub(super) fn describe_flag(flag: &AdmissionFlag) -> String {
    if !flag.enabled {
        return tr("areas.thresholds_off_they_refuse").into();
    }
    let listed = |names: Vec<&str>, all: Words| if names.is_empty() { String::from(all) } else { names.join(", ") };
    let areas = listed(flag.enabled_areas.iter().map(AreaId::as_str).collect(), tr("areas.all_areas"));
    let channels = listed(flag.enabled_channels.iter().map(String::as_str).collect(), tr("areas.all_channels"));
    let percentage = flag.percentage;
    let mut text = fill!("areas.thresholds_apply_users_on", percentage, areas, channels);
    if flag.shadow_mode {
        text.push(' ');
        text.push_str(tr("areas.shadow_mode_on_orders").get());
    }
    text
}

/// Returns the form that replaces the flag.
pub(super) fn change_of_flag(flag: &AdmissionFlag) -> Action {
    let word = |is: bool| if is { "true" } else { "false" };
    let on_off = [("true", tr("areas.on").get()), ("false", tr("areas.off").get())];
    let areas: Vec<&str> = flag.enabled_areas.iter().map(AreaId::as_str).collect();
    let fields = vec![
        Field::hidden("version", &flag.version.to_string()),
        Field::choice("enabled", tr("areas.thresholds"), word(flag.enabled), &on_off),
        Field::choice("shadow_mode", tr("areas.shadow_mode_record_refusals"), word(flag.shadow_mode), &on_off),
        Field::text("percentage", tr("areas.percentage_users"), &flag.percentage.to_string()),
        Field::text("enabled_areas", tr("areas.areas_separated_commas_empty"), &areas.join(", ")),
        Field::text("enabled_channels", tr("areas.channels_separated_commas_empty"), &flag.enabled_channels.join(", ")),
        Field::reason(),
    ];
    Action::new(tr("areas.change_threshold_settings"), "/admission/flag".to_owned(), fields)
}

pub(super) fn refuse_change(error: TableError) -> PageError {
    match error {
        TableError::NoSuchArea => PageError::NotFound(tr("areas.no_area_id")),
        TableError::Changed(_) => {
            let text = tr("areas.another_person_changed_meantime");
            PageError::Conflict(text.into())
        }
        TableError::Invalid(text) => PageError::Invalid(sentence(&text)),
        TableError::InvalidField(error) => PageError::Invalid(sentence(&error.message)),
        TableError::Database(error) => error.into(),
    }
}

/// Parses the version that the person has seen. A form without a version applies to any version.
pub(super) fn parse_version(text: &str) -> Result<Option<i64>, PageError> {
    match text.trim() {
        "" => Ok(None),
        text => text.parse::<i64>().map(Some).map_err(|_| PageError::Invalid(tr("areas.version_not_number").into())),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FlagForm {
    enabled: String,
    shadow_mode: String,
    percentage: String,
    enabled_areas: String,
    enabled_channels: String,
    version: String,
    reason: String,
}

fn parse_switch(text: &str) -> Result<bool, PageError> {
    text.parse().map_err(|_| {
        let text = tr("areas.switch_true_false");
        PageError::Invalid(text.into())
    })
}

/// Replaces the flag.
pub(crate) async fn set_flag(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<FlagForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let form = read_form(form)?;
    let reason = given_text(tr("common.reason"), &form.reason)?;
    let percentage = form
        .percentage
        .trim()
        .parse::<i32>()
        .map_err(|_| PageError::Invalid(tr("areas.percentage_number_from_0").into()))?;
    let flag = AdmissionFlag {
        enabled: parse_switch(&form.enabled)?,
        enabled_areas: split_names(&form.enabled_areas).map(AreaId::from).collect(),
        enabled_channels: split_names(&form.enabled_channels).map(str::to_owned).collect(),
        percentage,
        shadow_mode: parse_switch(&form.shadow_mode)?,
        // The service sets the next version.
        version: 0,
    };
    let author = ChangeAuthor { actor: &person.actor(), reason: Some(&reason) };
    flag::set_flag(&app.core.db, &flag, parse_version(&form.version)?, author).await.map_err(refuse_change)?;
    Ok(go_back(&app.config, "/areas", "flag").into_response())
}
