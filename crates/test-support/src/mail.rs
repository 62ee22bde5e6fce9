//! A mail server that keeps its mails and can refuse them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use settings::{ChannelConfig, EmailConfig, TlsMode};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// A mail as the client sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct Mail {
    pub from: String,
    pub to: Vec<String>,
    /// Headers and body, as sent.
    pub text: String,
}

impl Mail {
    pub fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        let line = self.text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.text))
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// Next answers to the end of DATA.
    refusals: VecDeque<&'static str>,
    /// All mails that were sent, including refused ones.
    mails: Vec<Mail>,
}

#[derive(Debug)]
pub struct MailServer {
    port: u16,
    inner: Arc<Mutex<Inner>>,
    server: tokio::task::JoinHandle<()>,
}

impl MailServer {
    pub async fn start() -> Self {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = inner.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(stream, shared.clone()));
            }
        });
        Self { port, inner, server }
    }

    pub fn channel(&self) -> ChannelConfig {
        ChannelConfig::Email(EmailConfig {
            from: "dispatchq <dispatchq@example.com>".to_owned(),
            to: vec!["desk@example.com".to_owned(), "Anna <anna@example.com>".to_owned()],
            host: "127.0.0.1".to_owned(),
            port: Some(self.port),
            tls: TlsMode::None,
            ..EmailConfig::default()
        })
    }

    /// Refuses the next `times` mails with this answer, for example `451 try later`.
    pub fn refuse(&self, answer: &'static str, times: usize) {
        self.inner.lock().unwrap().refusals.extend(std::iter::repeat_n(answer, times));
    }

    pub fn mails(&self) -> Vec<Mail> {
        self.inner.lock().unwrap().mails.clone()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Serves one connection. Implements only the parts of RFC 5321 that a client without extensions needs.
async fn talk(stream: TcpStream, inner: Arc<Mutex<Inner>>) -> Option<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut mail = Mail { from: String::new(), to: Vec::new(), text: String::new() };
    write.write_all(b"220 test ready\r\n").await.ok()?;
    while let Some(line) = lines.next_line().await.ok()? {
        let verb = line.split_whitespace().next().unwrap_or_default().to_uppercase();
        let address = || line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        let answer = match verb.as_str() {
            "EHLO" | "HELO" => "250 test",
            "MAIL" => {
                mail = Mail { from: address(), to: Vec::new(), text: String::new() };
                "250 ok"
            }
            "RCPT" => {
                mail.to.push(address());
                "250 ok"
            }
            "DATA" => {
                write.write_all(b"354 go ahead\r\n").await.ok()?;
                while let Some(line) = lines.next_line().await.ok()?.filter(|line| line != ".") {
                    mail.text += line.strip_prefix('.').unwrap_or(&line);
                    mail.text.push('\n');
                }
                let mut inner = inner.lock().unwrap();
                inner.mails.push(mail.clone());
                inner.refusals.pop_front().unwrap_or("250 queued")
            }
            "QUIT" => {
                write.write_all(b"221 bye\r\n").await.ok()?;
                return None;
            }
            _ => "250 ok",
        };
        write.write_all(format!("{answer}\r\n").as_bytes()).await.ok()?;
    }
    None
}
