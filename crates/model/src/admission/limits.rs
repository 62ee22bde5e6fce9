//! Configuration of admission, as decisions use it.

use std::{collections::HashMap, str::FromStr, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{AreaId, AreaKey};

/// Loyalty level of a customer, from lowest to highest. Source: the requirement on server busy, 4.5.1.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LoyaltyLevel {
    Explorer,
    Traveler,
    Voyager,
    Elite,
}

impl LoyaltyLevel {
    pub const ALL: [Self; 4] = [Self::Explorer, Self::Traveler, Self::Voyager, Self::Elite];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the level as members see it.
    pub fn display_title(self) -> &'static str {
        match self {
            Self::Explorer => "Explorer",
            Self::Traveler => "Traveler",
            Self::Voyager => "Voyager",
            Self::Elite => "Elite",
        }
    }
}

impl FromStr for LoyaltyLevel {
    type Err = UnknownLoyalty;

    fn from_str(text: &str) -> Result<Self, UnknownLoyalty> {
        Self::ALL.into_iter().find(|level| level.as_str() == text).ok_or(UnknownLoyalty)
    }
}

/// Error for an unknown level. An unknown level does not bypass a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("levels are EXPLORER, TRAVELER, VOYAGER, ELITE")]
pub struct UnknownLoyalty;

/// Limits on waiting orders of one service type in one area.
#[derive(Debug, Clone, PartialEq)]
pub struct AreaLimits {
    pub max_waiting: i64,
    /// Time after its creation during which an order counts as waiting; `None` for its whole lifetime.
    pub waiting_window: Option<Duration>,
    /// Minimum time that an area stays busy after it was full.
    pub cooldown: Duration,
    /// A busy area becomes free when fewer than this percentage of `max_waiting` orders wait.
    pub low_water_percentage: i64,
    /// Retry time in the answer to refused requests.
    pub busy_retry: Duration,
    pub bypass_enabled: bool,
    pub bypass_levels: Vec<LoyaltyLevel>,
    /// Additional room for loyal customers, as a percentage of `max_waiting`.
    pub max_bypass_percentage: i64,
    /// Maximum number of scheduled orders with a pickup in the same hour; `None`: no limit.
    pub max_scheduled_per_hour: Option<i64>,
    /// If `false`, the area accepts no orders of this service type.
    pub enabled: bool,
    /// Priority where areas overlap. For this service type it takes precedence over the priority of the areas.
    pub priority: i32,
}

impl AreaLimits {
    /// Returns the limit for loyal customers. They are accepted while fewer orders wait.
    pub fn max_with_bypass(&self) -> i64 {
        self.max_waiting + self.max_waiting * self.max_bypass_percentage / 100
    }

    /// Returns the low water mark. An area that was full becomes free when fewer orders wait.
    pub fn low_water(&self) -> i64 {
        (self.max_waiting * self.low_water_percentage).div_euclid(100).clamp(1, self.max_waiting.max(1))
    }

    /// Returns until when an order that waits since `since` counts as waiting: the end of its lifetime or of its window,
    /// whichever is first.
    pub fn counted_until(&self, since: DateTime<Utc>, lifetime_deadline: DateTime<Utc>) -> DateTime<Utc> {
        let window = self.waiting_window.and_then(|window| TimeDelta::from_std(window).ok());
        let end = window.and_then(|window| since.checked_add_signed(window));
        end.map_or(lifetime_deadline, |end| end.min(lifetime_deadline))
    }

    /// Returns the time during which an order with this lifetime counts as waiting.
    pub fn counted_for(&self, lifetime: Duration) -> Duration {
        self.waiting_window.map_or(lifetime, |window| window.min(lifetime))
    }

    /// Returns whether this level may exceed the threshold.
    pub fn may_bypass(&self, loyalty: Option<LoyaltyLevel>) -> bool {
        self.bypass_enabled && loyalty.is_some_and(|level| self.bypass_levels.contains(&level))
    }
}

/// Dispatch durations of an area's limits; `None` uses the service type's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AreaDurations {
    pub attempt: Option<Duration>,
    pub lifetime: Option<Duration>,
    pub retry: Option<Duration>,
    /// Replaces `retry` while the area is full.
    pub busy_retry: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ForcedStatus {
    ForceBusy,
    ForceAvailable,
}

impl ForcedStatus {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A person's decision on the status of an area, whatever its load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AreaOverride {
    pub area_id: AreaId,
    pub status: ForcedStatus,
    pub reason: String,
    /// End of the override; `None` until a person ends it.
    pub expires_at: Option<DateTime<Utc>>,
    pub actor: String,
}

impl AreaOverride {
    pub fn is_in_force(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

/// Whether thresholds are enforced, and for whom. Disabled areas and overrides apply whatever the flag is. Source: the
/// requirement on server busy, 6.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, sqlx::FromRow)]
pub struct AdmissionFlag {
    pub enabled: bool,
    /// Areas that the flag applies to; empty for all.
    #[schema(value_type = Vec<String>)]
    pub enabled_areas: Vec<AreaId>,
    /// Channels that the flag applies to; empty for all.
    pub enabled_channels: Vec<String>,
    /// Percentage of users that the flag applies to. The choice is stable by user id.
    pub percentage: i32,
    /// Whether thresholds only log and record the requests that they would refuse.
    pub shadow_mode: bool,
    pub version: i64,
}

impl Default for AdmissionFlag {
    fn default() -> Self {
        Self {
            enabled: false,
            enabled_areas: Vec::new(),
            enabled_channels: Vec::new(),
            percentage: 100,
            shadow_mode: false,
            version: 1,
        }
    }
}

impl AdmissionFlag {
    /// Returns whether the flag applies to this request. All requests without a user id count as one user. `area` is
    /// `None` outside all areas.
    pub fn applies_to(&self, area: Option<&AreaId>, channel: Option<&str>, user: Option<&str>) -> bool {
        let names_channel =
            |list: &[String]| list.is_empty() || channel.is_some_and(|name| list.iter().any(|known| known == name));
        self.enabled
            && self.names_area(area)
            && names_channel(&self.enabled_channels)
            && i64::from(self.percentage) > i64::from(user_percentile(user.unwrap_or_default()))
    }

    pub fn enforcement_in(&self, area: &AreaId) -> ThresholdEnforcement {
        if !self.enabled || !self.names_area(Some(area)) || self.percentage == 0 {
            ThresholdEnforcement::Off
        } else if self.shadow_mode {
            ThresholdEnforcement::Shadow
        } else if self.percentage < 100 || !self.enabled_channels.is_empty() {
            ThresholdEnforcement::Partly
        } else {
            ThresholdEnforcement::On
        }
    }

    fn names_area(&self, area: Option<&AreaId>) -> bool {
        self.enabled_areas.is_empty() || area.is_some_and(|area| self.enabled_areas.contains(area))
    }
}

/// Enforcement of an area's threshold under the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ThresholdEnforcement {
    /// No request is refused.
    Off,
    /// No request is refused. Requests that would be refused are recorded.
    Shadow,
    /// Enforced for some users or channels.
    Partly,
    On,
}

impl ThresholdEnforcement {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns a number from 0 to 99 that never changes for a user. Uses FNV-1a, because no hash of the standard library is
/// guaranteed to be stable.
fn user_percentile(user: &str) -> u8 {
    let hash = user.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    // The low bits of FNV-1a are less random.
    u8::try_from((hash >> 32) % 100).unwrap_or_default()
}

pub type LimitsTable = HashMap<AreaKey, (AreaLimits, AreaDurations)>;

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture {
    use super::*;

    /// Returns the requirement's example: 100, and 20 % more for VOYAGER and ELITE.
    pub fn example_limits() -> AreaLimits {
        AreaLimits {
            max_waiting: 100,
            waiting_window: None,
            cooldown: Duration::from_secs(60),
            low_water_percentage: 90,
            busy_retry: Duration::from_secs(60),
            bypass_enabled: true,
            bypass_levels: vec![LoyaltyLevel::Elite, LoyaltyLevel::Voyager],
            max_bypass_percentage: 20,
            max_scheduled_per_hour: None,
            enabled: true,
            priority: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jakarta() -> AreaId {
        "JKT".into()
    }

    #[test]
    fn unknown_loyalty_level_bypasses_nothing() {
        assert!(LoyaltyLevel::Explorer < LoyaltyLevel::Traveler && LoyaltyLevel::Traveler < LoyaltyLevel::Voyager);
        assert!(LoyaltyLevel::Voyager < LoyaltyLevel::Elite);
        let limits = fixture::example_limits();
        let may = |text: &str| limits.may_bypass(text.parse().ok());
        assert_eq!(
            ["ELITE", "VOYAGER", "TRAVELER", "EXPLORER", "GOLD", "elite"].map(may),
            [true, true, false, false, false, false]
        );
        assert!(!limits.may_bypass(None));
    }

    #[test]
    fn limits_match_the_requirement_example() {
        let limits = fixture::example_limits();
        assert_eq!((limits.max_with_bypass(), limits.low_water()), (120, 90));
        let few = AreaLimits { max_waiting: 1, ..limits.clone() };
        assert_eq!((few.max_with_bypass(), few.low_water()), (1, 1));
        assert_eq!(AreaLimits { max_waiting: 0, ..limits }.low_water(), 1);
    }

    // Rule L4: An order counts as waiting until its window or its lifetime ends, whichever comes first.
    #[test]
    fn window_ends_the_waiting_of_an_order() {
        let created = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let deadline = created + TimeDelta::seconds(1_800);
        let counted = |window: Option<u64>| {
            let waiting_window = window.map(Duration::from_secs);
            let limits = AreaLimits { waiting_window, ..fixture::example_limits() };
            let until = limits.counted_until(created, deadline);
            assert_eq!((until - created).to_std().unwrap(), limits.counted_for(Duration::from_secs(1_800)));
            (until - created).num_seconds()
        };
        assert_eq!([None, Some(300), Some(1_800), Some(7_200)].map(counted), [1_800, 300, 1_800, 1_800]);
    }

    #[test]
    fn flag_applies_to_its_areas_channels_users() {
        let flag = AdmissionFlag { enabled: true, ..AdmissionFlag::default() };
        assert!(flag.applies_to(Some(&jakarta()), None, None));
        let pilot = AdmissionFlag {
            enabled_areas: vec!["JKT".into()],
            enabled_channels: vec!["MYBB".to_owned()],
            ..flag.clone()
        };
        assert!(pilot.applies_to(Some(&jakarta()), Some("MYBB"), None));
        assert!(
            !pilot.applies_to(Some(&"BDG".into()), Some("MYBB"), None)
                && !pilot.applies_to(Some(&jakarta()), Some("WEB"), None)
        );
        assert!(!pilot.applies_to(Some(&jakarta()), None, None));
        assert!(!AdmissionFlag::default().applies_to(Some(&jakarta()), None, None));
    }

    #[test]
    fn reported_enforcement_matches_the_flag() {
        let on = AdmissionFlag { enabled: true, ..AdmissionFlag::default() };
        for (flag, expected) in [
            (AdmissionFlag::default(), "OFF"),
            (AdmissionFlag { enabled_areas: vec!["BDG".into()], ..on.clone() }, "OFF"),
            (AdmissionFlag { percentage: 0, ..on.clone() }, "OFF"),
            (AdmissionFlag { shadow_mode: true, percentage: 10, ..on.clone() }, "SHADOW"),
            (AdmissionFlag { percentage: 10, ..on.clone() }, "PARTLY"),
            (AdmissionFlag { enabled_channels: vec!["MYBB".to_owned()], ..on.clone() }, "PARTLY"),
            (AdmissionFlag { enabled_areas: vec![jakarta()], ..on }, "ON"),
        ] {
            assert_eq!(flag.enforcement_in(&jakarta()).as_str(), expected, "{flag:?}");
        }
    }

    #[test]
    fn user_share_is_stable_and_grows() {
        let users: Vec<String> = (0..2_000).map(|n| format!("USR-{n}")).collect();
        let held = |percentage: i32| -> Vec<&String> {
            let flag = AdmissionFlag { enabled: true, percentage, ..AdmissionFlag::default() };
            users.iter().filter(|user| flag.applies_to(Some(&jakarta()), None, Some(user))).collect()
        };
        let (tenth, half) = (held(10), held(50));
        assert!((150..250).contains(&tenth.len()), "{}", tenth.len());
        assert!((900..1_100).contains(&half.len()), "{}", half.len());
        assert!(tenth.iter().all(|user| half.contains(user)), "a higher percentage keeps all users");
        assert_eq!((held(0).len(), held(100).len()), (0, 2_000));
    }
}
