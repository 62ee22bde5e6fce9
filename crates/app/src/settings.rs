//! Loads the configuration for all commands.

use std::path::Path;

use accounts::oidc::OidcProvider;
use bindings::{otp_seal::OtpSealer, provider_client::ProviderRegistry};
use foundation::{config::error::ConfigError, traces};
use notify::channels::{self, push::vapid::VapidKey};
use orders::payments::PaymentService;
use partner::client::PartnerRegistry;
pub use settings::Config;

/// Loads the configuration and builds its channels, partners and other services once. An invalid one is thus reported
/// at startup and not at the first message or booking.
///
/// `file` must exist. Without it, `./config.toml` is read if it exists.
pub fn load_config(file: Option<&Path>) -> Result<Config, ConfigError> {
    let mut read = Config::load(file)?;
    let services = check_services(&read.config).err();
    read.add_problems(services);
    read.finish()
}

fn check_services(config: &Config) -> Result<(), ConfigError> {
    let partners = PartnerRegistry::new(&config.partners).map(drop);
    let payments = PaymentService::from_config(&config.payments).map(drop);
    let channels = channels::build_channels(config).map(drop);
    let push = VapidKey::from_config(&config.push).map(drop);
    let providers = ProviderRegistry::new(&config.providers).map(drop);
    let otp_keys = OtpSealer::new(&config.bindings).map(drop);
    let oidc = OidcProvider::from_config(&config.console).map(drop);
    let traces = traces::check_traces(&config.traces);
    let problems = [partners, payments, channels, push, providers, otp_keys, oidc, traces]
        .into_iter()
        .filter_map(Result::err)
        .flat_map(ConfigError::into_problems);
    ConfigError::refuse_problems(problems.collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use settings::StaffRole;

    fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let mut read = Config::read_sources(Some(file.path()), variables)?;
        let services = check_services(&read.config).err();
        read.add_problems(services);
        read.finish()
    }

    fn with_file(text: &str) -> Result<Config, ConfigError> {
        load(text, &[])
    }

    fn error(text: &str) -> String {
        with_file(text).unwrap_err().to_string()
    }

    const CHANNELS: &str = "
        [channels.app]
        type = \"webhook\"
        url = \"https://h/T0/SECRET\"
        secret = \"whsec_c2VjcmV0SECRETc2VjcmV0SECRETc2Vj\"
        [channels.slack]
        type = \"slack\"
        url = \"https://hooks.example.com/services/SECRET\"
        [channels.mail]
        type = \"email\"
        from = \"dispatchq@example.com\"
        to = [\"desk@example.com\"]
        host = \"mail.example.com\"
        username = \"dispatchq\"
        password = \"SECRET\"
        [channels.desk]
        type = \"ticket\"
        url = \"https://desk.example.com/SECRET\"
        token = \"SECRET\"
        [channels.lines]
        type = \"log\"
        [notifications]
        support = [\"slack\", \"mail\", \"desk\", \"lines\"]
        producer = [\"app\"]";

    #[test]
    fn partner_secrets_may_come_from_environment() {
        assert!(error("[service_types.TAXI]\npartner = \"bbd\"").contains("[partners.bbd]"));
        assert!(error("[partners.bbd]\nurl = \"ftp://p\"").contains("http"));
        assert!(error("[partners.bbd]\nurl = \"http://p\"\ncallback_secret = \"whsec_?\"").contains("base64"));
        let variables = [("DISPATCHQ_PARTNERS__BBD__API_KEY", "hunter2")];
        let config = load("[partners.bbd]\nurl = \"http://p\"", &variables).unwrap();
        assert_eq!(config.partners["bbd"].api_key, "hunter2");
        assert!(!serde_json::to_string(&config.without_secrets()).unwrap().contains("hunter2"));
    }

    #[test]
    fn remote_payment_service_requires_https() {
        let of = |url: &str| format!("[payments]\nurl = \"{url}\"");
        for url in [
            "http://pay.example.com/api",
            "http://10.0.0.7:8080",
            "http://localhost.example.com",
            "http://[2001:db8::1]",
        ] {
            let told = error(&of(url));
            assert!(told.contains("payments: url must be https"), "{url}: {told}");
        }
        for url in
            ["https://pay.example.com/api", "http://127.0.0.1:8080/api", "http://localhost:8080", "http://[::1]:8080"]
        {
            assert_eq!(with_file(&of(url)).unwrap().payments.url, url);
        }
    }

    const OIDC: &str = "
        [console.oidc]
        issuer = \"https://login.example.com\"
        client_id = \"dispatchq\"
        client_secret = \"hunter2\"
        role_claim = \"groups\"
        roles = { \"Desk/Jakarta\" = \"dispatcher\" }";

    #[test]
    fn oidc_settings_are_checked_without_showing_secrets() {
        let config = with_file(OIDC).unwrap();
        let oidc = config.console.oidc.as_ref().unwrap();
        assert_eq!((oidc.scopes.join(" "), oidc.name_claim.as_str()), ("openid email".to_owned(), "email"));
        assert_eq!(oidc.roles["Desk/Jakarta"], StaffRole::Dispatcher, "values keep their capitals");
        assert!(!serde_json::to_string(&config.without_secrets()).unwrap().contains("hunter2"));
        let provider = OidcProvider::from_config(&config.console).unwrap().unwrap();
        assert_eq!(
            (format!("{provider:?}").as_str(), provider.host()),
            ("OidcProvider(login.example.com)", "login.example.com")
        );
        let secret = "client_secret = \"hunter2\"";
        for (line, wrong, said) in [
            ("https://login.example.com", "http://login.example.com", "console.oidc: issuer must be https"),
            ("https://login.example.com", "login.example.com", "console.oidc: issuer is not valid"),
            ("https://login.example.com", "https://login.example.com/?realm=x", "neither a query nor a fragment"),
            ("client_id = \"dispatchq\"", "client_id = \"\"", "console.oidc: client_id is empty"),
            (secret, "", "console.oidc: client_secret is missing"),
            (secret, "client_secret_env = \"NO_SUCH_VARIABLE\"", "NO_SUCH_VARIABLE is not in the environment"),
            (secret, "client_secret = \"x\"\nscopes = [\"email\"]", "scopes must contain \"openid\""),
            ("role_claim = \"groups\"", "role_claim = \"\"", "must not be empty"),
            ("{ \"Desk/Jakarta\" = \"dispatcher\" }", "{}", "give a value of the claim 'groups' its role"),
            ("\"dispatcher\"", "\"driver\"", "driver"),
            ("role_claim", "rolle_claim", "rolle_claim"),
        ] {
            assert!(OIDC.contains(line), "{line}");
            let told = error(&OIDC.replace(line, wrong));
            assert!(told.contains(said) && !told.contains("hunter2"), "{wrong}: {told}");
        }
        with_file(&OIDC.replace("https://login.example.com", "http://127.0.0.1:3000")).unwrap();
    }

    #[test]
    fn shown_config_contains_no_secrets() {
        let config = with_file(&format!("[database]\nurl = \"postgres://u:hunter2@h/db\"\n{CHANNELS}")).unwrap();
        let shown = config.without_secrets();
        for text in [
            serde_json::to_string(&shown).unwrap(),
            toml::to_string(&shown).unwrap(),
            format!("{:?}", config.channels),
            format!("{:?}", channels::build_channels(&config).unwrap()),
        ] {
            assert!(!text.contains("hunter2") && !text.contains("SECRET"), "{text}");
        }
    }

    #[test]
    fn secret_may_be_in_environment_or_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "s3cret\n").unwrap();
        let ticket = |how: &str| format!("[channels.x]\ntype = \"ticket\"\nurl = \"http://h\"\n{how}");
        with_file(&ticket(&format!("token_file = {file:?}"))).unwrap();
        // Every environment has PATH.
        with_file(&ticket("token_env = \"PATH\"")).unwrap();
        let missing = error(&ticket("token_env = \"NOT_SET_ANYWHERE\""));
        assert!(missing.contains("channels.x") && missing.contains("NOT_SET_ANYWHERE"), "{missing}");
        assert!(error(&ticket("token_file = \"/no/such/file\"")).contains("/no/such/file"));
        assert!(error(&ticket("token = \"a\"\ntoken_env = \"PATH\"")).contains("only one of"));
    }

    #[test]
    fn invalid_channel_is_refused_with_its_place() {
        let of = |text: &str| error(&format!("[channels.x]\n{text}"));
        for (text, said) in [
            ("type = \"pager\"", "pager"),
            ("type = \"webhook\"", "url is missing"),
            ("type = \"webhook\"\nurl = \"ftp://h\"", "http or https"),
            ("type = \"webhook\"\nurl = \"http://h\"\nsecrets = \"x\"", "secrets"),
            ("type = \"webhook\"\nurl = \"http://h\"\nsecret = \"short\"", "24 bytes"),
            ("type = \"webhook\"\nurl = \"http://h\"\nsecret = \"!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\"", "base64"),
            (
                "type = \"email\"\nhost = \"h\"\nfrom = \"no address\"\nto = [\"a@b.c\"]",
                "'no address' is no e-mail address",
            ),
            ("type = \"email\"\nhost = \"h\"\nfrom = \"a@b.c\"\nto = []", "to names no one"),
            ("type = \"email\"\nhost = \"h\"\nfrom = \"a@b.c\"\nto = [\"a@b.c\"]\nusername = \"u\"", "go together"),
            (
                "type = \"email\"\nhost = \"h\"\nfrom = \"a@b.c\"\nto = [\"a@b.c\"]\ntls = \"none\"\nusername = \"u\"\npassword = \"p\"",
                "starttls",
            ),
            (
                "type = \"voice\"\naccount = \"AC1\"\ntoken = \"0123456789abcdef0123456789abcdef\"\nfrom = \"+15550100000\"\ncallback_url = \"https://h\"\nlanguage = \"fr-FR\"",
                "language 'fr-FR' is not supported; use one of id, en, vi",
            ),
        ] {
            let error = of(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(error("[channels.\"a b\"]\ntype = \"log\"").contains("letters, digits"));
        assert!(error("[notifications]\nproducer = [\"app\"]").contains("notifications.producer"));
        assert!(error("[notifications.escalate]\nafter = \"0s\"").contains("notifications.escalate"));
    }

    #[test]
    fn all_wrong_channels_and_partners_are_reported() {
        let told = error(
            "[channels.a]\ntype = \"slack\"\n[channels.b]\ntype = \"ticket\"\nurl = \"ftp://h\"\n\
             [partners.c]\nurl = \"here\"",
        );
        let problems: Vec<_> = told.lines().collect();
        assert_eq!(
            problems,
            [
                "3 settings cannot be used:",
                "  partners.c: url is not valid: relative URL without a base",
                "  channels.a: url is missing",
                "  channels.b: url must be http or https",
            ]
        );
    }
}
