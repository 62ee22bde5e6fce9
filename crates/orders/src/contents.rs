//! Changes the contents of orders. Design: docs/design/contents-and-privacy.md.

use std::time::Duration;

use foundation::db::is_rolled_back_for_another;
use jobs::OrderId;
use model::{
    actor::Actor,
    admission::answer::{AdmissionAnswer, ReplyLanguage},
    decide::{Change, OrderRefusal, contents},
    field_error::FieldError,
    ids::PartnerName,
    order::{Order, Snapshot},
    order_patch::{Member, OrderPatch},
    schedule::as_stored,
};
use queue::retry::add_jitter;
use tokio::time::sleep;

use crate::{
    capability::Orders,
    change::{ChangeError, decided},
    changed::Changed,
    details::{StoredContents, load_contents},
    reschedule::{MoveError, PickupMove},
    seen::{Basis, SeenOrder},
};

/// Tries to change an order that other changes win.
const MOST_TRIES: u32 = 16;
/// Pause after the first lost try, on average. It grows with each try, so that many changes of one order succeed.
const PAUSE: Duration = Duration::from_millis(5);

/// A change that a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct ContentsEdit<'a> {
    pub patch: &'a OrderPatch,
    /// Version of the contents that the caller has read. `None`: any version.
    pub expected: Option<i64>,
    pub actor: &'a Actor,
}

#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error(transparent)]
    Invalid(#[from] FieldError),
    /// The contents have this version, which is not the expected one.
    #[error("the contents of the order have version {0} by now; read the order again before you change it")]
    VersionChanged(i64),
    /// The hour of the new pickup is full.
    #[error("{}", .0.message_in(ReplyLanguage::English))]
    NoRoom(Box<AdmissionAnswer>),
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl From<MoveError> for EditError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Invalid(problem) => Self::Invalid(problem),
            MoveError::Full(answer) => Self::NoRoom(answer),
        }
    }
}

impl From<sqlx::Error> for EditError {
    fn from(error: sqlx::Error) -> Self {
        Self::Change(error.into())
    }
}

/// Order and its contents after a change.
#[derive(Debug)]
pub struct EditedOrder {
    pub snapshot: Snapshot,
    pub stored: StoredContents,
}

/// Changes the contents of an order that the caller may see. Tries again if another change is written first.
pub async fn edit_contents(
    orders: &Orders,
    id: &OrderId,
    edit: ContentsEdit<'_>,
    may_see: impl Fn(&Order) -> bool,
) -> Result<EditedOrder, EditError> {
    for tries in 1..=MOST_TRIES {
        let before = orders.rows.load_order(id).await?.ok_or(ChangeError::NotFound)?;
        if !may_see(&before.order) {
            return Err(ChangeError::Refused(OrderRefusal::NoSuchOrder).into());
        }
        if let Some(edited) = try_edit(orders, before, edit).await? {
            return Ok(edited);
        }
        sleep(add_jitter(PAUSE * tries, 0.9, orders.core.rng.next_unit())).await;
    }
    Err(ChangeError::Busy.into())
}

/// Changes the contents once. Returns `None` if another change was written first.
///
/// The contents are read after the order. If the order still has its version when the change is written, they are
/// current, because each change of the contents is a change of the order.
async fn try_edit(orders: &Orders, before: Snapshot, edit: ContentsEdit<'_>) -> Result<Option<EditedOrder>, EditError> {
    contents::check_changeable(&before.order).map_err(ChangeError::Refused)?;
    let stored = load_contents(&orders.core.db, &before.order).await?;
    if edit.expected.is_some_and(|expected| expected != stored.version) {
        return Err(EditError::VersionChanged(stored.version));
    }
    let wanted = edit.patch.apply_to(&stored.contents)?;
    let takes_details = |partner: &PartnerName| orders.config.partners.get(partner).is_some_and(|p| p.details);
    let mut change = contents::change_contents(&before, edit.actor, &stored.contents, wanted.clone(), takes_details);
    // A client may send the pickup time that it has read together with other changes.
    if let Member::Set(pickup_at) = edit.patch.pickup_at
        && before.order.pickup_at != Some(as_stored(pickup_at.time()))
    {
        let wanted_move = PickupMove::new(orders, &before.order, pickup_at).await?;
        let mut moved = change.clone().unwrap_or_else(|| Change::new(&before, edit.actor));
        if wanted_move.add_to(&mut moved, &before).map_err(ChangeError::Refused)? {
            contents::add_pickup_time(&mut moved, wanted.details.clone());
            change = Some(moved);
        }
    }
    let Some(change) = change else { return Ok(Some(EditedOrder { snapshot: before, stored })) };
    let (id, basis) = (before.order.id.clone(), Basis::Seen(Box::new(SeenOrder::new(before))));
    let Changed { after, effects, .. } = match orders.change(&id, basis, decided(change)).await {
        Ok(changed) if changed.is_written() => changed,
        Ok(_) => return Ok(None),
        // Nothing was written.
        Err(ChangeError::Database(error)) if is_rolled_back_for_another(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    effects.run(orders).await;
    let stored = StoredContents { contents: wanted, version: stored.version + 1 };
    Ok(Some(EditedOrder { snapshot: *after, stored }))
}
