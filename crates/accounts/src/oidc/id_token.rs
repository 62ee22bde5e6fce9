//! Verification of ID tokens: signature, issuer, audience, expiry and nonce.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Maximum difference between the provider's clock and ours.
const CLOCK_SKEW_SECS: f64 = 60.0;

/// Claims of a token by name.
pub(super) type Claims = Map<String, Value>;

/// Reason that a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("the ID token cannot be read")]
    Malformed,
    #[error("the provider has no key that fits the ID token")]
    UnknownKey,
    #[error("the signature of the ID token is not valid")]
    BadSignature,
    #[error("the issuer of the ID token is not console.oidc.issuer")]
    OtherIssuer,
    #[error("the audience of the ID token is not console.oidc.client_id")]
    OtherAudience,
    #[error("the ID token has expired: compare the clock of this machine with the provider's")]
    Expired,
    #[error("the ID token belongs to another sign-in")]
    OtherNonce,
}

/// Keys that the provider publishes.
#[derive(Debug, Deserialize)]
pub(super) struct KeySet {
    pub(super) keys: Vec<SigningKey>,
}

/// A public key. Keys of other types have other members and verify no signature.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SigningKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    /// Extensions that a verifier must understand. This one understands none, so it rejects a token that names any.
    crit: Option<Value>,
}

/// Values that the claims of a token must have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// Verifies the signature and the claims of a token and returns the claims.
pub(super) fn verify_token(token: &str, keys: &[SigningKey], expected: Expected<'_>) -> Result<Claims, TokenFault> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
    let header: TokenHeader = read_json(header)?;
    if header.crit.is_some() {
        return Err(TokenFault::Malformed);
    }
    let signature = decode(signature).ok_or(TokenFault::Malformed)?;
    let key = find_key(keys, &header).ok_or(TokenFault::UnknownKey)?;
    if !key.verifies(&header.alg, signed.as_bytes(), &signature) {
        return Err(TokenFault::BadSignature);
    }
    let claims: Claims = read_json(claims)?;
    check_claims(&claims, expected)?;
    Ok(claims)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn read_json<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenFault> {
    let bytes = decode(part).ok_or(TokenFault::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenFault::Malformed)
}

/// Returns the key with the token's key id. A token without an id needs exactly one key that fits its algorithm.
fn find_key<'a>(keys: &'a [SigningKey], header: &TokenHeader) -> Option<&'a SigningKey> {
    let mut fitting = keys.iter().filter(|key| key.fits(&header.alg));
    if header.kid.is_some() {
        return fitting.find(|key| key.kid == header.kid);
    }
    let only = fitting.next()?;
    fitting.next().is_none().then_some(only)
}

/// Verification method of an RFC 7518 algorithm.
enum Method {
    Rsa(&'static RsaParameters),
    /// Keys on the named curve.
    Curve(&'static str, &'static dyn VerificationAlgorithm),
}

impl Method {
    /// Returns the method for an algorithm name. `none` and the algorithms with a shared key are not supported: a party
    /// that can verify with a shared key can also sign with it.
    fn named(alg: &str) -> Option<Self> {
        Some(match alg {
            "RS256" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            "PS384" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            "PS512" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            "ES256" => Self::Curve("P-256", &signature::ECDSA_P256_SHA256_FIXED),
            "ES384" => Self::Curve("P-384", &signature::ECDSA_P384_SHA384_FIXED),
            "EdDSA" => Self::Curve("Ed25519", &signature::ED25519),
            _ => return None,
        })
    }
}

impl SigningKey {
    /// Returns whether the key can verify signatures of this algorithm.
    fn fits(&self, alg: &str) -> bool {
        let is_kind = match Method::named(alg) {
            Some(Method::Rsa(_)) => self.kty == "RSA",
            Some(Method::Curve(curve, _)) => self.crv == curve,
            None => false,
        };
        let is_for_signatures = self.usage.as_deref().is_none_or(|usage| usage == "sig");
        is_kind && is_for_signatures && self.alg.as_deref().is_none_or(|own| own == alg)
    }

    fn verifies(&self, alg: &str, message: &[u8], signature: &[u8]) -> bool {
        let verified = match Method::named(alg) {
            Some(Method::Rsa(parameters)) => decode(&self.n).zip(decode(&self.e)).map(|(n, e)| {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }),
            Some(Method::Curve(_, algorithm)) => self
                .curve_point()
                .map(|point| UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()),
            None => None,
        };
        verified.unwrap_or(false)
    }

    /// Returns the public key in ring's format. An ECDSA key is an uncompressed point with both coordinates.
    fn curve_point(&self) -> Option<Vec<u8>> {
        let x = decode(&self.x)?;
        if self.kty == "OKP" {
            return Some(x);
        }
        let y = decode(&self.y)?;
        Some([&[4_u8][..], x.as_slice(), y.as_slice()].concat())
    }
}

fn check_claims(claims: &Claims, expected: Expected<'_>) -> Result<(), TokenFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenFault::OtherIssuer);
    }
    let is_for_us = match claims.get("aud") {
        Some(Value::String(client)) => client == expected.client_id,
        Some(Value::Array(clients)) => clients.iter().any(|client| client == expected.client_id),
        _ => false,
    };
    // A token with several audiences must name the party it was issued to.
    let is_several = claims.get("aud").and_then(Value::as_array).is_some_and(|clients| clients.len() > 1);
    let is_issued_to_us = match claims.get("azp") {
        Some(party) => party == expected.client_id,
        None => !is_several,
    };
    if !is_for_us || !is_issued_to_us {
        return Err(TokenFault::OtherAudience);
    }
    let expires_at = claims.get("exp").and_then(Value::as_f64).ok_or(TokenFault::Malformed)?;
    // A float represents present-day Unix seconds exactly.
    #[expect(clippy::cast_precision_loss, reason = "see above")]
    let now = expected.now as f64;
    if expires_at + CLOCK_SKEW_SECS <= now {
        return Err(TokenFault::Expired);
    }
    if text("nonce") != Some(expected.nonce) {
        return Err(TokenFault::OtherNonce);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
    };
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const EXPECTED: Expected<'static> =
        Expected { issuer: "https://login.example.com", client_id: "dispatchq", nonce: "a nonce", now: NOW };

    fn new_pair() -> EcdsaKeyPair {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
    }

    /// Returns the public key in the form that a provider publishes.
    fn published(pair: &EcdsaKeyPair, kid: &str, more: &Value) -> SigningKey {
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|coordinate| URL_SAFE_NO_PAD.encode(coordinate));
        let mut key = json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y });
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(key).unwrap()
    }

    fn sign(pair: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn claims() -> Value {
        json!({ "iss": EXPECTED.issuer, "aud": "dispatchq", "exp": NOW + 60, "nonce": EXPECTED.nonce, "sub": "17" })
    }

    #[test]
    fn token_must_match_issuer_audience_and_nonce() {
        let pair = new_pair();
        let keys = [published(&pair, "k1", &json!({}))];
        let header = json!({ "alg": "ES256", "kid": "k1" });
        let verify = |changes: Value| {
            let mut claims = claims();
            claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            verify_token(&sign(&pair, &header, &claims), &keys, EXPECTED).map(|claims| claims["sub"].clone())
        };
        for fine in [
            json!({}),
            json!({ "aud": ["dispatchq"] }),
            json!({ "aud": ["other", "dispatchq"], "azp": "dispatchq" }),
            json!({ "exp": NOW - 59 }),
            json!({ "exp": 1.9e9 }),
        ] {
            assert_eq!(verify(fine.clone()), Ok(json!("17")), "{fine}");
        }
        for (changes, fault) in [
            (json!({ "iss": "https://login.example.com/" }), TokenFault::OtherIssuer),
            (json!({ "iss": null }), TokenFault::OtherIssuer),
            (json!({ "aud": "other" }), TokenFault::OtherAudience),
            (json!({ "aud": [] }), TokenFault::OtherAudience),
            (json!({ "aud": ["other", "dispatchq"] }), TokenFault::OtherAudience),
            (json!({ "aud": "dispatchq", "azp": "other" }), TokenFault::OtherAudience),
            (json!({ "exp": NOW - 60 }), TokenFault::Expired),
            (json!({ "exp": "1900000000" }), TokenFault::Malformed),
            (json!({ "nonce": "another" }), TokenFault::OtherNonce),
            (json!({ "nonce": null }), TokenFault::OtherNonce),
        ] {
            assert_eq!(verify(changes.clone()), Err(fault), "{changes}");
        }
    }

    #[test]
    fn token_needs_provider_key_and_public_method() {
        let (pair, other) = (new_pair(), new_pair());
        let key = |more: Value| published(&pair, "k1", &more);
        let header = |alg: &str| json!({ "alg": alg, "kid": "k1" });
        let token = sign(&pair, &header("ES256"), &claims());
        let verify = |token: &str, keys: &[SigningKey]| verify_token(token, keys, EXPECTED).map(drop);
        assert_eq!(verify(&token, &[key(json!({ "use": "sig", "alg": "ES256" }))]), Ok(()));
        for unfit in
            [json!({ "use": "enc" }), json!({ "alg": "ES384" }), json!({ "kid": "k2" }), json!({ "crv": "P-384" })]
        {
            assert_eq!(verify(&token, &[key(unfit.clone())]), Err(TokenFault::UnknownKey), "{unfit}");
        }
        let forged = sign(&other, &header("ES256"), &claims());
        assert_eq!(verify(&forged, &[key(json!({}))]), Err(TokenFault::BadSignature));
        for alg in ["none", "HS256", "RS256", "es256"] {
            let token = sign(&pair, &header(alg), &claims());
            assert_eq!(verify(&token, &[key(json!({}))]), Err(TokenFault::UnknownKey), "{alg}");
        }
        // A token without a key id verifies only if exactly one key fits.
        let nameless = sign(&pair, &json!({ "alg": "ES256" }), &claims());
        assert_eq!(verify(&nameless, &[key(json!({}))]), Ok(()));
        let two = [key(json!({})), published(&other, "k2", &json!({}))];
        assert_eq!(verify(&nameless, &two), Err(TokenFault::UnknownKey));
        assert_eq!(verify(&token, &two), Ok(()));

        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (_, payload) = signed.split_once('.').unwrap();
        let critical = sign(&pair, &json!({ "alg": "ES256", "kid": "k1", "crit": ["b64"] }), &claims());
        for bad in ["", "a.b", "a.b.c", signed, critical.as_str(), &format!(".{payload}.")] {
            assert_eq!(verify(bad, &two), Err(TokenFault::Malformed), "{bad}");
        }
        for bad in [format!("{signed}."), format!("{token}.{signature}")] {
            assert_eq!(verify(&bad, &two), Err(TokenFault::BadSignature), "{bad}");
        }
    }
}
