//! Browsers that drivers have registered for push messages: one for each session of the driver page. They end with their
//! session, so a sign-out, and the disabling or removal of a driver, removes them.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use model::ids::DriverId;
use reqwest::Url;
use sqlx::PgExecutor;
use uuid::Uuid;

use foundation::{db::Pool, outbound};

/// Browsers of a driver that get messages, the latest first.
pub const MOST_PER_DRIVER: i64 = 5;
/// Maximum length of an address at a push service.
const LONGEST_ENDPOINT: usize = 2_000;
const PUBLIC_KEY_BYTES: usize = 65;
const AUTH_BYTES: usize = 16;

/// Keys with which a message for a browser is encrypted.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "it holds a secret")]
pub struct BrowserKeys {
    /// Public key: an uncompressed point of P-256.
    pub p256dh: Vec<u8>,
    /// Secret that the browser shares with this installation.
    pub auth: Vec<u8>,
}

/// Address and keys of a browser.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the address lets its holder send messages")]
pub struct PushSubscription {
    pub endpoint: Url,
    pub keys: BrowserKeys,
}

impl PushSubscription {
    /// Reads a subscription as the browser sent it. `allow_private`: also accepts http and addresses of this machine.
    /// Returns `None` if a part is invalid.
    pub fn parse(endpoint: &str, p256dh: &str, auth: &str, allow_private: bool) -> Option<Self> {
        // Some browsers pad base64.
        let decode = |text: &str, length| {
            let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
            (bytes.len() == length).then_some(bytes)
        };
        let keys = BrowserKeys { p256dh: decode(p256dh, PUBLIC_KEY_BYTES)?, auth: decode(auth, AUTH_BYTES)? };
        let is_point = keys.p256dh.first() == Some(&4);
        let endpoint = Some(endpoint).filter(|text| text.len() <= LONGEST_ENDPOINT)?.parse::<Url>().ok()?;
        (is_point && is_allowed(&endpoint, allow_private)).then_some(Self { endpoint, keys })
    }
}

/// Returns whether messages may be sent to this address. Names are checked again at each connection.
fn is_allowed(endpoint: &Url, allow_private: bool) -> bool {
    let Some(host) = endpoint.host_str() else { return false };
    let has_login = !endpoint.username().is_empty() || endpoint.password().is_some();
    if has_login || endpoint.fragment().is_some() {
        return false;
    }
    if allow_private {
        return matches!(endpoint.scheme(), "http" | "https");
    }
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    endpoint.scheme() == "https" && host != "localhost" && address.map_or(true, outbound::is_public)
}

/// Registers the browser of a session, in place of the session's earlier browser. A browser that another session
/// registered moves to this session. Does nothing if the session has ended.
pub async fn save_subscription(db: &Pool, session: Uuid, new: &PushSubscription) -> Result<(), sqlx::Error> {
    let mut tx = db.begin().await?;
    sqlx::query(
        "-- replace push subscription
         DELETE FROM driver_push_subscriptions WHERE endpoint = $2 OR session_id = $1",
    )
    .bind(session)
    .bind(new.endpoint.as_str())
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "-- save push subscription
         INSERT INTO driver_push_subscriptions (session_id, endpoint, p256dh, auth)
         SELECT id, $2, $3, $4 FROM driver_sessions WHERE id = $1",
    )
    .bind(session)
    .bind(new.endpoint.as_str())
    .bind(&new.keys.p256dh)
    .bind(&new.keys.auth)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// A registered browser.
pub(super) struct StoredSubscription {
    pub(super) session: Uuid,
    pub(super) to: PushSubscription,
    /// Time of Postgres.
    pub(super) now: DateTime<Utc>,
}

type StoredRow = (Uuid, String, Vec<u8>, Vec<u8>, DateTime<Utc>);

/// Returns the browsers of a driver's valid sessions, the latest first, at most [`MOST_PER_DRIVER`].
pub(super) async fn load_subscriptions(
    db: impl PgExecutor<'_>,
    driver: &DriverId,
) -> Result<Vec<StoredSubscription>, sqlx::Error> {
    let rows: Vec<StoredRow> = sqlx::query_as(
        "-- push subscriptions of driver
         SELECT p.session_id, p.endpoint, p.p256dh, p.auth, dispatchq_now()
         FROM driver_sessions s JOIN driver_push_subscriptions p ON p.session_id = s.id
         WHERE s.driver_id = $1 AND s.expires_at > dispatchq_now()
         ORDER BY p.created_at DESC LIMIT $2",
    )
    .bind(driver)
    .bind(MOST_PER_DRIVER)
    .fetch_all(db)
    .await?;
    let read = |(session, endpoint, p256dh, auth, now): StoredRow| {
        let to = PushSubscription { endpoint: endpoint.parse().ok()?, keys: BrowserKeys { p256dh, auth } };
        Some(StoredSubscription { session, to, now })
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// Removes browsers whose push service no longer knows them, by session and endpoint. A browser that has subscribed again
/// meanwhile has another endpoint, and stays. Runs no statement if there are none.
pub(super) async fn remove_subscriptions(db: &Pool, gone: &[(Uuid, &str)]) -> Result<(), sqlx::Error> {
    if gone.is_empty() {
        return Ok(());
    }
    let (sessions, endpoints): (Vec<Uuid>, Vec<&str>) = gone.iter().copied().unzip();
    sqlx::query(
        "-- remove push subscriptions
         DELETE FROM driver_push_subscriptions p USING unnest($1::uuid[], $2::text[]) AS gone (session_id, endpoint)
         WHERE p.session_id = gone.session_id AND p.endpoint = gone.endpoint",
    )
    .bind(sessions)
    .bind(endpoints)
    .execute(db)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(endpoint: &str, allow_private: bool) -> bool {
        let (p256dh, auth) = (URL_SAFE_NO_PAD.encode([4; 65]), URL_SAFE_NO_PAD.encode([0; 16]));
        PushSubscription::parse(endpoint, &p256dh, &auth, allow_private).is_some()
    }

    #[test]
    fn only_public_https_addresses_are_accepted() {
        for endpoint in ["https://push.example.com/x?y=z", "https://9.9.9.9/x", "https://[2620:fe::fe]:8443/x"] {
            assert!(parse(endpoint, false), "{endpoint}");
        }
        let long = format!("https://push.example.com/{}", "x".repeat(2_000));
        for endpoint in [
            "",
            "x",
            "http://push.example.com/x",
            "https://localhost/x",
            "https://127.0.0.1/x",
            "https://10.1.2.3/x",
            "https://169.254.169.254/latest",
            "https://[::1]/x",
            "https://[::ffff:10.0.0.1]/x",
            "https://u:p@push.example.com/x",
            "https://push.example.com/x#y",
            "ftp://push.example.com/x",
            "data:text/plain,x",
            &long,
        ] {
            assert!(!parse(endpoint, false), "{endpoint}");
        }
        assert!(parse("http://127.0.0.1:8080/x", true) && !parse("ftp://127.0.0.1/x", true));
    }

    #[test]
    fn keys_have_the_lengths_of_the_standard() {
        let url = "https://push.example.com/x";
        let (point, auth) = (URL_SAFE_NO_PAD.encode([4; 65]), URL_SAFE_NO_PAD.encode([0; 16]));
        assert!(PushSubscription::parse(url, &format!("{point}="), &format!("{auth}=="), false).is_some());
        let [short, other] = [URL_SAFE_NO_PAD.encode([4; 64]), URL_SAFE_NO_PAD.encode([2; 65])];
        for wrong in ["", "\u{e9}", &short, &other, &auth] {
            assert!(PushSubscription::parse(url, wrong, &auth, false).is_none(), "{wrong}");
        }
        for wrong in ["", "x", &point] {
            assert!(PushSubscription::parse(url, &point, wrong, false).is_none(), "{wrong}");
        }
    }
}
