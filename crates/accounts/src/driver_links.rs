//! One-time links with which drivers sign in to the driver page.
//!
//! A link contains a code that people can also type. Postgres stores the SHA-256 of the code. A sign-in removes the row
//! in the statement that opens the session, so of two requests with one code only one succeeds.

use std::{fmt, net::IpAddr, time::Duration};

use chrono::{DateTime, Utc};
use model::ids::DriverId;
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    driver_sessions,
    sessions::{generate_token, hash_token},
};
use foundation::{
    db::Pool,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};

/// Time that a link is valid.
pub const VALID: Duration = Duration::from_mins(15);
/// Characters of a code: Crockford's base 32, which has no letters that look like digits.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a code. Twelve of them have 60 bits.
const LENGTH: usize = 12;
/// Characters between two dashes.
const GROUP: usize = 4;

/// A new code and its expiry.
pub struct SignInCode {
    /// Code in groups, such as `K7QM-2X9D-HB4T`.
    pub code: String,
    pub expires_at: DateTime<Utc>,
}

/// Hides the code, which is a secret.
impl fmt::Debug for SignInCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignInCode(***, {})", self.expires_at)
    }
}

/// Returns a random code without dashes.
fn generate_code() -> String {
    let random: [u8; LENGTH] = rand::random();
    random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// Returns the code with a dash after each group.
fn write_code(code: &str) -> String {
    let groups: Vec<&str> = (0..code.len()).step_by(GROUP).filter_map(|at| code.get(at..at + GROUP)).collect();
    groups.join("-")
}

/// Returns the hash of a typed code, or `None` if [`generate_code`] cannot have made it. Case, blanks and dashes do not
/// matter. The letters O, I and L are read as the digits that they look like.
fn hash_code(typed: &str) -> Option<Vec<u8>> {
    let mut code = String::new();
    for letter in typed.chars().filter(|letter| !letter.is_whitespace() && *letter != '-').take(LENGTH + 1) {
        code.push(match letter.to_ascii_uppercase() {
            'O' => '0',
            'I' | 'L' => '1',
            other => other,
        });
    }
    let is_code = code.len() == LENGTH && code.bytes().all(|byte| ALPHABET.contains(&byte));
    is_code.then(|| Sha256::digest(code.as_bytes()).to_vec())
}

/// Creates a link for a driver, with its audit record. Returns `None` if the driver does not exist or is disabled.
pub async fn create_link(
    db: &Pool,
    driver: &DriverId,
    by: ActionAuthor<'_>,
) -> Result<Option<SignInCode>, sqlx::Error> {
    let code = generate_code();
    let mut tx = db.begin().await?;
    // The lock makes the disabling of the driver wait, which then removes the link.
    let expires_at: Option<DateTime<Utc>> = sqlx::query_scalar(
        "-- create sign-in link of driver
         INSERT INTO driver_sign_in_links (sha256, driver_id, expires_at)
         SELECT $2, d.id, dispatchq_now() + $3 * interval '1 second'
         FROM (SELECT id FROM drivers WHERE id = $1 AND disabled_at IS NULL FOR SHARE) d
         RETURNING expires_at",
    )
    .bind(driver)
    .bind(hash_code(&code))
    .bind(VALID.as_secs_f64())
    .fetch_optional(&mut *tx)
    .await?;
    let Some(expires_at) = expires_at else { return Ok(None) };
    let values = ActionValues::created(json!({ "expires_at": expires_at }));
    record_action(&mut tx, by, StaffAction::DriverSignInLinkCreated, driver, values).await?;
    tx.commit().await?;
    Ok(Some(SignInCode { code: write_code(&code), expires_at }))
}

/// Exchanges a code for a session, for a driver at this address. Returns the token of the session, or `None` if the code
/// is wrong, used or expired, or its driver is disabled.
pub async fn use_code(db: &Pool, code: &str, address: IpAddr) -> Result<Option<String>, sqlx::Error> {
    let Some(hash) = hash_code(code) else { return Ok(None) };
    let token = generate_token();
    let opened = sqlx::query(include_str!("driver_links/use_code.sql"))
        .bind(hash)
        .bind(Uuid::now_v7())
        .bind(hash_token(&token))
        .bind(address.to_string())
        .bind(driver_sessions::VALID.as_secs_f64())
        .execute(db)
        .await?;
    Ok((opened.rows_affected() == 1).then_some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_code_ignores_case_and_dashes() {
        let code = generate_code();
        let written = write_code(&code);
        assert_eq!((code.len(), written.len(), written.matches('-').count()), (12, 14, 2), "{written}");
        for typed in [&written, &written.to_lowercase(), &format!("  {code} "), &written.replace('-', " ")] {
            assert_eq!(hash_code(typed), hash_code(&code), "{typed}");
        }
        assert_eq!(hash_code("oOiI-lL01-2345"), hash_code("001111012345"));
    }

    #[test]
    fn impossible_codes_have_no_hash() {
        for typed in ["", "K7QM", "K7QM-2X9D-HB4T-0", "K7QM-2X9D-HB4U", "K7QM-2X9D-HB4\u{e9}", &"0".repeat(1000)] {
            assert_eq!(hash_code(typed), None, "{typed}");
        }
    }
}
