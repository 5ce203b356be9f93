//! A wire before a real server that can be cut, held, or lose one answer. It knows
//! nothing of what goes through it; it runs on a thread of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Default)]
struct State {
    /// The answer to the next request that holds these bytes is lost.
    lose: Mutex<Option<Vec<u8>>>,
    /// Connections are refused.
    held: AtomicBool,
    lost: AtomicBool,
}

/// A running wire; it ends with the process.
pub struct Wire {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    cuts: watch::Sender<u64>,
}

impl Wire {
    /// Starts a wire to `server`.
    pub fn start(server: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("sets");
        let state = Arc::<State>::default();
        let cuts = watch::Sender::new(0);
        let (inner, cut) = (state.clone(), cuts.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("listens");
                while let Ok((client, _)) = listener.accept().await {
                    if !inner.held.load(Ordering::SeqCst) {
                        tokio::spawn(join(client, server, inner.clone(), cut.subscribe()));
                    }
                }
            });
        });
        Self { address, state, cuts }
    }

    /// Loses the answer to the next request that holds `needle`, and its connection.
    pub fn lose(&self, needle: impl Into<Vec<u8>>) {
        self.state.lost.store(false, Ordering::SeqCst);
        *self.state.lose.lock().expect("not poisoned") = Some(needle.into());
    }

    /// Whether an answer was lost since [`Wire::lose`].
    pub fn has_lost(&self) -> bool {
        self.state.lost.load(Ordering::SeqCst)
    }

    /// Ends every connection there is.
    pub fn cut(&self) {
        self.cuts.send_modify(|n| *n += 1);
    }

    /// Ends every connection and refuses new ones, or takes them again.
    pub fn hold(&self, held: bool) {
        self.state.held.store(held, Ordering::SeqCst);
        if held {
            self.cut();
        }
    }
}

/// Carries bytes both ways until one side ends, or the wire is cut.
async fn join(
    mut client: TcpStream,
    server: SocketAddr,
    state: Arc<State>,
    mut cut: watch::Receiver<u64>,
) {
    let Ok(mut upstream) = TcpStream::connect(server).await else { return };
    let (mut there, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut losing = false;
    loop {
        tokio::select! {
            _ = cut.changed() => return,
            read = client.read(&mut there) => {
                let Ok(n @ 1..) = read else { return };
                losing |= wanted(&state, &there[..n]);
                if upstream.write_all(&there[..n]).await.is_err() {
                    return;
                }
            }
            read = upstream.read(&mut back) => {
                let Ok(n @ 1..) = read else { return };
                if losing {
                    state.lost.store(true, Ordering::SeqCst);
                    // What the server did is done; who asked is not told.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    return;
                }
                if client.write_all(&back[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn wanted(state: &State, bytes: &[u8]) -> bool {
    let mut lose = state.lose.lock().expect("not poisoned");
    let found =
        lose.as_ref().is_some_and(|needle| bytes.windows(needle.len()).any(|w| w == needle));
    if found {
        *lose = None;
    }
    found
}
