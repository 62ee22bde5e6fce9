//! A way to a server on which everything can get stuck, as in a network that swallows packets.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// Connections end with the test.
pub(crate) struct Proxy {
    port: u16,
    flows: watch::Sender<bool>,
}

impl Proxy {
    /// To this port.
    pub(crate) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (flows, watch) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(carry(from_client, to_server, watch.clone()));
                tokio::spawn(carry(from_server, to_client, watch.clone()));
            }
        });
        Self { port, flows }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Nothing passes any more; connections stay, and new ones are accepted.
    pub(crate) fn freeze(&self) {
        self.flows.send_replace(false);
    }

    /// What got stuck passes.
    pub(crate) fn thaw(&self) {
        self.flows.send_replace(true);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut flows: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if flows.wait_for(|flows| *flows).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
