//! Redis with TLS and a private authority.

use crate::support::Tick;
use queue::{NewJob, RedisConfig, Store, StoreError, store::EnqueueVerdict};

#[tokio::test]
async fn tls_store_trusts_only_the_given_authority() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redis = servers::RedisServer::start().await.unwrap();
    let tls = redis.serve_tls().await.unwrap();
    let authority = std::fs::read(tls.root_certificate()).unwrap();
    let trusting = RedisConfig { root_certificate: Some(authority), ..RedisConfig::new(tls.url()) };
    trusting.check().unwrap();
    let store = Store::with_config(trusting).unwrap();
    assert_eq!(store.enqueue(&[NewJob::now(&Tick(1))]).await.unwrap(), [EnqueueVerdict::Inserted]);

    let error = Store::connect(&tls.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.to_string().contains("ertificate"), "{error}");
}

/// Also with sentinels, where the certificate is otherwise not read until they name a server.
#[test]
fn certificate_without_tls_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let check = |url: &str, pem: &str| {
        RedisConfig { root_certificate: Some(pem.as_bytes().to_vec()), ..RedisConfig::new(url) }.check()
    };
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for url in ["rediss://host:1", "rediss+sentinel://host:1/main", "rediss+cluster://host:1"] {
        for pem in ["", "no certificate", broken] {
            let error = check(url, pem).unwrap_err();
            assert!(matches!(error, StoreError::Certificate { .. }), "{url} {pem}: {error}");
            assert!(error.to_string().contains("PEM"), "{error}");
        }
    }
    for url in ["redis://host:1", "redis+sentinel://host:1/main", "redis+cluster://host:1"] {
        let error = check(url, broken).unwrap_err().to_string();
        assert!(error.contains("rediss"), "{error}");
    }
}
