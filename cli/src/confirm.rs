//! Asking a person, or refusing at once where there is none.

use std::io::BufRead as _;

use backtrail_core::error::{Error, Kind, Result};

use crate::context::App;

/// Asks `question`, whose text is the effect of "yes". Without a terminal: `refused`
/// at once, naming `flag` as the way to agree beforehand.
pub(crate) async fn agree(app: &App, question: &str, flag: &str) -> Result<()> {
    let answer = ask(app, question, "[y/N]", flag).await?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(declined()),
    }
}

/// Asks for `word` to be typed before something larger than usual is done.
pub(crate) async fn typed(app: &App, question: &str, word: &str, flag: &str) -> Result<()> {
    let answer = ask(app, question, &format!("Type {word} to go on:"), flag).await?;
    if answer.trim() == word { Ok(()) } else { Err(declined()) }
}

fn declined() -> Error {
    Error::refused("declined", "declined; nothing was changed")
}

async fn ask(app: &App, question: &str, how: &str, flag: &str) -> Result<String> {
    if !app.env.stdin_terminal || !app.env.stderr_terminal {
        return Err(Error::refused(
            "confirmation-needed",
            format!("nobody is at a terminal to be asked: {question}"),
        )
        .with_hint(format!("nothing was changed; to agree beforehand, add {flag}")));
    }
    app.out.prompt(&format!("{question} {how}"));
    // Not a blocking task of the runtime: one that waits for a line could not be left
    // behind when a signal comes.
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        // The asker may be gone already.
        let _ = send.send(read.map(|_| line));
    });
    let line = tokio::select! {
        line = receive => line,
        () = app.cancelled() => {
            app.out.notice("");
            return Err(app.interrupted());
        }
    };
    match line {
        Ok(Ok(line)) => Ok(line),
        Ok(Err(e)) => {
            Err(Error::new(Kind::Failed, "io", "the answer could not be read").with_source(e))
        }
        Err(_) => Err(declined()),
    }
}
