//! Message texts by SMTP, to the address of the user or to the channel's addresses. A repeated message has the same
//! Message-ID, so mail systems can drop the duplicate.

use std::{fmt, time::Duration};

use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::Credentials,
        client::{Tls, TlsParameters},
        extension::ClientId,
    },
};
use model::messages::text::MessageText;

use super::{DeliveryError, OutgoingMessage};
use foundation::{
    config::error::{ConfigError, ensure_fits},
    outbound,
};
use settings::TlsMode;

/// Timeout for one SMTP command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the whole delivery; a job has 30 s.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct SmtpServer {
    pub host: String,
    /// `None`: the default port of the TLS mode.
    pub port: Option<u16>,
    pub tls: TlsMode,
    /// User and password.
    pub login: Option<(String, String)>,
}

#[derive(Clone)]
pub struct EmailChannel {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Vec<Mailbox>,
    host: String,
}

impl EmailChannel {
    pub fn new(server: SmtpServer, from: &str, to: &[String]) -> Result<Self, ConfigError> {
        ensure_fits(!to.is_empty(), "to names no one")?;
        let mailbox = |text: &str| {
            let parsed = text.parse::<Mailbox>();
            parsed.map_err(|error| ConfigError::new(format!("'{text}' is no e-mail address: {error}")))
        };
        let from = mailbox(from)?;
        let to = to.iter().map(|address| mailbox(address)).collect::<Result<_, _>>()?;
        outbound::install_tls();
        let parameters = || {
            let parameters = TlsParameters::new(server.host.clone());
            parameters.map_err(|error| ConfigError::new(format!("host is not a valid TLS name: {error}")))
        };
        let tls = match server.tls {
            TlsMode::None => Tls::None,
            TlsMode::Starttls => Tls::Required(parameters()?),
            TlsMode::Implicit => Tls::Wrapper(parameters()?),
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server.host)
            .port(server.port.unwrap_or(server.tls.default_port()))
            .tls(tls)
            .hello_name(ClientId::Domain(from.email.domain().to_owned()))
            .timeout(Some(COMMAND_TIMEOUT));
        if let Some((user, password)) = server.login {
            ensure_fits(server.tls != TlsMode::None, "a password needs tls = \"starttls\" or \"implicit\"")?;
            builder = builder.credentials(Credentials::new(user, password));
        }
        Ok(Self { transport: builder.build(), from, to, host: server.host })
    }

    pub(super) async fn deliver(&self, parcel: &OutgoingMessage<'_>, text: &MessageText) -> Result<(), DeliveryError> {
        let mut mail = Message::builder()
            .from(self.from.clone())
            .subject(&text.subject)
            .message_id(Some(format!("<{}@{}>", parcel.id, self.from.email.domain())))
            .header(ContentType::TEXT_PLAIN);
        match parcel.email.map(str::parse::<Address>).transpose() {
            Ok(Some(own)) => mail = mail.to(Mailbox::new(None, own)),
            Ok(None) => mail = self.to.iter().fold(mail, |mail, to| mail.to(to.clone())),
            Err(error) => {
                return Err(DeliveryError::Refused(format!("the user's e-mail address is not valid: {error}")));
            }
        }
        let mail = mail
            .body(text.body.clone())
            .map_err(|e| DeliveryError::Refused(format!("the mail could not be built: {e}")))?;
        match tokio::time::timeout(TIMEOUT, self.transport.send(mail)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(classify_error(&e)),
            Err(_) => {
                let error = format!("the mail server did not take it within {TIMEOUT:?}");
                Err(DeliveryError::Again { error, pause: None })
            }
        }
    }
}

/// Maps an SMTP error to a delivery error. It keeps only the reply's code, because the reply's text may name people.
fn classify_error(error: &lettre::transport::smtp::Error) -> DeliveryError {
    match error.status() {
        Some(code) if error.is_permanent() => DeliveryError::Refused(format!("the mail server answered {code}")),
        Some(code) => DeliveryError::Again { error: format!("the mail server answered {code}"), pause: None },
        None => DeliveryError::Again { error: error.to_string(), pause: None },
    }
}

impl fmt::Debug for EmailChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Email({})", self.host)
    }
}
