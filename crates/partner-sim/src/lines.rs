//! Connections that can be refused and cut.

use std::{
    convert::Infallible,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// A listener that can refuse connections. While it refuses, it does not listen, and open connections are cut.
#[derive(Debug)]
pub struct CuttableListener {
    address: SocketAddr,
    listener: Option<TcpListener>,
    /// Socket that is bound but does not listen, so that no other process gets the port while connections are refused.
    /// `None` on systems where a port cannot be bound twice.
    _reserved: Option<TcpSocket>,
    refuse: watch::Receiver<bool>,
    stop: CancellationToken,
    /// Cancelled to cut all connections.
    up: CancellationToken,
}

impl CuttableListener {
    pub fn bind_address(
        address: SocketAddr,
        refuse: watch::Receiver<bool>,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let socket = bind_socket(address)?;
        let address = socket.local_addr()?;
        let reserved = bind_socket(address).ok();
        let listener = socket.listen(BACKLOG)?;
        let up = stop.child_token();
        Ok(Self { address, listener: Some(listener), _reserved: reserved, refuse, stop, up })
    }

    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Listener for CuttableListener {
    type Io = CuttableConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CuttableConnection, SocketAddr) {
        loop {
            if *self.refuse.borrow_and_update() {
                self.listener = None;
                self.up.cancel();
                self.up = self.stop.child_token();
                if self.refuse.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            }
            let listener = match &self.listener {
                Some(listener) => listener,
                None => match bind_socket(self.address).and_then(|socket| socket.listen(BACKLOG)) {
                    Ok(listener) => self.listener.insert(listener),
                    Err(error) => {
                        tracing::warn!(%error, "Cannot listen again; retrying.");
                        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                        continue;
                    }
                },
            };
            let accepted = tokio::select! {
                Ok(()) = self.refuse.changed() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // The answers are small, and the caller waits for each.
                    let _ = stream.set_nodelay(true);
                    return (CuttableConnection::new(stream, self.up.child_token()), peer);
                }
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection.");
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A connection that fails when it is cut.
pub struct CuttableConnection {
    stream: TcpStream,
    cut: CancellationToken,
    cutting: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl CuttableConnection {
    fn new(stream: TcpStream, cut: CancellationToken) -> Self {
        let cutting = Box::pin(cut.clone().cancelled_owned());
        Self { stream, cut, cutting }
    }

    /// Returns an error if the connection is cut. The server reads while a handler runs, to detect a closed connection,
    /// so it notices a cut immediately.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.cutting.as_mut().poll(cx).map(|()| {
            // Zero linger makes the other side see a reset, not a regular close.
            let _ = self.stream.set_zero_linger();
            io::ErrorKind::ConnectionAborted.into()
        })
    }
}

impl fmt::Debug for CuttableConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl AsyncRead for CuttableConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Connection of a request, for its handler.
#[derive(Debug, Clone)]
pub struct ConnectedCaller {
    pub address: SocketAddr,
    line: CancellationToken,
}

impl ConnectedCaller {
    /// Cuts the connection. The returned future never completes.
    pub async fn cut_connection(&self) -> Infallible {
        self.line.cancel();
        std::future::pending().await
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for ConnectedCaller {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        Self { address: *stream.remote_addr(), line: stream.io().cut.clone() }
    }
}
