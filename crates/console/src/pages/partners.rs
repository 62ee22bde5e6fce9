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
    form::{REASON, encode_component, given_text, read_form, read_query},
    language::{Words, both, say},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, escape},
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
    both("Partner", "Mitra"),
    both("Calls", "Panggilan"),
    both("Search", "Mencari"),
    both("On the way", "Dalam perjalanan"),
    both("Bookings to answer", "Pemesanan belum dijawab"),
    both("Cancels to confirm", "Pembatalan belum dikonfirmasi"),
    both("Job ids asked for", "Id pekerjaan ditanyakan"),
];

/// Returns whether the partner is called.
fn calls_chip(breaker: Option<&BreakerState>) -> Chip {
    match breaker {
        None => Chip::new("plain", both("unknown: Redis does not answer", "tidak diketahui: Redis tidak menjawab")),
        Some(state) if state.is_open() => {
            let s = state.open_for.as_secs().max(1);
            Chip::new("bad", say!("left alone for {s} s more", "tidak dihubungi {s} s lagi"))
        }
        Some(state) if state.is_half_open() => {
            Chip::new("wait", both("is tried, one call a second", "dicoba, satu panggilan per detik"))
        }
        Some(_) => Chip::new("good", both("called", "dihubungi")),
    }
}

/// Returns the last failure with the number of consecutive failures; empty if the partner answers.
fn failure_text(breaker: Option<&BreakerState>) -> String {
    match breaker {
        Some(BreakerState { failures, why, .. }) if *failures > 0 => {
            say!("{why} ({failures} in a row)", "{why} ({failures} berturut-turut)")
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
            Cell::text(say!("{percent} %, as configured", "{percent} %, menurut konfigurasi"))
        }
        Some(RunTimeShare { polling_percent, changed_by, changed_at, .. }) => {
            let (by, at) = (escape(changed_by), Moment(*changed_at));
            Cell::html(say!("{polling_percent} %, set by {by} {at}", "{polling_percent} %, ditetapkan {by} {at}"))
        }
    }
}

/// Returns the form that sets the percentage. An empty value restores the configured one.
fn change_of_share(partner: &PartnerName, set: Option<&RunTimeShare>) -> Action {
    let percent = set.map(|share| share.polling_percent.to_string()).unwrap_or_default();
    let fields = vec![
        Field::text(
            "percent",
            both(
                "For so many percent of orders the job id is asked for; empty: as configured",
                "Untuk sekian persen pesanan, id pekerjaan ditanyakan; kosong: menurut konfigurasi",
            ),
            &percent,
        ),
        Field::reason(),
    ];
    let path = format!("/partners/{}/share", encode_component(partner.as_str()));
    Action::new(both("Set the share", "Tetapkan bagian"), path, fields)
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
    let note = if loads.is_cut {
        both(
            "Counted among the 10,000 oldest open orders and bookings.",
            "Dihitung di antara 10.000 pesanan dan pemesanan terbuka yang tertua.",
        )
    } else {
        both(
            "Fleets of other companies, and what waits for them now. A share of job ids holds for every booking made after it was set.",
            "Armada perusahaan lain, dan yang kini menunggu mereka. Bagian id pekerjaan berlaku untuk setiap pemesanan setelah ditetapkan.",
        )
    };
    let shell = Shell::for_person(&app.config, &person, "/partners", both("Partners", "Mitra"), did.as_deref());
    let page = TablePage {
        note: note.into(),
        if_empty: (
            both("No partner is configured", "Tidak ada mitra yang dikonfigurasi"),
            both("Add one to config.toml: [partners.NAME]", "Tambahkan di config.toml: [partners.NAMA]"),
        ),
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
    let reason = given_text(REASON, &reason)?;
    let unknown = both("There is no such partner.", "Tidak ada mitra seperti itu.");
    let partner = PartnerName::from(name);
    app.partners.registry.get(&partner).ok_or(PageError::NotFound(unknown))?;
    let percent = match percent.trim() {
        "" => None,
        text => match text.parse::<u8>() {
            Ok(percent) if percent <= 100 => Some(percent),
            _ => {
                let text = both("A share is 0 to 100 percent.", "Bagian bernilai 0 sampai 100 persen.");
                return Err(PageError::Invalid(text.into()));
            }
        },
    };
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    settings::set_percent(&app.core.db, &partner, percent, by).await?;
    Ok(go_back(&app.config, "/partners", "share").into_response())
}
