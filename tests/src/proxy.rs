//! A proxy before a real HTTP server that can lose, hold up, replace or forge answers. It
//! runs on a thread of its own and speaks one request a connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `PUT`, …
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// By lower-case name.
    pub headers: HashMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
    raw: Vec<u8>,
}

impl Request {
    /// True for a conditional write.
    pub fn is_conditional(&self) -> bool {
        self.headers.contains_key("if-match") || self.headers.contains_key("if-none-match")
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// 200, …
    pub status: u16,
    /// Headers beside the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer without headers of its own.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// What becomes of a request.
pub enum Act {
    /// Forwarded, and its answer too.
    Pass,
    /// Forwarded; its answer is lost with the connection.
    Lose,
    /// Held up before anything is forwarded.
    Stall(Duration),
    /// Forwarded at so many bytes a second.
    Slow(u64),
    /// Answered here; nothing is forwarded.
    Answer(Answer),
    /// Forwarded; this answer is given in place of the server's when that has the status.
    Instead(u16, Answer),
}

type Plan = Arc<dyn Fn(&Request) -> Act + Send + Sync>;

/// A running proxy; it ends with the process.
pub struct Proxy {
    /// Its URL.
    pub url: String,
}

impl Proxy {
    /// Starts a proxy before `server` (`http://host:port`).
    pub fn start(server: &str, plan: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Self {
        let server: SocketAddr =
            server.trim_start_matches("http://").parse().expect("an address with a port");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        listener.set_nonblocking(true).expect("sets");
        let plan: Plan = Arc::new(plan);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("listens");
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(serve(client, server, plan.clone()));
                }
            });
        });
        Self { url }
    }
}

async fn serve(mut client: TcpStream, server: SocketAddr, plan: Plan) {
    let Some(request) = read(&mut client).await else { return };
    let act = plan(&request);
    match act {
        Act::Answer(answer) => reply(&mut client, &answer).await,
        Act::Stall(time) => {
            tokio::time::sleep(time).await;
            pass(&mut client, server, &request, u64::MAX).await;
        }
        Act::Pass => pass(&mut client, server, &request, u64::MAX).await,
        Act::Slow(rate) => pass(&mut client, server, &request, rate).await,
        Act::Lose => {
            forward(server, &request, u64::MAX).await;
        }
        Act::Instead(status, answer) => {
            let given = forward(server, &request, u64::MAX).await;
            let found = given.get(9..12).and_then(|s| std::str::from_utf8(s).ok()?.parse().ok());
            match found == Some(status) {
                true => reply(&mut client, &answer).await,
                false => drop(client.write_all(&given).await),
            }
        }
    }
}

async fn read(client: &mut TcpStream) -> Option<Request> {
    let mut raw = Vec::new();
    let head = loop {
        if let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
        if client.read_buf(&mut raw).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&raw[..head]).into_owned();
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    let headers: HashMap<String, String> = lines.filter_map(header).collect();
    let len: usize = headers.get("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    while raw.len() < head + len {
        if client.read_buf(&mut raw).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request { method, target, headers, body: raw[head..].to_vec(), raw })
}

/// Sends a request on and gives what came back, all of it.
async fn forward(server: SocketAddr, request: &Request, rate: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let Ok(mut upstream) = TcpStream::connect(server).await else { return out };
    // One request a connection: its end is the end of the answer.
    let end = request.raw.windows(2).position(|w| w == b"\r\n").unwrap_or(0) + 2;
    let mut raw = request.raw[..end].to_vec();
    raw.extend_from_slice(b"Connection: close\r\n");
    raw.extend_from_slice(&request.raw[end..]);
    for part in raw.chunks(16 * 1024) {
        if upstream.write_all(part).await.is_err() {
            return out;
        }
        if rate < u64::MAX {
            tokio::time::sleep(Duration::from_millis(part.len() as u64 * 1000 / rate)).await;
        }
    }
    let _ = upstream.read_to_end(&mut out).await;
    out
}

async fn pass(client: &mut TcpStream, server: SocketAddr, request: &Request, rate: u64) {
    let given = forward(server, request, rate).await;
    let _ = client.write_all(&given).await;
    let _ = client.shutdown().await;
}

async fn reply(client: &mut TcpStream, answer: &Answer) {
    let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\nconnection: close\r\n\r\n", answer.body.len());
    let _ = client.write_all(head.as_bytes()).await;
    let _ = client.write_all(&answer.body).await;
    let _ = client.shutdown().await;
}
