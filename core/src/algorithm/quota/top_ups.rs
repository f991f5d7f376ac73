//! Top-ups: grants and rolled-over quota, which a subject has in addition to the limit.

use super::super::calendar::{Unit, Window};
use super::super::check::{LAST, amount, at_most};
use super::{FOREVER, MAX_DRIFT};
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS};

/// The maximum number of open grants of a state.
pub const MAX_GRANTS: usize = 16;

/// The time for which a subject is remembered after a window, in maximum lengths of a window. While
/// a subject is remembered, the unused quota of its idle windows rolls over.
pub const REMEMBERED_WINDOWS: u64 = 12;

/// An amount in addition to the limit, until it is spent or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The time at which the grant ends, in microseconds since 1970, or [`FOREVER`].
    pub ends_at: u64,
    /// The amount that was left at the start of the window, or that was granted later.
    pub amount: u64,
}

impl Grant {
    /// Creates a grant from its end and its amount.
    #[must_use]
    pub const fn new(ends_at: u64, amount: u64) -> Self {
        Self { ends_at, amount }
    }
}

/// The grants and the rolled-over quota of a subject, and the numbers from which the next rollover
/// is computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopUps {
    /// The limit of the current window, as the last charge or grant has named it.
    pub limit: u64,
    /// The quota that was rolled over into the current window.
    pub rolled_over: u64,
    /// The unused quota rolls over into windows that begin before this time, in microseconds since
    /// 1970. It is 0 if nothing rolls over.
    pub remembered_until: u64,
    /// The open grants, sorted by their ends. All ends differ.
    pub grants: Vec<Grant>,
}

impl TopUps {
    /// Returns all numbers in one list, for a store outside of this process. `from_numbers` reads
    /// the list.
    #[must_use]
    pub fn to_numbers(&self) -> Vec<u64> {
        let own = [self.limit, self.rolled_over, self.remembered_until];
        let grants = self.grants.iter().flat_map(|grant| [grant.ends_at, grant.amount]);
        own.into_iter().chain(grants).collect()
    }

    /// Reads the list of [`to_numbers`](Self::to_numbers). Returns `None` if its length is wrong.
    #[must_use]
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let (&[limit, rolled_over, remembered_until], grants) = numbers.split_first_chunk()?;
        let (grants, rest) = grants.as_chunks();
        let grants = grants.iter().map(|&[ends_at, amount]| Grant::new(ends_at, amount)).collect();
        rest.is_empty().then_some(Self { limit, rolled_over, remembered_until, grants })
    }

    /// Returns the sum of the grants and the rolled-over quota.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.rolled_over + self.grants.iter().map(|grant| grant.amount).sum::<u64>()
    }

    /// Returns `true` if the subject has nothing in addition to the limit, and is not remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.rolled_over == 0 && self.remembered_until == 0 && self.grants.is_empty()
    }

    /// Removes the first grant if it ends at `until` or earlier, and returns it.
    pub(super) fn pop_ended(&mut self, until: u64) -> Option<Grant> {
        let first = self.grants.first().copied()?;
        (first.ends_at <= until).then(|| self.grants.remove(0))
    }

    /// Pays `count` at the end of a window: first from the rolled-over quota, then from the limit,
    /// then from the grants. Returns the part of the limit that is unused.
    pub(super) fn pay(&mut self, count: u64) -> u64 {
        let rest = count.saturating_sub(std::mem::take(&mut self.rolled_over));
        let mut excess = rest.saturating_sub(self.limit);
        for grant in &mut self.grants {
            let part = excess.min(grant.amount);
            (grant.amount, excess) = (grant.amount - part, excess - part);
        }
        self.grants.retain(|grant| grant.amount > 0);
        self.limit.saturating_sub(rest)
    }

    /// Adds a grant. Returns `false` and changes nothing if the state has too many open grants, or
    /// if the sum would be too large.
    pub(super) fn add(&mut self, grant: Grant) -> bool {
        if self.sum() + grant.amount > MAX_EXACT {
            return false;
        }
        match self.grants.binary_search_by_key(&grant.ends_at, |open| open.ends_at) {
            Ok(place) => self.grants[place].amount += grant.amount,
            Err(_) if self.grants.len() >= MAX_GRANTS => return false,
            Err(place) => self.grants.insert(place, grant),
        }
        true
    }

    /// Returns the time until which the top-ups matter.
    pub(super) fn recovers_at(&self, unit: Unit) -> u64 {
        // A grant that is already spent counts until it ends, because a refund can return it.
        let granted = self.grants.last().map_or(0, |grant| grant.ends_at);
        match self.remembered_until {
            0 => granted,
            until => granted.max(until + unit.max_micros() + MAX_DRIFT),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.grants.capacity() * size_of::<Grant>()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let Self { limit, rolled_over, remembered_until, grants } = self;
        at_most("the limit of its window is", *limit, MAX_EXACT)?;
        at_most("the number of its grants is", grants.len() as u64, MAX_GRANTS as u64)?;
        at_most("its quota rolls over until", *remembered_until, LAST + MAX_SPAN_MICROS)?;
        at_most("its rolled-over quota is", *rolled_over, MAX_EXACT)?;
        let mut sum = *rolled_over;
        let mut last_end = 0;
        for grant in grants {
            amount("a grant is", grant.amount)?;
            sum = sum.saturating_add(grant.amount);
            at_most("a grant ends at", grant.ends_at, FOREVER)?;
            if grant.ends_at <= last_end {
                let end = grant.ends_at;
                return Err(format!("a grant ends at {end}; it must end after {last_end}"));
            }
            last_end = grant.ends_at;
        }
        at_most("the sum of its grants is", sum, MAX_EXACT)
    }
}

/// The part of the unused quota that rolls over into the next window, such as 1/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rollover {
    parts: u64,
    of: u64,
}

impl Rollover {
    /// The maximum denominator.
    pub const MAX: u64 = 1_000;

    /// Returns `None` if the fraction is 0 or above 1, or if its denominator is above
    /// [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(parts: u64, of: u64) -> Option<Self> {
        if parts == 0 || parts > of || of > Self::MAX {
            return None;
        }
        Some(Self { parts, of })
    }

    /// Returns the numerator and the denominator.
    #[must_use]
    pub const fn fraction(self) -> (u64, u64) {
        (self.parts, self.of)
    }

    /// Returns this part of an amount, rounded down.
    #[must_use]
    pub const fn part_of(self, unused: u64) -> u64 {
        unused / self.of * self.parts + unused % self.of * self.parts / self.of
    }
}

/// Returns the limit in `window` for a subscription that begins at `since`. This is the part of
/// `limit` that corresponds to the rest of the window from `since`. It is rounded down, and at
/// least 1 unless the limit is 0. Before the window that contains `since`, the limit is 0.
pub(super) fn pro_rated(limit: u64, since: u64, window: Window) -> u64 {
    if since <= window.start {
        return limit;
    }
    if since >= window.end {
        return 0;
    }
    let rest = window.end - since;
    let part = u128::from(limit) * u128::from(rest) / u128::from(window.micros().max(1));
    u64::try_from(part).unwrap_or(limit).max(1.min(limit))
}
