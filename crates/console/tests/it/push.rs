//! Push messages to the browsers of drivers, with a push service of the test.

use std::fs;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::StatusCode;
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    hkdf,
    rand::SystemRandom,
    signature,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Browser,
    driver_page::{signed_in, with_page},
};
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use notify::channels::push::vapid::generate_keys;
use settings::Config;
use test_support::{Api, Received, Receiver, TestApp, by, secs};

const AUTH: [u8; 16] = [7; 16];
const STORED: &str = "SELECT count(*) FROM driver_push_subscriptions";

/// An application with push messages, and its public key.
struct Stage {
    t: TestApp,
    api: Api,
    service: Receiver,
    public: String,
    _directory: TempDir,
}

impl Stage {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (keys, file) = (generate_keys().unwrap(), directory.path().join("key.pem"));
        fs::write(&file, &keys.private_pem).unwrap();
        let t = TestApp::with(|config| {
            with_page(config);
            config.push.private_key_file = Some(file);
            config.push.subject = "mailto:ops@example.com".to_owned();
            config.push.allow_private = true;
        })
        .await;
        let api = Api::start(&t.app).await;
        Self { t, api, service: Receiver::start().await, public: keys.public, _directory: directory }
    }

    /// Signs a driver in with a browser that is registered at this path of the push service.
    async fn phone(&self, driver: &str, path: &str) -> (Browser, PhoneKeys) {
        let browser = signed_in(&self.t, &self.api, driver).await;
        let keys = PhoneKeys::generate();
        assert_eq!(register(&browser, &self.service.url(path), &keys.public).await, 204);
        (browser, keys)
    }

    async fn stored(&self) -> i64 {
        self.t.count(STORED).await
    }
}

async fn register(browser: &Browser, endpoint: &str, public: &str) -> u16 {
    let form = [("endpoint", endpoint), ("p256dh", public), ("auth", &URL_SAFE_NO_PAD.encode(AUTH))];
    browser.post("/driver/push", &form).await.status().as_u16()
}

/// Key pair of a browser.
struct PhoneKeys {
    private: EphemeralPrivateKey,
    public: String,
}

impl PhoneKeys {
    fn generate() -> Self {
        let private = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let public = URL_SAFE_NO_PAD.encode(private.compute_public_key().unwrap());
        Self { private, public }
    }

    /// Decrypts a message as RFC 8291 describes it.
    fn decrypt(self, body: &[u8]) -> Vec<u8> {
        let (salt, rest) = body.split_at(16);
        assert_eq!(rest[..5], [0, 0, 16, 0, 65], "record size and length of the key");
        let (sender, record) = rest[5..].split_at(65);
        let own = URL_SAFE_NO_PAD.decode(&self.public).unwrap();
        let derive = |secret: &[u8]| {
            let derive = |salt: &[u8], input: &[u8], info: &[&[u8]]| {
                let mut out = [0; 32];
                let key = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(input);
                key.expand(info, hkdf::HKDF_SHA256).unwrap().fill(&mut out).unwrap();
                out
            };
            let input = derive(&AUTH, secret, &[b"WebPush: info\0", &own, sender]);
            // The first bytes of a longer output are the shorter output.
            let key = derive(salt, &input, &[b"Content-Encoding: aes128gcm\0"]);
            (key, derive(salt, &input, &[b"Content-Encoding: nonce\0"]))
        };
        let (key, nonce) = agree_ephemeral(self.private, &UnparsedPublicKey::new(&ECDH_P256, sender), derive).unwrap();
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).unwrap());
        let mut record = record.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).unwrap();
        let text = key.open_in_place(nonce, Aad::empty(), &mut record).unwrap();
        text.strip_suffix(&[2]).expect("the last record").to_vec()
    }
}

/// Verifies the signature of a message with the public key of the installation, and returns its claims.
fn verify(message: &Received, public: &str) -> Value {
    let header = message.headers["authorization"].to_str().unwrap();
    let (token, key) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    assert_eq!(key, public);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let verifier = signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, decode(key));
    verifier.verify(signed.as_bytes(), &decode(signature)).unwrap();
    serde_json::from_slice(&decode(signed.split_once('.').unwrap().1)).unwrap()
}

#[tokio::test]
async fn offer_wakes_the_browser_of_its_driver() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0), ("D2", 5_000.0)]).await;
    let (phone, keys) = stage.phone("D1", "/one").await;
    let (_other, _) = stage.phone("D2", "/two").await;
    let page = phone.text("/driver").await;
    assert!(page.contains(&format!("data-key=\"{}\"", stage.public)), "{page}");
    stage.t.order("ORD-1").await;
    stage.t.run_due().await;
    let received = stage.service.received();
    let [message] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!(message.path, "/one");
    let header = |name: &str| message.headers[name].to_str().unwrap();
    assert_eq!((header("content-encoding"), header("urgency"), header("ttl")), ("aes128gcm", "high", "120"));
    let claims = verify(message, &stage.public);
    assert_eq!((&claims["aud"], &claims["sub"]), (&json!(stage.service.url("")), &json!("mailto:ops@example.com")));
    assert_eq!(keys.decrypt(&message.bytes), b"new offer");
    let row = "SELECT state FROM outbox WHERE channel = 'driver:push'";
    assert_eq!(stage.t.texts(row).await, ["delivered"]);
    stage.t.assert_sound().await;
}

#[tokio::test]
async fn dead_browsers_are_removed() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0)]).await;
    for (n, status) in [StatusCode::GONE, StatusCode::NOT_FOUND].into_iter().enumerate() {
        stage.phone("D1", "/one").await;
        stage.service.fail(status, 1);
        let order = format!("ORD-{n}");
        stage.t.order(&order).await;
        stage.t.run_due().await;
        assert_eq!((stage.stored().await, stage.service.received().len()), (0, n + 1), "{status}");
        // The driver may still see the offer on the page.
        assert_eq!(stage.t.live_offer(&order).await.driver_id.as_str(), "D1");
        stage.t.cancel(&order).await.unwrap();
    }
}

#[tokio::test]
async fn failed_push_is_sent_again() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0)]).await;
    stage.phone("D1", "/one").await;
    stage.service.fail(StatusCode::SERVICE_UNAVAILABLE, 1);
    stage.t.order("ORD-1").await;
    stage.t.run_for(secs(10)).await;
    assert_eq!((stage.service.received().len(), stage.stored().await), (2, 1));
    // The offer ended, so nothing more is sent.
    stage.t.cancel("ORD-1").await.unwrap();
    stage.t.run_for(secs(60)).await;
    assert_eq!(stage.service.received().len(), 2);
}

#[tokio::test]
async fn only_the_latest_browsers_get_messages() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0)]).await;
    for n in 0..6 {
        stage.phone("D1", &format!("/{n}")).await;
        stage.t.advance(secs(1)).await;
    }
    stage.t.order("ORD-1").await;
    stage.t.run_due().await;
    let mut paths: Vec<_> = stage.service.received().into_iter().map(|message| message.path).collect();
    paths.sort();
    assert_eq!(paths, ["/1", "/2", "/3", "/4", "/5"]);
}

#[tokio::test]
async fn registration_ends_with_its_session() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0), ("D2", 100.0), ("D3", 100.0), ("D4", 100.0)]).await;
    let (phone, keys) = stage.phone("D1", "/one").await;
    // The session registers another browser in its place.
    assert_eq!(register(&phone, &stage.service.url("/other"), &keys.public).await, 204);
    assert_eq!(stage.stored().await, 1);
    phone.post("/driver/sign-out", &[]).await;
    assert_eq!(stage.stored().await, 0);
    let admin = stage.t.key(accounts::api_keys::AccountRole::Admin).await;
    for (driver, action) in [("D2", "disable"), ("D3", "remove")] {
        stage.phone(driver, "/one").await;
        let path = format!("/api/v1/drivers/{driver}/{action}");
        assert_eq!(stage.api.post(&path, &admin, json!({ "reason": "a test" })).await.status, 200);
        assert_eq!(stage.stored().await, 0, "{action}");
    }
    stage.phone("D4", "/one").await;
    let now = db::database_now(&stage.t.app.core.db).await.unwrap();
    let erasure = ErasureRecord::new(ErasureSubject::Driver, "D4", "a request", &by("cli:eve"), now);
    let done = privacy::erase_subject(&stage.t.app.core, &erasure).await.unwrap();
    assert_eq!((done, stage.stored().await), (ErasureOutcome::Done { orders: 0 }, 0));
}

#[tokio::test]
async fn browser_belongs_to_its_latest_driver() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0), ("D2", 5_000.0)]).await;
    stage.phone("D1", "/shared").await;
    stage.phone("D2", "/shared").await;
    let owner = "SELECT s.driver_id FROM driver_push_subscriptions p JOIN driver_sessions s ON s.id = p.session_id";
    assert_eq!(stage.t.texts(owner).await, ["D2"]);
    stage.t.order("ORD-1").await;
    stage.t.run_due().await;
    assert!(stage.service.received().is_empty(), "the offer is for D1");
}

#[tokio::test]
async fn bad_registrations_are_refused() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0)]).await;
    let public = PhoneKeys::generate().public;
    let guarded = stage.t.reconfigured(|config| config.push.allow_private = false);
    let guarded = Api::start(&guarded).await;
    let phone = signed_in(&stage.t, &guarded, "D1").await;
    for endpoint in [
        "",
        "x",
        "http://push.example.com/x",
        "https://127.0.0.1/x",
        "https://169.254.169.254/x",
        "https://localhost/x",
    ] {
        assert_eq!(register(&phone, endpoint, &public).await, 422, "{endpoint}");
    }
    for key in ["", "x", "null", "AAAA"] {
        assert_eq!(register(&phone, "https://push.example.com/x", key).await, 422, "{key}");
    }
    assert_eq!(phone.post("/driver/push", &[]).await.status(), 422);
    let form = [("endpoint", "https://push.example.com/x"), ("p256dh", public.as_str()), ("auth", "AAAA")];
    let foreign = phone.post_with("/driver/push", &form, &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(foreign.status(), 403);
    let unknown = Browser::new(&guarded).post("/driver/push", &form).await;
    assert_eq!(super::place(&unknown), "/driver/sign-in");
    assert_eq!(stage.stored().await, 0);
    let without = Api::start(&stage.t.reconfigured(|config: &mut Config| config.push.private_key_file = None)).await;
    let phone = signed_in(&stage.t, &without, "D1").await;
    assert_eq!(register(&phone, "https://push.example.com/x", &public).await, 404);
    assert!(!phone.text("/driver").await.contains("Wake me"));
}

#[tokio::test]
async fn driver_without_a_browser_keeps_the_offer() {
    let stage = Stage::start().await;
    stage.t.drivers(&[("D1", 100.0)]).await;
    stage.t.order("ORD-1").await;
    stage.t.run_due().await;
    assert_eq!(stage.t.live_offer("ORD-1").await.driver_id.as_str(), "D1");
    let row = "SELECT state || ' ' || last_error FROM outbox WHERE channel = 'driver:push'";
    assert_eq!(stage.t.texts(row).await, ["expired the driver has no browser that accepts messages"]);
    stage.t.assert_sound().await;
}

#[tokio::test]
async fn service_worker_has_the_policy_of_the_page() {
    let stage = Stage::start().await;
    let answer = Browser::new(&stage.api).get("/driver/sw.js?text=New+offer").await;
    assert_eq!(answer.headers()["content-type"], "text/javascript; charset=utf-8");
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(answer.text().await.unwrap().contains("showNotification"));
}
