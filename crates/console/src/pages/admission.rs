//! The flag of admission: the areas, channels and users whose orders thresholds may refuse; and errors of refused
//! changes.

use axum::{
    extract::{Form, State, rejection::FormRejection},
    response::{IntoResponse, Response},
};
use model::admission::limits::AdmissionFlag;
use serde::Deserialize;

use super::{area::NO_AREA, roles::OPERATORS};
use crate::{
    form::{REASON, given_text, read_form, split_names},
    language::{Words, both, say},
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
        return both("Thresholds are off: they refuse nothing.", "Ambang batas mati: tidak ada yang ditolak.").into();
    }
    let listed = |names: Vec<&str>, all: Words| if names.is_empty() { String::from(all) } else { names.join(", ") };
    let areas = listed(flag.enabled_areas.iter().map(AreaId::as_str).collect(), both("all areas", "semua wilayah"));
    let channels =
        listed(flag.enabled_channels.iter().map(String::as_str).collect(), both("all channels", "semua kanal"));
    let percentage = flag.percentage;
    let mut text = say!(
        "Thresholds hold for {percentage} % of users, in {areas}, on {channels}.",
        "Ambang batas berlaku untuk {percentage} % pengguna, di {areas}, lewat {channels}."
    );
    if flag.shadow_mode {
        text.push(' ');
        text.push_str(
            both(
                "Shadow mode: they refuse nothing, and what they would have refused is kept.",
                "Mode bayangan: tidak ada yang ditolak, dan yang semestinya ditolak dicatat.",
            )
            .get(),
        );
    }
    text
}

/// Returns the form that replaces the flag.
pub(super) fn change_of_flag(flag: &AdmissionFlag) -> Action {
    let word = |is: bool| if is { "true" } else { "false" };
    let on_off = [("true", both("on", "hidup").get()), ("false", both("off", "mati").get())];
    let areas: Vec<&str> = flag.enabled_areas.iter().map(AreaId::as_str).collect();
    let fields = vec![
        Field::hidden("version", &flag.version.to_string()),
        Field::choice("enabled", both("Thresholds are", "Ambang batas"), word(flag.enabled), &on_off),
        Field::choice(
            "shadow_mode",
            both(
                "Shadow mode (refuses nothing, and keeps what it would have) is",
                "Mode bayangan (tidak menolak, hanya mencatat)",
            ),
            word(flag.shadow_mode),
            &on_off,
        ),
        Field::text(
            "percentage",
            both("For so many percent of users", "Untuk sekian persen pengguna"),
            &flag.percentage.to_string(),
        ),
        Field::text(
            "enabled_areas",
            both("In these areas, with commas; empty: all", "Di wilayah ini, dengan koma; kosong: semua"),
            &areas.join(", "),
        ),
        Field::text(
            "enabled_channels",
            both("On these channels, with commas; empty: all", "Lewat kanal ini, dengan koma; kosong: semua"),
            &flag.enabled_channels.join(", "),
        ),
        Field::reason(),
    ];
    Action::new(
        both("For whom thresholds hold", "Untuk siapa ambang batas berlaku"),
        "/admission/flag".to_owned(),
        fields,
    )
}

pub(super) fn refuse_change(error: TableError) -> PageError {
    match error {
        TableError::NoSuchArea => PageError::NotFound(NO_AREA),
        TableError::Changed(_) => {
            let text = both(
                "Another person changed it meanwhile. Look again, then decide.",
                "Sementara itu orang lain mengubahnya. Lihat lagi, lalu putuskan.",
            );
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
        text => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| PageError::Invalid(both("The version is no number.", "Versi bukan angka.").into())),
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
        let text = both("A switch is on or off: true or false.", "Sakelar hidup atau mati: true atau false.");
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
    let reason = given_text(REASON, &form.reason)?;
    let percentage = form.percentage.trim().parse::<i32>().map_err(|_| {
        PageError::Invalid(
            both("The percentage is a number from 0 to 100.", "Persentase adalah angka 0 sampai 100.").into(),
        )
    })?;
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
