//! Typed ids, so that the compiler rejects a driver id where an area id is expected.
//!
//! These types accept any text. The code that receives an external id checks its form. JSON, columns and metrics show
//! the bare text.

use std::{borrow::Borrow, fmt, ops::Deref};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! define_text_ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, sqlx::Type)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            pub fn into_string(self) -> String {
                self.0
            }
        }

        /// Shows only the quoted text, because the field name identifies the type.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        /// Shown as a map key in the paths of validation errors.
        impl garde::error::PathComponentKind for $name {
            fn component_kind() -> garde::error::Kind {
                garde::error::Kind::Key
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                self.0 == text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                self.0 == *text
            }
        }
    )*};
}

define_text_ids! {
    AreaId
    /// Id of a driver. A partner's driver is `{partner}:{its id}`.
    DriverId
    ServiceType
    /// Name of a partner in the configuration.
    PartnerName
    /// Name of a provider in the configuration.
    ProviderName
    /// Id of a ticket in the ticket system.
    TicketId
}

impl DriverId {
    /// Returns the id of a partner's driver, built from the id that the partner uses.
    pub fn of_partner(partner: &PartnerName, id: &str) -> Self {
        Self(format!("{partner}:{id}"))
    }
}

macro_rules! define_uuid_ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, sqlx::Type)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    )*};
}

define_uuid_ids! {
    OfferId
    /// Id of a plan. Later plans have greater ids.
    PlanId
}

/// Returns whether the text is a phone number as in E.164, such as +628123456789.
pub fn is_phone(text: &str) -> bool {
    text.strip_prefix('+').is_some_and(|digits| {
        (7..=15).contains(&digits.len()) && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Key of limits and counts: an area and a service type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AreaKey {
    pub area: AreaId,
    pub service_type: ServiceType,
}

impl AreaKey {
    pub fn new(area: &AreaId, service_type: &ServiceType) -> Self {
        Self { area: area.clone(), service_type: service_type.clone() }
    }
}

/// Coordinates in degrees.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct LatLng {
    pub lat: f64,
    pub lng: f64,
}

impl LatLng {
    pub const fn new(lat: f64, lng: f64) -> Self {
        Self { lat, lng }
    }

    /// Returns whether latitude and longitude are within their ranges.
    pub fn is_on_earth(self) -> bool {
        (-90.0..=90.0).contains(&self.lat) && (-180.0..=180.0).contains(&self.lng)
    }

    /// Returns the location as a point with the longitude as x.
    pub fn as_point(self) -> geo::Point {
        geo::Point::new(self.lng, self.lat)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_contains_bare_ids() {
        let id: OfferId = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let shown = json!({ "area": AreaId::from("JKT"), "offer": id });
        assert_eq!(shown, json!({ "area": "JKT", "offer": "00000000-0000-0000-0000-000000000001" }));
        assert_eq!(serde_json::from_value::<AreaId>(shown["area"].clone()).unwrap(), "JKT");
        assert_eq!(serde_json::from_value::<OfferId>(shown["offer"].clone()).unwrap(), id);
    }

    #[test]
    fn id_columns_have_the_bare_types() {
        use sqlx::{TypeInfo, postgres::PgHasArrayType};
        let array_name = |info: sqlx::postgres::PgTypeInfo| info.name().to_owned();
        assert_eq!(array_name(AreaId::array_type_info()), array_name(String::array_type_info()));
        assert_eq!(array_name(OfferId::array_type_info()), array_name(Uuid::array_type_info()));
    }

    #[test]
    fn coordinates_out_of_range_are_invalid() {
        for (lat, lng, expected) in
            [(90.0, -180.0, true), (-6.2, 106.8, true), (90.1, 0.0, false), (0.0, 180.1, false), (f64::NAN, 0.0, false)]
        {
            assert_eq!(LatLng::new(lat, lng).is_on_earth(), expected, "{lat} {lng}");
        }
    }
}
