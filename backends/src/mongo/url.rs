//! `mongodb://…/[database]` with the driver's options.

use std::fmt;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::redact::Redactor;
use backtrail_core::run::redact_url;
use mongodb::options::{
    ClientOptions, ConnectionString, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};

use super::fault;
use crate::redact::secrets_of;

/// The database when the URL names none.
const DATABASE: &str = "backtrail";
const CONNECT: Duration = Duration::from_secs(5);
const SELECT: Duration = Duration::from_secs(10);

/// Where a store lies in MongoDB. Its secrets are shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoOptions {
    url: String,
    /// The database.
    pub database: String,
}

impl fmt::Debug for MongoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MongoOptions({})", self.url())
    }
}

impl MongoOptions {
    /// For messages: without user and password.
    pub fn url(&self) -> String {
        redact_url(&self.url)
    }

    /// What must not be in a message.
    pub(super) fn secrets(&self) -> Result<Redactor> {
        secrets_of(&self.url)
    }

    /// The driver's options. Repeating is done by one layer, and it is not the driver;
    /// what is written has reached a majority and its journal.
    pub(super) async fn client(&self) -> Result<ClientOptions> {
        let secrets = self.secrets()?;
        let failed = |e| fault::error(&format!("open {}", self.url()), &e, &secrets);
        let mut options = ClientOptions::parse(&self.url).await.map_err(failed)?;
        let mut concern = WriteConcern::majority();
        concern.journal = Some(true);
        concern.w_timeout = Some(Duration::from_secs(30));
        options.write_concern = Some(concern);
        options.read_concern = Some(ReadConcern::majority());
        options.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.retry_writes = Some(false);
        options.retry_reads = Some(false);
        options.app_name.get_or_insert_with(|| String::from("backtrail"));
        options.connect_timeout.get_or_insert(CONNECT);
        options.server_selection_timeout.get_or_insert(SELECT);
        Ok(options)
    }
}

/// Reads a `mongodb://` URL; an option that the driver does not know is refused by name.
///
/// ```
/// use backtrail_backends::mongo::url::parse;
/// let options = parse("mongodb://ann:secret@host/").unwrap();
/// assert_eq!(options.database, "backtrail");
/// assert_eq!(options.url(), "mongodb://***@host/");
/// let e = parse("mongodb://host/?retries=3").unwrap_err();
/// assert!(e.message().contains("retries"), "{e}");
/// ```
pub fn parse(url: &str) -> Result<MongoOptions> {
    if url.starts_with("mongodb+srv://") {
        let why = "mongodb+srv:// needs DNS lookups, which this build leaves out";
        return Err(Error::invalid(why)
            .with_hint("name the hosts: mongodb://host1,host2,host3/db?replicaSet=NAME&tls=true"));
    }
    let secrets = secrets_of(url)?;
    let parsed = ConnectionString::parse(url).map_err(|e| {
        let text = e.to_string();
        let text = secrets.text(text.lines().next().unwrap_or_default()).into_owned();
        Error::invalid(format!("store {}: {text}", redact_url(url)))
    })?;
    let database = parsed.default_database.unwrap_or_else(|| String::from(DATABASE));
    if database.is_empty() || database.contains(['\\', '/', '"', '$', '.', ' ', '\0']) {
        return Err(Error::invalid(format!("database {database:?} is not valid")));
    }
    Ok(MongoOptions { url: url.to_owned(), database })
}
