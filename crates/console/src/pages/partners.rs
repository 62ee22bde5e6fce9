//! Page of partners: state of their calls, their open work, and settings of operators.

use std::collections::HashMap;

use ::settings::Config;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    roles::{OPERATORS, STAFF},
    rows::Deed,
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, read_form, read_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, describe_ms, escape},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::reports::{
    page_changes::ChangeTopic,
    partner_glance::{self, PartnerLoad},
};
use foundation::{config::address::without_password, db, staff_actions::ActionAuthor};
use model::ids::PartnerName;
use partner::client::{
    ConfiguredPartner,
    settings::{self, RunTimeShare},
};
use queue::store::BreakerState;

const REFRESH_S: u32 = 5;

const HEADINGS: [Words; 7] = [
    tr("common.partner"),
    tr("partners.calls"),
    tr("partners.searching_driver"),
    tr("partners.on_trip"),
    tr("partners.unanswered_bookings"),
    tr("partners.unconfirmed_cancellations"),
    tr("partners.polling_share"),
];

/// Returns whether the partner is called.
fn calls_chip(breaker: Option<&BreakerState>) -> Chip {
    match breaker {
        None => Chip::new("plain", tr("partners.unknown_redis_not_respond")),
        Some(state) if state.is_open() => {
            let span = describe_ms(u64::try_from(state.open_for.as_millis()).unwrap_or(u64::MAX));
            Chip::new("bad", fill!("partners.paused_another", span))
        }
        Some(state) if state.is_half_open() => Chip::new("wait", tr("partners.tested_one_call_per")),
        Some(_) => Chip::new("good", tr("partners.called_normally")),
    }
}

/// Returns the last failure with the number of consecutive failures; empty if the partner answers.
fn failure_text(breaker: Option<&BreakerState>) -> String {
    match breaker {
        Some(BreakerState { failures, why, .. }) if *failures > 0 => {
            fill!("partners.row", why, failures)
        }
        Some(state) => state.why.clone(),
        None => String::new(),
    }
}

/// Returns the percentage of orders whose job id is polled, and who set it.
fn share_cell(partner: &ConfiguredPartner, set: Option<&RunTimeShare>) -> Cell {
    match set {
        None => {
            let percent = partner.config.poll.percent;
            Cell::text(fill!("partners.from_configuration", percent))
        }
        Some(RunTimeShare { polling_percent, changed_by, changed_at, .. }) => {
            let (by, at) = (escape(changed_by), Moment(*changed_at));
            Cell::html(fill!("partners.set", polling_percent, by, at))
        }
    }
}

/// Returns the form that sets the percentage. An empty value restores the configured one.
fn change_of_share(partner: &PartnerName, set: Option<&RunTimeShare>) -> Action {
    let percent = set.map(|share| share.polling_percent.to_string()).unwrap_or_default();
    let fields = vec![Field::text("percent", tr("partners.percentage_orders_whose_job"), &percent), Field::reason()];
    let path = format!("/partners/{}/share", encode_component(partner.as_str()));
    Action::new(tr("partners.set_polling_share"), path, fields)
}

/// Returns the service types whose orders can be booked with the partner.
fn served_types(config: &Config, partner: &PartnerName) -> String {
    let types = config.service_types.iter();
    let served = types.filter(|(_, own)| own.listed_partners().iter().any(|listed| listed.name == *partner));
    served.map(|(service_type, _)| service_type.as_str()).collect::<Vec<_>>().join(", ")
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let now = db::database_now(&app.core.db).await?;
    let loads = partner_glance::count_loads(&app.core.db).await?;
    let shares = settings::list_shares(&app.core.db).await?;
    let shares: HashMap<&PartnerName, &RunTimeShare> = shares.iter().map(|share| (&share.partner, share)).collect();
    let mut rows = Vec::new();
    // Without Redis the other data is still shown. Waiting for Redis once is enough.
    let mut redis_answers = true;
    for partner in app.partners.registry.iter() {
        let breaker = if redis_answers { partner.breaker_state(&app.core.store).await.ok() } else { None };
        redis_answers = breaker.is_some();
        let PartnerLoad { searching, riding, asked, cancels } =
            loads.by_partner.get(&partner.name).copied().unwrap_or_default();
        let address = without_password(&partner.config.url);
        let name = format!(
            "<span class=\"id\">{}</span> <span class=\"quiet small\">{} <span class=\"id\">{}</span></span>",
            escape(&partner.name),
            escape(&served_types(&app.config, &partner.name)),
            escape(&address)
        );
        let calls = calls_chip(breaker.as_ref());
        let failure = escape(&failure_text(breaker.as_ref()));
        let set = shares.get(&partner.name).copied();
        let actions = if person.may(&OPERATORS) { vec![change_of_share(&partner.name, set)] } else { Vec::new() };
        let row = TableRow::plain(vec![
            Cell::html(name),
            Cell::html(format!("{calls} <span class=\"quiet small\">{failure}</span>")),
            Cell::number(searching),
            Cell::number(riding),
            Cell::number(asked),
            Cell::number(cancels),
            share_cell(partner, set),
        ]);
        rows.push(row.with_actions(actions));
    }
    let note =
        if loads.is_cut { tr("partners.only_10_000_oldest") } else { tr("partners.these_fleets_other_companies") };
    let shell = Shell::for_person(&app.config, &person, "/partners", tr("common.partners"), did.as_deref());
    let page = TablePage {
        note: note.into(),
        if_empty: (tr("partners.no_partner_configured"), tr("partners.add_partner_config_toml")),
        ..TablePage::new(shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(now), "/partners", &HEADINGS, rows)
    };
    render(&page)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ShareForm {
    percent: String,
    reason: String,
}

/// Sets the percentage of a partner's orders whose job id is polled, in the same way as `dispatchq partner set`.
pub(crate) async fn set_share(
    State(app): State<App>,
    person: SignedIn,
    Path(name): Path<String>,
    form: Result<Form<ShareForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let ShareForm { percent, reason } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let unknown = tr("partners.partner_not_exist");
    let partner = PartnerName::from(name);
    app.partners.registry.get(&partner).ok_or(PageError::NotFound(unknown))?;
    let percent = match percent.trim() {
        "" => None,
        text => match text.parse::<u8>() {
            Ok(percent) if percent <= 100 => Some(percent),
            _ => {
                let text = tr("partners.polling_share_from_0");
                return Err(PageError::Invalid(text.into()));
            }
        },
    };
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    settings::set_percent(&app.core.db, &partner, percent, by).await?;
    Ok(go_back(&app.config, "/partners", "share").into_response())
}
