//! Areas that refuse orders while they are full.

use std::{path::Path, time::Duration};

use anyhow::Context;
use dispatch::{
    actor::{Actor, ActorRole},
    admission::limits::AdmissionFlag,
    app::App,
    areas::{
        import::{self, ImportedArea},
        table::{
            ChangeAuthor, flag, geofences,
            limits::{self, LimitsChange},
        },
    },
};

const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "replay"), reason: Some("replay") };
/// Within this time every process has read what was changed.
const RULES_READ: Duration = Duration::from_secs(1);

pub(super) fn read_file(path: &Path) -> anyhow::Result<Vec<ImportedArea>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    import::parse(&text).with_context(|| format!("{} cannot be imported", path.display()))
}

/// Imports the areas, and has their thresholds refuse orders of this service type.
pub(super) async fn open_areas(
    app: &App,
    areas: &[ImportedArea],
    max_waiting_orders: Option<u32>,
    service_type: &str,
) -> anyhow::Result<()> {
    geofences::import_areas(&app.db, areas, false, None, AUTHOR).await?;
    if let Some(most) = max_waiting_orders {
        let change = LimitsChange {
            service_type: service_type.into(),
            max_waiting_orders: Some(most.into()),
            ..LimitsChange::default()
        };
        for area in areas {
            limits::set_limits(&app.db, &area.area.id, &change, None, AUTHOR).await?;
        }
    }
    let flag = flag::load_flag(&app.db).await?;
    flag::set_flag(&app.db, &AdmissionFlag { enabled: true, ..flag }, None, AUTHOR).await?;
    tokio::time::sleep(RULES_READ).await;
    Ok(())
}
