//! The name and role that the claims of an ID token give a person.

use std::collections::BTreeMap;

use model::{key_name::KeyName, plain_text};
use serde_json::Value;

use super::{
    error::SignInError,
    id_token::{Claims, TokenFault},
};
use crate::api_keys::AccountRole;
use settings::{OidcConfig, StaffRole};

/// Maximum characters of a `sub` claim, from the OpenID Connect standard.
const MAX_SUBJECT: usize = 255;

/// A person who has signed in at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcPerson {
    /// Name of the person in the history.
    pub name: String,
    pub role: AccountRole,
    /// The provider's id of the person. It stays the same when the name changes.
    pub subject: String,
}

/// Claim that the provider sets to true after it has verified the person's e-mail address.
const VERIFIED: &str = "email_verified";

/// Settings that map claims to a name and a role.
#[derive(Debug)]
pub(super) struct PersonRules {
    name_claim: String,
    role_claim: String,
    roles: BTreeMap<String, StaffRole>,
}

impl PersonRules {
    pub(super) fn new(config: &OidcConfig) -> Self {
        Self {
            name_claim: config.name_claim.clone(),
            role_claim: config.role_claim.clone(),
            roles: config.roles.clone(),
        }
    }

    pub(super) fn read_person(&self, claims: &Claims) -> Result<OidcPerson, SignInError> {
        let plain = |claim: &str, most: usize| {
            let text = find_claim(claims, claim)?.as_str()?.trim();
            (!text.is_empty() && plain_text::find_problem(text, most).is_none()).then(|| text.to_owned())
        };
        let subject = plain("sub", MAX_SUBJECT).ok_or(SignInError::Untrusted(TokenFault::Malformed))?;
        // A person can type an unverified address freely, and a provider may derive the name from it.
        if claims.get(VERIFIED).is_some_and(|claim| !says_true(claim)) {
            return Err(SignInError::NoName("email".to_owned()));
        }
        let said = find_claim(claims, &self.name_claim).and_then(Value::as_str);
        let name = said.and_then(|name| KeyName::parse(name).ok()).map(KeyName::into_string);
        let name = name.ok_or_else(|| SignInError::NoName(self.name_claim.clone()))?;
        let values = find_claim(claims, &self.role_claim).map(texts_of).unwrap_or_default();
        let role = values.into_iter().filter_map(|value| self.roles.get(value)).max();
        let role = role.ok_or_else(|| SignInError::NoRole(self.role_claim.clone()))?;
        Ok(OidcPerson { name, role: account_role(*role), subject })
    }
}

/// Returns the claim with this name. If there is none, reads the name as a path with dots, such as Keycloak's
/// `realm_access.roles`.
fn find_claim<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        let mut steps = name.split('.');
        let first = claims.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.get(step))
    })
}

/// Returns whether a claim is true. Some providers send the text "true".
fn says_true(claim: &Value) -> bool {
    *claim == Value::Bool(true) || claim.as_str() == Some("true")
}

fn texts_of(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn account_role(role: StaffRole) -> AccountRole {
    match role {
        StaffRole::Viewer => AccountRole::Viewer,
        StaffRole::Support => AccountRole::Support,
        StaffRole::Dispatcher => AccountRole::Dispatcher,
        StaffRole::Operator => AccountRole::Operator,
        StaffRole::Admin => AccountRole::Admin,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(name_claim: &str, role_claim: &str) -> PersonRules {
        let roles = [("desk", StaffRole::Dispatcher), ("ops", StaffRole::Operator), ("look", StaffRole::Viewer)];
        PersonRules {
            name_claim: name_claim.to_owned(),
            role_claim: role_claim.to_owned(),
            roles: roles.map(|(value, role)| (value.to_owned(), role)).into(),
        }
    }

    fn read(rules: &PersonRules, claims: Value) -> Result<OidcPerson, SignInError> {
        let Value::Object(claims) = claims else { panic!("an object was meant") };
        rules.read_person(&claims)
    }

    #[test]
    fn strongest_role_of_a_claim_counts() {
        for (role_claim, claims, role) in [
            ("groups", json!({ "groups": ["look", "drinks", "ops", "desk"] }), AccountRole::Operator),
            ("groups", json!({ "groups": "desk" }), AccountRole::Dispatcher),
            ("realm_access.roles", json!({ "realm_access": { "roles": ["look"] } }), AccountRole::Viewer),
            ("https://example.com/roles", json!({ "https://example.com/roles": ["desk"] }), AccountRole::Dispatcher),
        ] {
            let Value::Object(mut claims) = claims else { panic!("an object was meant") };
            claims.extend([("sub".to_owned(), json!("17")), ("email".to_owned(), json!("anna@example.com"))]);
            let person = rules("email", role_claim).read_person(&claims).unwrap();
            let expected = OidcPerson { name: "anna@example.com".to_owned(), role, subject: "17".to_owned() };
            assert_eq!(person, expected, "{role_claim}");
        }
    }

    // Rule F36: If the claim email_verified is present, only the values true and "true" allow a sign-in, whichever
    // claim contains the name.
    #[test]
    fn only_verified_email_signs_in() {
        let signs_in = |verified: Option<Value>| {
            let mut claims =
                json!({ "sub": "17", "email": "a@example.com", "preferred_username": "a", "groups": "desk" });
            if let Some(verified) = verified {
                claims["email_verified"] = verified;
            }
            let names = ["email", "preferred_username"];
            let signed_in = names.map(|name| read(&rules(name, "groups"), claims.clone()).is_ok());
            assert_eq!(signed_in[0], signed_in[1], "{claims}");
            signed_in[0]
        };
        assert!(signs_in(None) && signs_in(Some(json!(true))) && signs_in(Some(json!("true"))));
        for unverified in [
            json!(false),
            json!("false"),
            json!("False"),
            json!("TRUE"),
            json!(" true"),
            json!("1"),
            json!(""),
            json!(0),
            json!(1),
            json!(1.0),
            json!(null),
            json!([]),
            json!([true]),
            json!({ "value": true }),
        ] {
            assert!(!signs_in(Some(unverified.clone())), "{unverified}");
        }
    }

    #[test]
    fn sign_in_needs_role_name_and_id() {
        let rules = rules("email", "groups");
        let no_role = Err(SignInError::NoRole("groups".to_owned()));
        for groups in [json!([]), json!("Desk"), json!(["desk "]), json!({ "desk": true }), json!(null)] {
            let claims = json!({ "sub": "17", "email": "a@example.com", "groups": groups });
            assert_eq!(read(&rules, claims), no_role, "{groups}");
        }
        let no_name = Err(SignInError::NoName("email".to_owned()));
        for email in [json!(""), json!(" "), json!("a\nb@example.com"), json!("a".repeat(65)), json!(["a@example.com"])]
        {
            assert_eq!(read(&rules, json!({ "sub": "17", "email": email, "groups": "desk" })), no_name, "{email}");
        }
        let unverified = json!({ "sub": "17", "email": "a@example.com", "email_verified": false, "groups": "desk" });
        assert_eq!(read(&rules, unverified), no_name);
        let nameless = json!({ "email": "a@example.com", "groups": "desk" });
        assert_eq!(read(&rules, nameless), Err(SignInError::Untrusted(TokenFault::Malformed)));
    }
}
