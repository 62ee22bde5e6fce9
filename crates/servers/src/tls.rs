//! TLS for a private Redis, with its own certificate authority. For tests that need a TLS server.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{
    error::{IoErrorContext, ServerError},
    ports::ReservedPort,
};

/// TLS endpoint of a Redis.
#[derive(Debug, Clone)]
pub struct TlsEndpoint {
    port: Arc<ReservedPort>,
    root_certificate: PathBuf,
}

impl TlsEndpoint {
    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port.port())
    }

    /// Returns the PEM file of the authority that signed the server's certificate. The file is removed with the
    /// server's directory.
    pub fn root_certificate(&self) -> &Path {
        &self.root_certificate
    }
}

/// Creates certificates with `openssl` in `dir`. The Redis server at `redis_port` then accepts TLS on another port
/// until it is restarted.
pub(crate) async fn serve_tls(dir: &Path, redis_port: u16) -> Result<TlsEndpoint, ServerError> {
    make_certificates(dir)?;
    let port = Arc::new(ReservedPort::find());
    let file = |name: &str| dir.join(name).display().to_string();
    let words = [
        format!("CONFIG SET tls-cert-file {} tls-key-file {}", file("server.crt"), file("server.key")),
        format!("tls-ca-cert-file {} tls-auth-clients no tls-port {}\r\nQUIT\r\n", file("ca.crt"), port.port()),
    ];
    let mut answer = String::new();
    let asked = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, redis_port)).await?;
        stream.write_all(words.join(" ").as_bytes()).await?;
        stream.read_to_string(&mut answer).await
    };
    asked.await.while_doing(|| "enable TLS in Redis".into())?;
    if answer.lines().all(|line| line == "+OK") {
        Ok(TlsEndpoint { port, root_certificate: dir.join("ca.crt") })
    } else {
        Err(ServerError::Failed { program: "redis-server", reason: "did not enable TLS".into(), log: answer })
    }
}

/// Creates a certificate authority, and a certificate for 127.0.0.1 signed by it.
pub(crate) fn make_certificates(dir: &Path) -> Result<(), ServerError> {
    const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let extensions = dir.join("server.ext");
    fs::write(&extensions, "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .while_doing(|| format!("write {}", extensions.display()))?;
    run_openssl(
        dir,
        &format!("req -x509 {KEY} -keyout ca.key -out ca.crt -days 2 -subj /CN=dispatchq-test-authority"),
    )?;
    run_openssl(dir, &format!("req {KEY} -keyout server.key -out server.csr -subj /CN=localhost"))?;
    run_openssl(
        dir,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile server.ext",
    )
}

fn run_openssl(dir: &Path, args: &str) -> Result<(), ServerError> {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).output();
    let output = output.while_doing(|| "start openssl".into())?;
    if output.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(ServerError::Failed { program: "openssl", reason: format!("ended with {}", output.status), log })
}
