//! A location as requests and answers write it.

use serde::{Deserialize, Serialize};

use crate::ids::LatLng;

/// Coordinates under the field names of the requirement documents. All JSON of the API uses these names.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Location)]
pub struct OrderLocation {
    #[schema(minimum = -90, maximum = 90)]
    pub latitude: f64,
    #[schema(minimum = -180, maximum = 180)]
    pub longitude: f64,
}

impl OrderLocation {
    pub fn as_lat_lng(self) -> LatLng {
        LatLng::new(self.latitude, self.longitude)
    }
}

impl From<LatLng> for OrderLocation {
    fn from(place: LatLng) -> Self {
        Self { latitude: place.lat, longitude: place.lng }
    }
}
