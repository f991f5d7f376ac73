//! A limit set that is kept on a server, with the history of its changes.

mod change;
mod follow;
mod run;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use redis::{FromRedisValue, Pipeline, Value, from_redis_value};
use tidegate_core::{Error, ErrorKind, LimitSet, LimitSetError, Timestamp};

pub use change::LimitChange;
pub use follow::LimitsEvent;
pub use run::Run;

use crate::protocol::Keys;

/// The field that contains the version. No limit has such a key, because a name cannot have `%`.
const VERSION: &str = "%version";

/// Changes limits, if the version is the expected one. Returns the version before the change.
///
/// ARGV: the field of the version, the expected version, the new version, the entry of the history,
/// the index of its oldest entry that stays, and the key and the line of each limit. An empty line
/// removes the limit.
const CHANGE: &str = "\
local version = redis.call('HGET', KEYS[1], ARGV[1]) or '0 0'
if version ~= ARGV[2] then return version end
for i = 6, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('RPUSH', KEYS[2], ARGV[4])
redis.call('LTRIM', KEYS[2], ARGV[5], -1)
return version";

/// The [limit set](LimitSet) that all processes of one store share, and the history of its changes.
/// It is kept on the server of the store, under the prefix of the store.
///
/// ```no_run
/// use std::sync::Arc;
/// use tidegate_redis::{CurrentLimits, LimitSet, Limiter, RedisStore, Store, StoreExt};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::new("redis://127.0.0.1")?;
/// let book = store.limit_book();
/// let limits = CurrentLimits::default();
/// let limiter = Limiter::new(
///     store.clone().adjusted(limits.clone()),
///     ["plan: fixed-window 100/1m".parse()?], // the default, also while the server is away
/// )?;
/// tokio::spawn({
///     let (book, store) = (book.clone(), Arc::new(store));
///     async move { book.follow(limits, store, |event| println!("{event}")).await }
/// });
///
/// // In the program of an administrator:
/// let line = "plan: fixed-window 200/1m until 2026-12-04T18:00:00Z for subject alice";
/// let kept = book.read_limits(&[LimitSet::key_of(line)?]).await?; // or `read`, for all limits
/// let mut set = kept.set.clone();
/// set.set_line(line)?;
/// let version = book.change(&kept, &set, "carol", "double until Friday").await?;
/// # Ok(())
/// # }
/// ```
///
/// # Versions
///
/// Each change creates a version, which replaces the version that its author has read. If another
/// author was faster, the change fails with [`LimitBookError::Conflict`]. A version changes at most
/// [1,000 lines](Self::MAX_LINES), so that the server is not occupied for long. A larger change is
/// made in several versions.
///
/// [`follow`](Self::follow) reads the version every half second, and then only the changes since
/// the last version. So all processes have the new version after about half a second.
///
/// # Many overrides
///
/// A process that follows the set has at most [100,000 overrides](Self::MAX_LOADED) of each policy
/// in memory, and a hash of each other override (about 20 bytes). The first call of a process that
/// needs another override reads it with one command before the decision. The override then stays
/// in memory, and others leave it.
///
/// # Keys
///
/// The hash `prefix:%limits:{limits}` contains the version and one field for each limit. The list
/// `prefix:%limit-changes:{limits}` contains the [last changes](Self::MAX_HISTORY). Both never
/// expire. The user needs the commands HGET, HMGET, HSCAN, HSET, HDEL, LRANGE, RPUSH, LTRIM, TIME
/// and EVAL for these keys. A program that only follows the set needs HGET, HMGET, HSCAN, LRANGE
/// and TIME.
#[derive(Clone)]
pub struct LimitBook {
    server: Arc<dyn Run>,
    limits: Vec<u8>,
    changes: Vec<u8>,
    /// The maximum number of overrides of each policy in the memory of a follower.
    max_loaded: NonZeroUsize,
}

/// A version of the limit set, as a [`LimitBook`] has read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptLimits {
    /// The number of the version. It is 0 if no limit was ever set.
    pub version: u64,
    /// The time of the server at which the version was made. After a failover has lost a version,
    /// another version can have the same number, but not the same time.
    pub made_at: Timestamp,
    /// The limits that were read.
    pub set: LimitSet,
    /// The time of the server at which the version was read.
    pub time: Timestamp,
}

impl KeptLimits {
    /// Checks that the override of a line has not ended at the time at which the version was read.
    /// An invalid line is not an error of this method.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] if the override has ended.
    pub fn check_end(&self, line: &str) -> Result<(), Error> {
        match LimitSet::end_of(line) {
            Ok(Some(end)) if end <= self.time => {
                let (end, time) = (end.rfc3339(), self.time.rfc3339());
                let message = format!("the override ends at {end}; it must end after {time} (now)");
                Err(Error::new(ErrorKind::InvalidConfig, message))
            }
            _ => Ok(()),
        }
    }
}

/// The number of a version, and the time at which it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version(u64, Timestamp);

impl Version {
    fn parse(text: Option<&str>) -> Result<Self, LimitBookError> {
        let Some(text) = text else { return Ok(Self(0, Timestamp::EPOCH)) };
        let read = || {
            let (number, micros) = text.split_once(' ')?;
            Some(Self(number.parse().ok()?, Timestamp::from_micros(micros.parse().ok()?)))
        };
        read().ok_or_else(|| {
            let text = text.escape_debug().take(100).collect::<String>();
            LimitBookError::Corrupt(format!("the version of the limit set is `{text}`"))
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1.as_micros())
    }
}

impl KeptLimits {
    fn version(&self) -> Version {
        Version(self.version, self.made_at)
    }
}

/// The reason why a [`LimitBook`] was not read or changed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LimitBookError {
    /// The server has failed. After a timeout, it is not known whether a change was made.
    Store(Error),
    /// Another change was made first.
    Conflict {
        /// The version that the change was based on.
        expected: u64,
        /// The version on the server.
        found: u64,
    },
    /// The kept set is not valid, or was lost.
    Corrupt(String),
    /// The change is not valid.
    Invalid(String),
}

impl fmt::Display for LimitBookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "{error:#}"),
            Self::Conflict { expected, found } => write!(
                f,
                "the limit set has version {found}, and the change is based on version {expected}; \
                 read the set again"
            ),
            Self::Corrupt(message) | Self::Invalid(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for LimitBookError {}

impl From<Error> for LimitBookError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl LimitBook {
    /// The maximum number of changes in the history. Older changes are dropped.
    pub const MAX_HISTORY: usize = 1_000;

    /// The maximum number of lines that one version changes.
    pub const MAX_LINES: usize = 1_000;

    /// The maximum number of bytes of the lines of one version. A longer line is a version alone.
    const MAX_BYTES: usize = 256 << 10;

    /// The number of versions of the history that one command reads. The answer is then much
    /// smaller than the maximum of the connection.
    const PAGE: usize = 8;

    /// The maximum length of an author, and of the reason for a change, in bytes.
    pub const MAX_TEXT: usize = 1_000;

    /// The default of the maximum number of overrides of each policy that a process which
    /// [follows](Self::follow) the set has in memory.
    pub const MAX_LOADED: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();

    /// Creates the book of a store whose keys have the names of `keys`.
    #[doc(hidden)]
    #[must_use]
    pub fn new(server: Arc<dyn Run>, keys: &Keys) -> Self {
        let key = |name| keys.own_key(name, "limits");
        let (limits, changes) = (key("limits"), key("limit-changes"));
        Self { server, limits, changes, max_loaded: Self::MAX_LOADED }
    }

    /// Sets the maximum number of overrides of each policy that a process which
    /// [follows](Self::follow) the set has in memory. The default is [100,000](Self::MAX_LOADED).
    #[must_use]
    pub fn max_loaded(self, max: NonZeroUsize) -> Self {
        Self { max_loaded: max, ..self }
    }

    /// Reads the limit set, with all overrides.
    ///
    /// # Errors
    ///
    /// Returns [`LimitBookError::Store`] if the server fails, and [`LimitBookError::Corrupt`] if
    /// another program has written a value that is not valid.
    pub async fn read(&self) -> Result<KeptLimits, LimitBookError> {
        self.read_into(&LimitSet::new()).await
    }

    /// Reads only the limits with these [keys](LimitSet::key_of). So a [change](Self::change) of
    /// single limits takes the same time in a set of any size. The change keeps all limits that
    /// were not read.
    ///
    /// # Errors
    ///
    /// Returns [`LimitBookError::Conflict`] if the set changes while it is read, and the errors of
    /// [`read`](Self::read).
    pub async fn read_limits(&self, keys: &[String]) -> Result<KeptLimits, LimitBookError> {
        let (version, time) = self.version().await?;
        let mut set = LimitSet::new();
        for keys in keys.chunks(Self::MAX_LINES) {
            let (found, lines) = self.lines(keys).await?;
            check_version(version, found)?;
            for (key, line) in keys.iter().zip(lines) {
                let Some(line) = line else { continue };
                set.set_line(&line).map_err(|error| corrupt(key, &error))?;
            }
        }
        Ok(KeptLimits { version: version.0, made_at: version.1, set, time })
    }

    /// Adds the limits to a copy of `empty`, which can have a maximum of overrides in memory.
    async fn read_into(&self, empty: &LimitSet) -> Result<KeptLimits, LimitBookError> {
        let (mut known, _) = self.version().await?;
        loop {
            let set = self.scan(empty.clone()).await?;
            let (version, time) = self.version().await?;
            let mut kept = KeptLimits { version: known.0, made_at: known.1, set, time };
            // The scan has possibly found changes that were made during the scan, and possibly not.
            // So they are made again.
            if self.catch_up(&mut kept, version).await?.is_some() {
                return Ok(kept);
            }
            known = version;
        }
    }

    /// Reads the changes since an earlier version. Returns the line of each changed limit in this
    /// earlier version.
    async fn read_again(&self, kept: &mut KeptLimits) -> Result<Vec<String>, LimitBookError> {
        let (version, time) = self.version().await?;
        kept.time = time;
        if version == kept.version() {
            return Ok(vec![]);
        }
        if version.0 == 0 {
            let known = kept.version;
            return Err(LimitBookError::Corrupt(format!(
                "the server has lost the limit set; its last version was {known}"
            )));
        }
        if let Some(changes) = self.catch_up(kept, version).await? {
            let mut before = HashMap::new();
            add_lines_before(&mut before, changes)?;
            return Ok(before.into_values().flatten().collect());
        }
        *kept = self.read_into(&LimitSet::new().with_max_loaded(self.max_loaded)).await?;
        Ok(vec![])
    }

    /// Reads the lines with these keys, and the version that has them.
    async fn lines(
        &self,
        keys: &[String],
    ) -> Result<(Version, Vec<Option<String>>), LimitBookError> {
        let mut commands = Pipeline::new();
        commands.cmd("HMGET").arg(&self.limits).arg(VERSION).arg(keys);
        let [fields] = self.run(&commands).await?;
        let mut fields: Vec<Option<String>> = read_value(fields)?;
        if fields.len() != keys.len() + 1 {
            return Err(not_valid());
        }
        Ok((Version::parse(fields.remove(0).as_deref())?, fields))
    }

    async fn version(&self) -> Result<(Version, Timestamp), LimitBookError> {
        let mut commands = Pipeline::new();
        commands.cmd("HGET").arg(&self.limits).arg(VERSION).cmd("TIME");
        let [version, time] = self.run(&commands).await?;
        let (secs, micros): (u64, u64) = read_value(time)?;
        let time = Timestamp::from_micros(secs.saturating_mul(1_000_000).saturating_add(micros));
        let version: Option<String> = read_value(version)?;
        Ok((Version::parse(version.as_deref())?, time))
    }

    /// Adds all limits to `set`.
    async fn scan(&self, mut set: LimitSet) -> Result<LimitSet, LimitBookError> {
        let mut cursor = String::from("0");
        loop {
            let mut commands = Pipeline::new();
            commands.cmd("HSCAN").arg(&self.limits).arg(&cursor).arg("COUNT").arg(1_000);
            let [page] = self.run(&commands).await?;
            let (next, fields): (String, Vec<(String, String)>) = read_value(page)?;
            for (key, line) in fields.iter().filter(|(key, _)| key != VERSION) {
                set.set_line(line).map_err(|error| corrupt(key, &error))?;
            }
            if next == "0" {
                return Ok(set);
            }
            cursor = next;
        }
    }

    /// Returns the last changes, from the oldest to the newest, and at most `count`.
    ///
    /// # Errors
    ///
    /// Returns [`LimitBookError::Store`] if the server fails, and [`LimitBookError::Corrupt`] if
    /// another program has written a value that is not valid.
    pub async fn history(&self, count: usize) -> Result<Vec<LimitChange>, LimitBookError> {
        let count = count.min(Self::MAX_HISTORY);
        // The newest change is read first.
        let (mut changes, mut read) = (Vec::<LimitChange>::new(), 0);
        while read < count {
            let page = Self::PAGE.min(count - read);
            let entries = self.entries(-to_index(read + page), -to_index(read + 1)).await?;
            let is_last = entries.len() < page;
            for change in entries.into_iter().rev() {
                // A change that was made since the last page has moved the earlier changes.
                if changes.last().is_none_or(|last| change.version < last.version) {
                    changes.push(change);
                }
            }
            if is_last {
                break;
            }
            read += page;
        }
        changes.reverse();
        Ok(changes)
    }

    /// Reads the entries of the history with these indices. Negative indices count from the end.
    async fn entries(&self, first: i64, last: i64) -> Result<Vec<LimitChange>, LimitBookError> {
        let mut commands = Pipeline::new();
        commands.cmd("LRANGE").arg(&self.changes).arg(first).arg(last);
        let [entries] = self.run(&commands).await?;
        let entries: Vec<String> = read_value(entries)?;
        entries.iter().map(|entry| LimitChange::parse(entry)).collect()
    }

    /// Makes the changes after the version of `kept`, up to `version`, and returns them. Returns
    /// `None` if the history does not connect both versions.
    async fn catch_up(
        &self,
        kept: &mut KeptLimits,
        version: Version,
    ) -> Result<Option<Vec<LimitChange>>, LimitBookError> {
        let Some(changes) = self.changes(kept.version(), version).await? else { return Ok(None) };
        for change in &changes {
            change.apply(&mut kept.set)?;
        }
        (kept.version, kept.made_at) = (version.0, version.1);
        Ok(Some(changes))
    }

    /// Returns the changes that turn the version `from` into the version `to`. Returns `None` if
    /// the history does not connect both versions.
    async fn changes(
        &self,
        from: Version,
        to: Version,
    ) -> Result<Option<Vec<LimitChange>>, LimitBookError> {
        if from == to {
            return Ok(Some(vec![]));
        }
        // A process that has no version yet reads all limits instead.
        let missing = to.0.checked_sub(from.0).filter(|missing| *missing > 0 && from.0 > 0);
        let missing = missing.and_then(|missing| usize::try_from(missing).ok());
        let Some(missing) = missing.filter(|missing| *missing < Self::MAX_HISTORY) else {
            return Ok(None);
        };
        // The list has the change that made `from`, the missing changes, and sometimes changes that
        // were made after `to` was read.
        for others in [1, 100] {
            let mut changes = self.history(missing.saturating_add(others)).await?;
            changes.retain(|change| (from.0..=to.0).contains(&change.version));
            let made_at = |number: u64| {
                let change = changes.iter().find(|change| change.version == number);
                change.map_or(Timestamp::EPOCH, |change| change.time)
            };
            let is_connected = made_at(from.0) == from.1 && made_at(to.0) == to.1;
            changes.retain(|change| change.version > from.0);
            if is_connected && changes.len() == missing {
                return Ok(Some(changes));
            }
        }
        Ok(None)
    }

    /// Replaces the limits of `kept` by `set`. Returns the number of the new version.
    ///
    /// The limits that differ are the change. A change of more than [1,000 lines](Self::MAX_LINES),
    /// or of more than 256 KiB, is made in several versions. If nothing differs, no version is
    /// made.
    ///
    /// # Errors
    ///
    /// Returns [`LimitBookError::Conflict`] if the server has another version than `kept`. Returns
    /// [`LimitBookError::Invalid`] if the author or the reason is empty, has a control character,
    /// or is longer than [1,000 bytes](Self::MAX_TEXT). Returns [`LimitBookError::Store`] if the
    /// server fails. If an error occurs after the first of several versions, these versions stay.
    pub async fn change(
        &self,
        kept: &KeptLimits,
        set: &LimitSet,
        author: &str,
        reason: &str,
    ) -> Result<u64, LimitBookError> {
        check_text("author", author)?;
        check_text("reason", reason)?;
        let mut version = kept.version();
        for lines in versions(&kept.set.changes_to(set)) {
            let change = LimitChange {
                version: version.0 + 1,
                time: self.version().await?.1,
                author: author.to_owned(),
                reason: reason.to_owned(),
                lines: lines.to_vec(),
            };
            self.write(version, &change).await?;
            version = Version(change.version, change.time);
        }
        Ok(version.0)
    }

    async fn write(&self, expected: Version, change: &LimitChange) -> Result<(), LimitBookError> {
        let mut command = redis::cmd("EVAL");
        command.arg(CHANGE).arg(2).arg(&self.limits).arg(&self.changes);
        command.arg(VERSION).arg(expected.to_string());
        command.arg(Version(change.version, change.time).to_string()).arg(change.to_string());
        command.arg(-to_index(Self::MAX_HISTORY));
        for (before, after) in &change.lines {
            let line = after.as_ref().or(before.as_ref());
            let Some(line) = line else { continue };
            let key = LimitSet::key_of(line).map_err(|error| invalid(&error))?;
            command.arg(key).arg(after.as_deref().unwrap_or_default());
        }
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let [found] = self.run(&commands).await?;
        let found: String = read_value(found)?;
        check_version(expected, Version::parse(Some(&found))?)
    }

    /// Makes a new version with the limits of an earlier version. Overrides that have ended since
    /// then are not set again. Reads only the limits that have changed since that version. Returns
    /// the number of the new version.
    ///
    /// # Errors
    ///
    /// Returns [`LimitBookError::Invalid`] if the history does not reach back to `version`, and the
    /// errors of [`read`](Self::read) and [`change`](Self::change).
    pub async fn roll_back(
        &self,
        version: u64,
        author: &str,
        reason: &str,
    ) -> Result<u64, LimitBookError> {
        let (current, _) = self.version().await?;
        let missing = current.0.checked_sub(version).and_then(|missing| missing.try_into().ok());
        let mut undone = match missing {
            // Other changes are possibly made now.
            Some(missing) => self.history(usize::saturating_add(missing, 100)).await?,
            None => vec![],
        };
        undone.retain(|change| change.version > version && change.version <= current.0);
        if missing != Some(undone.len()) {
            let oldest = self.entries(0, 0).await?;
            let oldest = oldest.first().map_or(current.0, |oldest| oldest.version - 1);
            return Err(LimitBookError::Invalid(format!(
                "version {version} is not in the history; it must be from {oldest} to {}",
                current.0
            )));
        }
        let mut before = HashMap::new();
        add_lines_before(&mut before, undone)?;
        let keys: Vec<_> = before.keys().cloned().collect();
        let kept = self.read_limits(&keys).await?;
        check_version(current, kept.version())?;
        let mut set = LimitSet::new();
        for line in before.into_values().flatten() {
            set.set_line(&line).map_err(|error| corrupt(&line, &error))?;
        }
        set.remove_ended(kept.time);
        self.change(&kept, &set, author, reason).await
    }

    async fn run<const N: usize>(&self, commands: &Pipeline) -> Result<[Value; N], LimitBookError> {
        let replies = self.server.run(&self.limits, commands).await?;
        replies.try_into().map_err(|_| {
            let message = "the server sent another number of replies than there were commands";
            LimitBookError::Store(Error::new(ErrorKind::Protocol, message))
        })
    }
}

impl fmt::Debug for LimitBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitBook({})", self.limits.escape_ascii())
    }
}

fn check_version(expected: Version, found: Version) -> Result<(), LimitBookError> {
    if found == expected {
        return Ok(());
    }
    Err(LimitBookError::Conflict { expected: expected.0, found: found.0 })
}

/// Adds the line of each changed limit before the first of `changes`, by its key. Keeps the lines
/// before earlier changes.
fn add_lines_before(
    before: &mut HashMap<String, Option<String>>,
    changes: Vec<LimitChange>,
) -> Result<(), LimitBookError> {
    for (old, new) in changes.into_iter().flat_map(|change| change.lines) {
        let Some(line) = old.as_ref().or(new.as_ref()) else { continue };
        let key = LimitSet::key_of(line).map_err(|error| corrupt(line, &error))?;
        before.entry(key).or_insert(old);
    }
    Ok(())
}

/// Returns the index of the oldest of the last `count` entries of a list.
fn to_index(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Splits the lines of a change into the lines of its versions.
fn versions(mut lines: &[ChangedLine]) -> impl Iterator<Item = &[ChangedLine]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |(before, after): &&ChangedLine| {
            bytes += [before, after].into_iter().flatten().map(String::len).sum::<usize>();
            bytes <= LimitBook::MAX_BYTES
        };
        let count = lines.iter().take(LimitBook::MAX_LINES).take_while(fits).count();
        let (version, rest) = lines.split_at(count.max(1).min(lines.len()));
        lines = rest;
        (!version.is_empty()).then_some(version)
    })
}

/// The line of a limit before and after a change.
type ChangedLine = (Option<String>, Option<String>);

fn read_value<T: FromRedisValue>(value: Value) -> Result<T, LimitBookError> {
    from_redis_value(value).map_err(|_| not_valid())
}

fn not_valid() -> LimitBookError {
    LimitBookError::Corrupt("the server sent a limit set that is not valid".to_owned())
}

fn corrupt(key: &str, error: &dyn fmt::Display) -> LimitBookError {
    let key = key.escape_debug().take(100).collect::<String>();
    LimitBookError::Corrupt(format!("the limit `{key}` on the server is not valid: {error}"))
}

fn invalid(error: &LimitSetError) -> LimitBookError {
    LimitBookError::Invalid(error.to_string())
}

fn check_text(part: &str, text: &str) -> Result<(), LimitBookError> {
    let (length, max) = (text.len(), LimitBook::MAX_TEXT);
    if length == 0 || length > max {
        return Err(LimitBookError::Invalid(format!(
            "the {part} has {length} bytes; it must have 1 to {max}"
        )));
    }
    match text.chars().find(|char| char.is_control()) {
        None => Ok(()),
        Some(char) => Err(LimitBookError::Invalid(format!(
            "the {part} contains the control character {char:?}"
        ))),
    }
}
