//! Choice of the partner for an attempt, if several serve a service type. Pure: the caller supplies which partners can
//! be called. Design: docs/design/partner.md.
//!
//! The ranking depends only on the order, the attempt, the list and earlier bookings, so a repeated job chooses the
//! same partner.

use std::time::Duration;

use chrono::TimeDelta;
use garde::Validate;
use jobs::OrderId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    bounds::number_within,
    ids::PartnerName,
    order::{BookingState, Snapshot},
};

/// A partner in the list of a service type.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ListedPartner {
    #[garde(skip)]
    pub name: PartnerName,
    /// Weight of the partner's share of the orders, relative to the other shares. If all are `None`, the list is in
    /// order of preference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(1.0..=10_000.0)))]
    pub share: Option<u32>,
}

impl From<PartnerName> for ListedPartner {
    fn from(name: PartnerName) -> Self {
        Self { name, share: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ChoiceReason {
    Only,
    /// The partner is first in the list.
    Preference,
    /// Chosen by its share of the orders.
    Share,
    /// The partner has the fewest bookings of this order.
    LeastTried,
    /// The partners that rank higher cannot be called.
    Failover,
}

impl ChoiceReason {
    pub const ALL: [Self; 5] = [Self::Only, Self::Preference, Self::Share, Self::LeastTried, Self::Failover];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartnerChoice {
    pub partner: PartnerName,
    pub reason: ChoiceReason,
    /// The partner ranked first. It differs from `partner` after a failover.
    pub first: PartnerName,
}

impl PartnerChoice {
    /// Creates the choice for a service type with one partner.
    pub fn only(partner: PartnerName) -> Self {
        Self { first: partner.clone(), partner, reason: ChoiceReason::Only }
    }

    /// Describes the choice and its reason for the history; `None` if there was only one partner.
    pub fn describe(&self) -> Option<String> {
        let why = match self.reason {
            ChoiceReason::Only => return None,
            ChoiceReason::Preference => "first in the list".to_owned(),
            ChoiceReason::Share => "by its share".to_owned(),
            ChoiceReason::LeastTried => "tried least for this order".to_owned(),
            ChoiceReason::Failover => format!("{} cannot be called", self.first),
        };
        Some(format!("{}: {why}", self.partner))
    }
}

/// Returns the partner for the next attempt of the order; `None` if `can_call` allows no listed partner.
///
/// Partners with fewer bookings of this order come first. Among equals, the shares or the order of the list decide.
pub fn choose_partner(
    listed: &[ListedPartner],
    s: &Snapshot,
    can_call: impl Fn(&PartnerName) -> bool,
) -> Option<PartnerChoice> {
    let tries = |partner: &ListedPartner| s.bookings.iter().filter(|b| b.partner == partner.name).count();
    let has_shares = !listed.is_empty() && listed.iter().all(|partner| partner.share.is_some());
    let mut ranked = if has_shares {
        draw_by_share(listed, &s.order.id, s.order.attempt_no.saturating_add(1))
    } else {
        listed.iter().collect()
    };
    ranked.sort_by_key(|partner| tries(partner));
    let first = *ranked.first()?;
    let chosen = *ranked.iter().find(|partner| can_call(&partner.name))?;
    let reason = if listed.len() == 1 {
        ChoiceReason::Only
    } else if chosen.name != first.name {
        ChoiceReason::Failover
    } else if ranked.last().is_some_and(|last| tries(last) > tries(chosen)) {
        ChoiceReason::LeastTried
    } else if has_shares {
        ChoiceReason::Share
    } else {
        ChoiceReason::Preference
    };
    Some(PartnerChoice { partner: chosen.name.clone(), reason, first: first.name.clone() })
}

/// Ranks partners by repeated draws weighted by their shares. A drawn partner leaves the draw. The orders of a partner
/// that cannot be called therefore go to the others by their shares, and no other order moves.
fn draw_by_share<'a>(listed: &'a [ListedPartner], order: &OrderId, attempt_no: i32) -> Vec<&'a ListedPartner> {
    let mut left: Vec<&ListedPartner> = listed.iter().collect();
    let mut drawn = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let total: u64 = left.iter().map(|partner| share_of(partner)).sum();
        let mut point = hash_draw(order, attempt_no, drawn.len()) % total;
        let hit = left.iter().position(|partner| match point.checked_sub(share_of(partner)) {
            Some(beyond) => {
                point = beyond;
                false
            }
            None => true,
        });
        drawn.push(left.remove(hit.unwrap_or(0)));
    }
    drawn
}

fn share_of(partner: &ListedPartner) -> u64 {
    u64::from(partner.share.unwrap_or(1).max(1))
}

fn hash_draw(order: &OrderId, attempt_no: i32, draw: usize) -> u64 {
    let hash = Sha256::digest(format!("{order}:{attempt_no}:{draw}"));
    u64::from_be_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
}

/// Returns whether the next attempt waits for the cancel of an earlier booking.
///
/// With one partner it waits for at most `patience`, because the order must not end just because its partner does not
/// confirm a cancel. With several partners it waits until the cancel is confirmed, so that two partners never both send
/// a driver.
pub fn awaits_cancel(s: &Snapshot, has_choice: bool, patience: Duration) -> bool {
    let wanted = s.order.next_attempt_at.unwrap_or(s.now);
    let is_patient = has_choice || s.now < wanted + TimeDelta::from_std(patience).unwrap_or_default();
    is_patient && s.bookings.iter().any(|b| b.state == BookingState::CancelWanted)
}
