//! Certificate authorities for HTTPS requests: those of this machine, read when the first server is verified.
//!
//! By default reqwest reads them for each client: hundreds of files, although most clients only use http. Here all
//! clients of a process share one list, and a process that verifies no server never reads it.

use std::sync::{Arc, LazyLock, OnceLock};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use rustls_platform_verifier::Verifier;

static CLIENT_CONFIG: LazyLock<ClientConfig> = LazyLock::new(|| config_with(Arc::new(SystemAuthorities::new())));

/// Returns the TLS settings of every client. Clones share the authorities.
pub(super) fn client_config() -> ClientConfig {
    CLIENT_CONFIG.clone()
}

/// Returns settings with reqwest's default TLS versions, without HTTP/2.
fn config_with(authorities: Arc<SystemAuthorities>) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(authorities.provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for every version")
        // This is as strict as reqwest's verifier: it is the same verifier, created later.
        .dangerous()
        .with_custom_certificate_verifier(authorities)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// Verifier of the operating system. If the authorities cannot be read, no server is trusted, and the next connection
/// reads them again.
#[derive(Debug)]
struct SystemAuthorities {
    provider: Arc<CryptoProvider>,
    verifier: OnceLock<Verifier>,
}

impl SystemAuthorities {
    fn new() -> Self {
        Self { provider: Arc::new(ring::default_provider()), verifier: OnceLock::new() }
    }

    /// Returns the verifier. The first call reads the authorities. Fails if there are none.
    fn verifier(&self) -> Result<&Verifier, Error> {
        if let Some(verifier) = self.verifier.get() {
            return Ok(verifier);
        }
        // Two concurrent first connections may both read them; one list is kept.
        let verifier = Verifier::new(self.provider.clone())?;
        Ok(self.verifier.get_or_init(|| verifier))
    }
}

impl ServerCertVerifier for SystemAuthorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_read_at_first_verification() {
        let authorities = Arc::new(SystemAuthorities::new());
        let config = config_with(authorities.clone());
        reqwest::Client::builder().tls_backend_preconfigured(config).build().unwrap();
        assert!(authorities.verifier.get().is_none(), "no server was verified");
        let name = ServerName::try_from("partner.example").unwrap();
        let refused = authorities.verify_server_cert(&CertificateDer::from(vec![0]), &[], &name, &[], UnixTime::now());
        assert!(refused.is_err(), "these bytes are no certificate");
        let read = authorities.verifier().map(std::ptr::from_ref);
        let again = authorities.verifier().map(std::ptr::from_ref);
        assert_eq!(read, again, "they are read once, or there are none each time");
    }
}
