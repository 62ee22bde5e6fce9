//! Answers to admission requests: bodies, codes and messages of the requirement on server busy (3.4.1, 4.5.4, appendix
//! B). Pure.
//!
//! A busy answer also contains the creation time of the oldest waiting order, and nearby areas that accept orders.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{decide::AdmissionRefusal, limits::LoyaltyLevel};
use crate::ids::AreaId;

/// Language of the messages: Indonesian, as in the requirement document, unless the client requests another.
pub use crate::texts::Language as ReplyLanguage;

pub const THRESHOLD_REACHED: &str = "DISPATCHER_AREA_THRESHOLD_REACHED";
pub const AREA_DISABLED: &str = "DISPATCHER_AREA_DISABLED";
pub const AREA_NOT_FOUND: &str = "DISPATCHER_AREA_NOT_FOUND";
pub const SERVICE_UNAVAILABLE: &str = "DISPATCHER_SERVICE_UNAVAILABLE";

/// An area that accepts orders, near a full one.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct NearbyArea {
    #[schema(value_type = String)]
    pub area_id: AreaId,
    pub name: String,
    /// Straight-line distance from the pickup to the middle of the area.
    pub distance_m: f64,
}

/// Data about an area in an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AreaDetails {
    pub area_id: AreaId,
    pub waiting: i64,
    pub threshold: i64,
    /// Limit including the bypass, if the caller's loyalty level allows it.
    pub with_bypass: Option<i64>,
    pub loyalty: Option<LoyaltyLevel>,
    pub estimated_wait_sec: u64,
    pub retry_after_sec: u64,
    pub oldest_waiting_since: Option<DateTime<Utc>>,
    /// Reason that a person gave for closing the area.
    pub reason: Option<String>,
    pub nearby: Vec<NearbyArea>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AdmissionAnswer {
    Available(AreaDetails),
    Bypassed(AreaDetails),
    Refused(AdmissionRefusal, AreaDetails),
    NoArea,
    /// The pickup is in no area, and areas are not enforced.
    Anywhere,
    /// Neither Redis nor Postgres is available for the decision.
    Unavailable,
}

impl AdmissionAnswer {
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Available(_) | Self::Bypassed(_) | Self::Anywhere => 200,
            Self::Refused(..) | Self::Unavailable => 503,
            Self::NoArea => 400,
        }
    }

    /// Returns the error code for programs; `None` if the order is accepted.
    pub fn error_code(&self) -> Option<&'static str> {
        match self {
            Self::Available(_) | Self::Bypassed(_) | Self::Anywhere => None,
            Self::Refused(AdmissionRefusal::Disabled, _) => Some(AREA_DISABLED),
            Self::Refused(..) => Some(THRESHOLD_REACHED),
            Self::NoArea => Some(AREA_NOT_FOUND),
            Self::Unavailable => Some(SERVICE_UNAVAILABLE),
        }
    }

    pub fn retry_after_sec(&self) -> Option<u64> {
        match self {
            Self::Refused(_, told) => Some(told.retry_after_sec),
            Self::Unavailable => Some(5),
            _ => None,
        }
    }

    pub fn message_in(&self, language: ReplyLanguage) -> String {
        let pick = |indonesian: &'static str, english, vietnamese| {
            let text = match language {
                ReplyLanguage::Indonesian => indonesian,
                ReplyLanguage::English => english,
                ReplyLanguage::Vietnamese => vietnamese,
            };
            text.to_owned()
        };
        match self {
            Self::Available(_) | Self::Anywhere => pick("Area tersedia", "There is room", "Khu vực còn chỗ"),
            Self::Bypassed(told) => {
                let title = told.loyalty.map_or("", LoyaltyLevel::display_title);
                let text = pick(
                    "Area sedang sibuk, tapi Anda mendapat prioritas sebagai member",
                    "The area is busy, but you have priority as a member:",
                    "Khu vực đang bận, nhưng bạn được ưu tiên với tư cách thành viên",
                );
                format!("{text} {title}")
            }
            Self::Refused(AdmissionRefusal::Disabled, _) => pick(
                "Layanan di area ini sedang tidak tersedia",
                "There is no service in this area at the moment",
                "Hiện không có dịch vụ ở khu vực này",
            ),
            Self::Refused(AdmissionRefusal::Full, told) if told.with_bypass.is_some() => pick(
                "Area sedang sangat sibuk, silakan coba beberapa saat lagi",
                "The area is very busy, please try again in a moment",
                "Khu vực đang rất bận, vui lòng thử lại sau giây lát",
            ),
            Self::Refused(..) => pick(
                "Area sedang sibuk, silakan coba beberapa saat lagi",
                "The area is busy, please try again in a moment",
                "Khu vực đang bận, vui lòng thử lại sau giây lát",
            ),
            Self::NoArea => pick(
                "Lokasi di luar area layanan",
                "This location is outside our service area",
                "Địa điểm nằm ngoài khu vực phục vụ",
            ),
            Self::Unavailable => pick(
                "Layanan sedang tidak tersedia, silakan coba lagi",
                "The service is not available, please try again",
                "Dịch vụ hiện không khả dụng, vui lòng thử lại",
            ),
        }
    }

    pub fn json_body(&self, language: ReplyLanguage) -> Value {
        let message = self.message_in(language);
        match self {
            Self::Available(told) => json!({
                "status": "AVAILABLE",
                "area_id": told.area_id,
                "current_waiting": told.waiting,
                "threshold": told.threshold,
                "estimated_wait_time_sec": told.estimated_wait_sec,
            }),
            Self::Bypassed(told) => json!({
                "status": "AVAILABLE",
                "area_id": told.area_id,
                "current_waiting": told.waiting,
                "threshold": told.threshold,
                "bypassed": true,
                "bypass_reason": format!("LOYALTY_{}", told.loyalty.map_or("", LoyaltyLevel::as_str)),
                "message": message,
            }),
            Self::Refused(why, told) => {
                let mut body = json!({
                    "status": "SERVER_BUSY",
                    "error_code": self.error_code(),
                    "area_id": told.area_id,
                    "current_waiting": told.waiting,
                    "threshold": told.threshold,
                });
                match told.with_bypass.filter(|_| *why == AdmissionRefusal::Full) {
                    Some(most) => {
                        body["max_with_bypass"] = json!(most);
                        body["loyalty_level"] = json!(told.loyalty);
                        body["bypassed"] = json!(false);
                    }
                    None => body["retry_after_sec"] = json!(told.retry_after_sec),
                }
                body["message"] = json!(message);
                if let Some(reason) = &told.reason {
                    body["reason"] = json!(reason);
                }
                if let Some(since) = told.oldest_waiting_since {
                    body["oldest_waiting_since"] = json!(since);
                }
                if !told.nearby.is_empty() {
                    body["nearby_areas"] = json!(told.nearby);
                }
                body
            }
            Self::Anywhere => json!({ "status": "AVAILABLE", "area_id": null }),
            Self::NoArea | Self::Unavailable => {
                json!({ "status": "UNAVAILABLE", "error_code": self.error_code(), "message": message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(waiting: i64) -> AreaDetails {
        AreaDetails {
            area_id: "JKT-PUSAT".into(),
            waiting,
            threshold: 100,
            with_bypass: None,
            loyalty: None,
            estimated_wait_sec: 120,
            retry_after_sec: 60,
            oldest_waiting_since: None,
            reason: None,
            nearby: Vec::new(),
        }
    }

    fn loyal(waiting: i64) -> AreaDetails {
        AreaDetails { with_bypass: Some(120), loyalty: Some(LoyaltyLevel::Voyager), ..told(waiting) }
    }

    /// Asserts that the body equals the requirement's text, except for white space.
    fn is_to_the_letter(answer: &AdmissionAnswer, seed: &str) {
        let seed: Value = serde_json::from_str(seed).unwrap();
        assert_eq!(answer.json_body(ReplyLanguage::Indonesian).to_string(), seed.to_string());
    }

    #[test]
    fn bodies_match_the_requirement() {
        is_to_the_letter(
            &AdmissionAnswer::Available(told(45)),
            r#"{ "status": "AVAILABLE", "area_id": "JKT-PUSAT", "current_waiting": 45, "threshold": 100,
                 "estimated_wait_time_sec": 120 }"#,
        );
        is_to_the_letter(
            &AdmissionAnswer::Refused(AdmissionRefusal::Full, told(105)),
            r#"{ "status": "SERVER_BUSY", "error_code": "DISPATCHER_AREA_THRESHOLD_REACHED", "area_id": "JKT-PUSAT",
                 "current_waiting": 105, "threshold": 100, "retry_after_sec": 60,
                 "message": "Area sedang sibuk, silakan coba beberapa saat lagi" }"#,
        );
        is_to_the_letter(
            &AdmissionAnswer::Bypassed(loyal(105)),
            r#"{ "status": "AVAILABLE", "area_id": "JKT-PUSAT", "current_waiting": 105, "threshold": 100,
                 "bypassed": true, "bypass_reason": "LOYALTY_VOYAGER",
                 "message": "Area sedang sibuk, tapi Anda mendapat prioritas sebagai member Voyager" }"#,
        );
        is_to_the_letter(
            &AdmissionAnswer::Refused(AdmissionRefusal::Full, loyal(125)),
            r#"{ "status": "SERVER_BUSY", "error_code": "DISPATCHER_AREA_THRESHOLD_REACHED", "area_id": "JKT-PUSAT",
                 "current_waiting": 125, "threshold": 100, "max_with_bypass": 120, "loyalty_level": "VOYAGER",
                 "bypassed": false, "message": "Area sedang sangat sibuk, silakan coba beberapa saat lagi" }"#,
        );
    }

    #[test]
    fn error_codes_have_the_required_statuses() {
        let of = |answer: AdmissionAnswer| (answer.error_code().unwrap_or("-"), answer.http_status());
        assert_eq!(of(AdmissionAnswer::Refused(AdmissionRefusal::Full, told(100))), (THRESHOLD_REACHED, 503));
        assert_eq!(of(AdmissionAnswer::Refused(AdmissionRefusal::Forced, told(0))), (THRESHOLD_REACHED, 503));
        assert_eq!(of(AdmissionAnswer::Refused(AdmissionRefusal::Disabled, told(0))), (AREA_DISABLED, 503));
        assert_eq!(of(AdmissionAnswer::NoArea), (AREA_NOT_FOUND, 400));
        assert_eq!(of(AdmissionAnswer::Unavailable), (SERVICE_UNAVAILABLE, 503));
        assert_eq!(of(AdmissionAnswer::Available(told(0))), ("-", 200));
    }

    #[test]
    fn message_uses_the_requested_language() {
        let accepted = |header: &str| ReplyLanguage::from_accept_language(Some(header), ReplyLanguage::default());
        assert_eq!(ReplyLanguage::from_accept_language(None, ReplyLanguage::default()), ReplyLanguage::Indonesian);
        assert_eq!(accepted("en-US,en;q=0.9"), ReplyLanguage::English);
        assert_eq!(accepted("id-ID,id;q=0.9,en;q=0.8"), ReplyLanguage::Indonesian);
        assert_eq!(accepted("fr, en;q=0.4, id;q=0.2"), ReplyLanguage::English);
        assert_eq!(accepted("fr;q=x, ;;,"), ReplyLanguage::Indonesian);
        let busy = AdmissionAnswer::Refused(AdmissionRefusal::Full, told(100));
        assert_eq!(busy.message_in(ReplyLanguage::English), "The area is busy, please try again in a moment");
    }
}
