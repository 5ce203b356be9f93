//! Asking a running attempt to end: once kindly, a second time without the grace.

use tokio::sync::watch;

/// How urgently, and why.
#[derive(Clone, Debug, Default)]
struct Asked {
    times: u8,
    why: String,
}

/// The end that asks.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Asked>);

/// The end that listens. Clones hear the same.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Asked>);

/// Makes the two ends. Dropping the asking end is no request.
pub fn stop_pair() -> (Stopper, Stop) {
    let (send, receive) = watch::channel(Asked::default());
    (Stopper(send), Stop(receive))
}

impl Stopper {
    /// Asks: the first time begins the stop sequence, the second skips what is left of
    /// its grace. The first reason stays.
    pub fn stop(&self, why: &str) {
        self.0.send_modify(|asked| {
            asked.times = asked.times.saturating_add(1);
            if asked.times == 1 {
                why.clone_into(&mut asked.why);
            }
        });
    }

    /// Asks for an end without any grace.
    pub fn stop_now(&self, why: &str) {
        self.stop(why);
        self.stop(why);
    }
}

impl Stop {
    /// One that nobody ever asks.
    pub fn never() -> Self {
        stop_pair().1
    }

    /// The reason, once asked.
    pub fn asked(&self) -> Option<String> {
        let asked = self.0.borrow();
        (asked.times > 0).then(|| asked.why.clone())
    }

    /// Comes back with the reason when somebody has asked.
    pub async fn wait(&mut self) -> String {
        self.wait_for(1).await
    }

    /// Comes back when somebody has asked twice.
    pub async fn wait_urgent(&mut self) {
        self.wait_for(2).await;
    }

    async fn wait_for(&mut self, times: u8) -> String {
        let asked = self.0.wait_for(|asked| asked.times >= times).await;
        match asked.ok().map(|asked| asked.why.clone()) {
            Some(why) => why,
            None => std::future::pending().await, // nobody is left who could ask
        }
    }
}
