//! Redis behind TLS, with an authority of one's own.

use std::{path::Path, process::Command};

use workers::{NewJob, RedisConfig, Store, StoreError, store::Enqueued};

use crate::support::{Tick, free_port, raw};

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and a server's certificate signed by it.
fn certificates(dir: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(dir, &format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=test-authority"));
    openssl(dir, &format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"));
    std::fs::write(dir.join("server.ext"), "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    openssl(
        dir,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile server.ext",
    );
}

#[tokio::test]
async fn a_store_speaks_tls_and_trusts_only_the_authority_it_was_given() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redis = servers::Redis::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let port = free_port();
    let tls = ["CONFIG", "SET", "tls-cert-file", &file("server.crt"), "tls-key-file", &file("server.key")];
    let more = ["tls-ca-cert-file", &file("ca.crt"), "tls-auth-clients", "no", "tls-port", &port.to_string()];
    raw::<()>(&redis.url(), &[&tls[..], &more[..]].concat()).await;

    let url = format!("rediss://127.0.0.1:{port}/");
    let trusting =
        RedisConfig { root_certificate: Some(std::fs::read(file("ca.crt")).unwrap()), ..RedisConfig::new(&url) };
    let store = Store::with_config(trusting).unwrap();
    assert_eq!(store.enqueue(&[NewJob::now(&Tick(1))]).await.unwrap(), [Enqueued::Inserted]);

    let error = Store::connect(&url).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.to_string().contains("ertificate"), "{error}");
}
