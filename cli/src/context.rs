//! What a verb is handed: settings, printer, the engine's context, and the store,
//! workspace and chain that the command line means.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::clock::{Cancel, Context, Host, Timestamp};
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::{Chain, RunId};
use backtrail_core::run::{RunStore, redact_url};
use backtrail_core::store::Store;
use backtrail_core::tasks::blocking;
use backtrail_core::workspace::root::{self, Root};

use serde_json::{Value, json};

use crate::args::Common;
use crate::env::Env;
use crate::exit::{self, Code};
use crate::output::Output;
use crate::progress::Bar;
use crate::settings::{Override, Settings};
use crate::signals::Signals;

/// Everything a verb is handed.
pub(crate) struct App {
    /// The environment.
    pub(crate) env: Env,
    /// Flags that every verb knows.
    pub(crate) common: Common,
    /// The printer.
    pub(crate) out: Output,
    /// What the engine is handed.
    pub(crate) ctx: Context,
    overrides: Vec<Override>,
    signals: Signals,
    start: std::sync::OnceLock<PathBuf>,
}

impl App {
    /// Sets all up; opens nothing yet.
    pub(crate) fn new(env: Env, common: Common, overrides: Vec<Override>) -> Self {
        let bar = Arc::new(Bar::new(env.stderr_terminal && !common.quiet));
        let out = Output::new(&env, &common, Arc::clone(&bar));
        let ctx = Context {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            host: Host { home: env.home.clone(), ..this_host() },
            cancel: Cancel::default(),
            progress: bar,
            faults: crate::faults::from_env(&env),
        };
        let signals = Signals::listen(ctx.cancel.clone(), crate::env::ignored_signals());
        Self { env, common, out, ctx, overrides, signals, start: Default::default() }
    }

    /// The settings. Fails with `bad-value`, naming the source.
    pub(crate) fn settings(&self) -> Result<Settings> {
        Settings::resolve(&self.env, &self.overrides, self.common.workspace.clone())
    }

    /// Looks for the workspace from here on, not from the current directory.
    pub(crate) fn start_at(&self, dir: PathBuf) {
        // whoever says so first knows
        let _ = self.start.set(dir);
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        self.ctx.clock.now()
    }

    /// Where history is kept when nobody says; `None` without a home directory.
    pub(crate) fn default_store(&self) -> Option<PathBuf> {
        self.env.xdg("XDG_DATA_HOME", ".local/share").map(|d| d.join("backtrail"))
    }

    /// The store that flag, environment, file or default names.
    pub(crate) fn store_url(&self, settings: &Settings) -> Result<String> {
        Ok(match &settings.store {
            Some(url) if url.contains("://") => url.clone(),
            Some(path) => crate::env::absolute(path.as_ref())?.display().to_string(),
            None => {
                let dir = self.default_store().ok_or_else(|| {
                    Error::invalid("there is no home directory for the default store")
                        .with_hint("give --store DIR or set BACKTRAIL_STORE")
                })?;
                dir.display().to_string()
            }
        })
    }

    /// Signals as a run hears them, instead of ending the command.
    pub(crate) fn interrupts(&self) -> tokio::sync::mpsc::UnboundedReceiver<String> {
        self.signals.forward()
    }

    /// How a store is opened.
    pub(crate) fn open_options(&self, settings: &Settings) -> OpenOptions {
        let plain = OpenOptions::default();
        OpenOptions {
            unsafe_no_fsync: settings.unsafe_no_fsync,
            compression: settings.compress,
            attempts: settings.store_attempts,
            budget: settings.store_budget,
            objects: settings.objects.clone(),
            tenant: settings.tenant.clone(),
            lease_ttl: settings.lease_ttl,
            mongo_wait: settings.mongo_wait,
            cache_dir: settings.cache_dir.clone(),
            state_dir: settings.state_dir.clone().unwrap_or_else(|| plain.state_dir.clone()),
            clock: Arc::clone(&self.ctx.clock),
            ids: Arc::clone(&self.ctx.ids),
            host: self.ctx.host.clone(),
            faults: Arc::clone(&self.ctx.faults),
            ..plain
        }
    }

    /// Opens the store that flag, environment, file or default names.
    pub(crate) async fn store(&self, settings: &Settings) -> Result<Arc<dyn Store>> {
        let url = self.store_url(settings)?;
        self.told(&url, open(&url, self.open_options(settings))).await
    }

    /// Waits for a store, and says so when that takes long.
    pub(crate) async fn told<T>(&self, url: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        match tokio::time::timeout(Duration::from_secs(2), &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.out.notice(format!("waiting for {}", redact_url(url)));
                work.await
            }
        }
    }

    /// Settings, store, workspace and chain of a command that writes to the workspace
    /// or records it. `any_root` admits roots that are refused otherwise.
    pub(crate) async fn place(&self, any_root: bool) -> Result<Place> {
        let settings = self.settings()?;
        let store = self.store(&settings).await?;
        let root = self.root(&settings, &store, any_root).await?;
        let chain = self.named_chain(&store, Some(&root)).await?.unwrap_or_else(|| root.chain());
        if !self.out.is_json() {
            self.out.notice(format!("workspace {}", quoted(&root.path)));
        }
        Ok(Place { settings, store, root: Some(root), chain })
    }

    async fn root(
        &self,
        settings: &Settings,
        store: &Arc<dyn Store>,
        any_root: bool,
    ) -> Result<Root> {
        let start = match &settings.workspace {
            Some(dir) => dir.clone(),
            None => {
                let from = self.start.get().cloned();
                let from = from.map_or_else(crate::env::current_dir, Ok)?;
                root::find(&**store, &from, &self.ctx.host).await?
            }
        };
        let start = crate::env::absolute(&start)?;
        let host = self.ctx.host.clone();
        blocking(move || Root::open(&start, &host, any_root)).await
    }

    /// The run that `--run` means: an id, its beginning, a name or `latest`. A record that
    /// is gone or cannot be read leaves the id as it is, since the chain may be there.
    pub(crate) async fn named_run(
        &self,
        store: &Arc<dyn Store>,
        root: Option<&Root>,
    ) -> Result<Option<RunId>> {
        let Some(id) = self.common.run()? else { return Ok(None) };
        let runs = RunStore::new(store.clone(), self.run_context());
        match runs.resolve(id.as_str(), root.map(Root::text).as_deref()).await {
            Ok(run) => Ok(Some(run.id().clone())),
            Err(e) if e.code() == "ambiguous" => Err(e),
            Err(_) => Ok(Some(id)),
        }
    }

    async fn named_chain(
        &self,
        store: &Arc<dyn Store>,
        root: Option<&Root>,
    ) -> Result<Option<Chain>> {
        match self.named_run(store, root).await? {
            Some(run) => Ok(Some(Chain::Run(run))),
            None => self.common.chain(),
        }
    }

    /// As [`App::place`], for a command that only reads history: a chain named by
    /// `--run` or `--chain` needs no workspace, and any root will do.
    pub(crate) async fn history(&self) -> Result<Place> {
        if self.common.chain()?.is_none() {
            let place = self.place(true).await?;
            self.warn_unfinished(&place).await?;
            return Ok(place);
        }
        let settings = self.settings()?;
        let store = self.store(&settings).await?;
        let latest = self.common.run.as_deref() == Some("latest");
        let here = if latest { Some(self.root(&settings, &store, true).await?) } else { None };
        let named = self.named_chain(&store, here.as_ref()).await?;
        let chain = named.ok_or_else(|| Error::failed("internal", "a chain was named"))?;
        Ok(Place { settings, store, root: None, chain })
    }

    /// For a command about the whole store: where nothing can be taken for a workspace,
    /// there is none.
    pub(crate) async fn anywhere(&self) -> Result<Somewhere> {
        let named = self.common.workspace.is_some();
        match self.place(true).await {
            Ok(place) => {
                self.warn_unfinished(&place).await?;
                let Place { settings, store, root, .. } = place;
                Ok(Somewhere { settings, store, root })
            }
            Err(e) if !named && matches!(e.code(), "unsafe-root" | "not-found" | "io") => {
                let settings = self.settings()?;
                let store = self.store(&settings).await?;
                Ok(Somewhere { settings, store, root: None })
            }
            Err(e) => Err(e),
        }
    }

    /// Ends once a signal asked to stop.
    pub(crate) async fn cancelled(&self) {
        while !self.ctx.cancel.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The error of a command that a signal stopped.
    pub(crate) fn interrupted(&self) -> Error {
        let stopped = self.ctx.cancel.check().err();
        stopped.unwrap_or_else(|| Error::new(Kind::Interrupted, "interrupted", "interrupted"))
    }

    /// Prints an error, flushes, and says which code to end with.
    pub(crate) fn finish(&self, result: Result<Code>) -> Code {
        let code = match result {
            Ok(code) => code,
            Err(e) => {
                let code = self.code_of(&e);
                self.out.error(&e, code);
                code
            }
        };
        self.out.finish(code)
    }

    /// A failure after a signal is that signal's, whatever layer gave up first; what
    /// was complete before the signal was heard stays complete.
    pub(crate) fn code_of(&self, e: &Error) -> Code {
        match self.signals.first() {
            Some(n) if e.kind() != Kind::Invalid => exit::signalled(n),
            _ => exit::of(e),
        }
    }
}

/// A store, and the workspace if there is one.
pub(crate) struct Somewhere {
    /// The settings.
    pub(crate) settings: Settings,
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// The workspace.
    pub(crate) root: Option<Root>,
}

/// What a command works on.
pub(crate) struct Place {
    /// The settings.
    pub(crate) settings: Settings,
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// The workspace; `None` when the command named a chain instead.
    pub(crate) root: Option<Root>,
    /// The chain meant.
    pub(crate) chain: Chain,
}

impl Place {
    /// The workspace as JSON results show it.
    pub(crate) fn workspace(&self) -> Value {
        match &self.root {
            Some(root) => json!({ "root": root.text(), "key": root.key }),
            None => Value::Null,
        }
    }

    /// The workspace. Fails for a command that was given a chain alone.
    pub(crate) fn root(&self) -> Result<&Root> {
        self.root.as_ref().ok_or_else(|| Error::invalid("this needs a workspace"))
    }
}

/// A host path for a message.
pub(crate) fn quoted(path: &Path) -> String {
    backtrail_core::path::quoted(path.as_os_str().as_encoded_bytes())
}
