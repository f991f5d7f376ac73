//! Rows, and the conversion of rows to records.

use rusqlite::{Connection, Row, params};
use tidegate_core::algorithm::{
    fair_pool, fixed_window, interval_bucket, quota, sliding_counter, token_bucket,
};
use tidegate_core::engine::{Record, Records, Rule, State};
use tidegate_core::{Charge, Charges, Error, ErrorKind, Timestamp};

use crate::failed;

const READ: &str = "SELECT
    policy, time, used, used_before, log, blocked_until, block_level, forgotten_at FROM states
    WHERE state_name = ?1 AND tenant = ?2 AND subject = ?3";

const WRITE: &str = "INSERT OR REPLACE INTO states
    (state_name, tenant, subject, policy, time, used, used_before, log, blocked_until, block_level,
     forgotten_at, recovers_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const DELETE: &str = "DELETE FROM states WHERE state_name = ?1 AND tenant = ?2 AND subject = ?3";

const DELETE_RECOVERED: &str = "DELETE FROM states WHERE rowid IN
    (SELECT rowid FROM states WHERE recovers_at <= ?1 LIMIT 100)";

/// The records of a call.
pub(crate) struct Rows<'c> {
    charges: Charges<'c>,
    keys: Vec<Key<'c>>,
}

/// A row of the table, for all charges of the call that share its key.
struct Key<'c> {
    charge: Charge<'c>,
    record: Option<Record>,
    is_changed: bool,
}

impl<'c> Rows<'c> {
    pub(crate) fn read(connection: &Connection, charges: Charges<'c>) -> Result<Self, Error> {
        let mut keys: Vec<Key<'c>> = vec![];
        let mut select = connection.prepare_cached(READ).map_err(failed)?;
        for charge in charges.iter() {
            if keys.iter().any(|key| key.charge.shares_state_with(&charge)) {
                continue;
            }
            let name = charge.policy.state_name().to_string();
            let key = params![name, charge.tenant, charge.state_subject()];
            let mut rows = select.query(key).map_err(failed)?;
            let row = rows.next().map_err(failed)?;
            let record = row.map(|row| record(row, &charge)).transpose()?;
            keys.push(Key { charge, record, is_changed: false });
        }
        Ok(Self { charges, keys })
    }

    /// Writes the changed rows, and deletes up to 100 rows that have recovered.
    pub(crate) fn write(&self, connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        for Key { charge, record, .. } in self.keys.iter().filter(|key| key.is_changed) {
            let name = charge.policy.state_name().to_string();
            let (tenant, subject) = (charge.tenant, charge.state_subject());
            let Some(record) = record else {
                connection.prepare_cached(DELETE)?.execute(params![name, tenant, subject])?;
                continue;
            };
            let (policy, blocked) = (record.policy().to_string(), record.blocked_until_micros());
            let (level, forgotten_at) = record.offenses().unzip();
            let (time, used, used_before, log) = columns(record.state());
            // If a record never recovers, its column `recovers_at` contains the maximum time.
            let never = u64::MAX >> 1;
            let recovers_at = record.recovers_at().map_or(never, Timestamp::as_micros);
            connection.prepare_cached(WRITE)?.execute(params![
                name,
                tenant,
                subject,
                policy,
                time,
                used,
                used_before,
                log,
                blocked,
                level,
                forgotten_at,
                recovers_at,
            ])?;
        }
        // The clock cannot show a time after `Timestamp::MAX`, but a state can recover after this
        // time. So at this time, the store deletes no row.
        if self.keys.iter().any(|key| key.is_changed) && now < Timestamp::MAX {
            connection.prepare_cached(DELETE_RECOVERED)?.execute([now.as_micros()])?;
        }
        Ok(())
    }

    fn key(&mut self, place: usize) -> Option<&mut Key<'c>> {
        let charge = self.charges.get(place)?;
        self.keys.iter_mut().find(|key| key.charge.shares_state_with(&charge))
    }
}

impl Records for Rows<'_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        self.key(place)?.record.as_ref()
    }

    // This function has nothing to do, because the store rolls the transaction back if a write
    // fails.
    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        if let Some(Key { charge, record, is_changed }) = self.key(place) {
            change(record.get_or_insert_with(|| Record::new(charge.policy)));
            *is_changed = true;
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(key) = self.key(place) {
            key.is_changed |= key.record.take().is_some();
        }
    }
}

/// The columns `time`, `used`, `used_before` and `log`.
type Columns = (Option<u64>, Option<u64>, Option<u64>, Option<Vec<u8>>);

fn columns(state: Option<&State>) -> Columns {
    match state {
        Some(State::FixedWindow(s)) => (Some(s.ends), Some(s.count), None, None),
        Some(State::SlidingCounter(s)) => (Some(s.ends), Some(s.current), Some(s.previous), None),
        Some(State::TokenBucket(s)) => (Some(s.time), Some(s.debt), None, None),
        Some(State::IntervalBucket(s)) => (Some(s.anchor), Some(s.debt), None, None),
        Some(State::Quota(s)) => {
            let top_ups = s.top_ups.iter().flat_map(|top_ups| top_ups.to_numbers());
            let numbers = [s.start, s.earliest_end].into_iter().chain(top_ups);
            let numbers = numbers.flat_map(u64::to_le_bytes).collect();
            (Some(s.end), Some(s.count), Some(s.carry), Some(numbers))
        }
        Some(State::SlidingLog(s)) => {
            let numbers = s.records().flat_map(|(time, cost)| [time, cost]);
            (None, None, None, Some(numbers.flat_map(u64::to_le_bytes).collect()))
        }
        Some(State::FairPool(s)) => {
            let numbers = s.to_numbers().into_iter().flat_map(u64::to_le_bytes);
            (None, None, None, Some(numbers.collect()))
        }
        // The record has no numbers, or its algorithm is newer than this store. The method
        // `supports` would have to reject a newer algorithm.
        _ => (None, None, None, None),
    }
}

/// Reads the numbers that [`columns`] has written into the column `log`.
fn read(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().copied().map(u64::from_le_bytes).collect()
}

fn state(rule: &Rule, columns: Columns) -> Option<State> {
    Some(match (rule, columns) {
        (Rule::Quota(_), (Some(end), Some(count), Some(carry), Some(numbers))) => {
            let numbers = read(&numbers);
            let (&[start, earliest_end], top_ups) = numbers.split_first_chunk()?;
            let state = quota::State::new(start, end, count).with_drift(earliest_end, carry);
            State::Quota(Box::new(match quota::TopUps::from_numbers(top_ups) {
                Some(top_ups) => state.with_top_ups(top_ups),
                None => state,
            }))
        }
        (Rule::FairPool(_), (.., Some(numbers))) => {
            State::FairPool(Box::new(fair_pool::State::from_numbers(&read(&numbers))?))
        }
        (_, (.., Some(log))) => {
            let numbers = read(&log);
            let records = numbers.as_chunks::<2>().0.iter().copied().map(Into::into);
            State::SlidingLog(Box::new(records.collect()))
        }
        (Rule::FixedWindow(_), (Some(ends), Some(count), ..)) => {
            State::FixedWindow(fixed_window::State::new(ends, count))
        }
        (Rule::SlidingCounter(_), (Some(ends), Some(current), Some(previous), _)) => {
            State::SlidingCounter(sliding_counter::State::new(ends, previous, current))
        }
        (Rule::TokenBucket(_), (Some(time), Some(debt), ..)) => {
            State::TokenBucket(token_bucket::State::new(time, debt))
        }
        (Rule::IntervalBucket(_), (Some(anchor), Some(debt), ..)) => {
            State::IntervalBucket(interval_bucket::State::new(anchor, debt))
        }
        _ => return None,
    })
}

/// Converts a row to a record. Returns an error if the row contains numbers that no record can
/// have, for example because another program wrote the row.
fn record(row: &Row<'_>, charge: &Charge<'_>) -> Result<Record, Error> {
    let policy: String = row.get(0).map_err(failed)?;
    // The row usually has the policy of the charge, so that the text of the policy need not be
    // parsed.
    let policy = match charge.policy.to_string() == policy {
        true => charge.policy.clone(),
        false => policy.parse().map_err(|error| {
            Error::new(ErrorKind::ForeignValue, format!("the policy of the row: {error}"))
        })?,
    };
    let columns = || Ok((row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let state = state(policy.rule(), columns().map_err(failed)?);
    let record = Record::restore(&policy, state, row.get(5).map_err(failed)?)?;
    match (row.get(6).map_err(failed)?, row.get(7).map_err(failed)?) {
        (Some(level), Some(forgotten_at)) => record.restore_offenses(level, forgotten_at),
        _ => Ok(record),
    }
}
