//! The refusals that are remembered: a table of a fixed size, with a bound on what lies outside of it.
//!
//! Forgetting a refusal costs a call to the store and nothing else, so the table is a plain one: a
//! refusal has eight places where it may lie, and what does not fit pushes something else out. What is
//! over goes first, then what nobody has asked for since the last time that something had to go, and
//! of those what is over soonest. (Caches that are to be had count the entries' weights but not their
//! own tables, and know of no time at which an entry is over.)

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::asked::Asked;
use super::generations::Generations;
use super::moment::Moment;
use super::refusal::Refusal;
use crate::Decision;

/// Places where a refusal may lie.
const WAYS: usize = 8;

/// Places in a shard, if there are more than one: so many callers at once rarely meet in one.
const PLACES_PER_SHARD: usize = 512;

const MOST_SHARDS: usize = 64;

/// A refusal takes at most this part of what its shard has.
const LARGEST: usize = 8;

/// All shards.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
struct Shard {
    places: Box<[Place]>,
    len: usize,
    /// Bytes that the refusals take, outside of the places.
    bytes: usize,
    most_bytes: usize,
    /// Where to look next for what has to go.
    hand: usize,
    hits: u64,
    misses: u64,
}

/// The hash of a call and the refusal of it, if there is one.
type Place = Option<(u64, Box<Kept>)>;

#[derive(Debug)]
struct Kept {
    refusal: Refusal,
    /// Whether it was asked for since something last had to go.
    used: bool,
}

impl Kept {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.refusal.heap_bytes()
    }
}

/// Figures of a table.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) len: usize,
    /// Outside of the places.
    pub(super) bytes: usize,
}

impl Table {
    /// A table of about so many places, whose refusals take at most so many bytes.
    pub(super) fn new(places: usize, most_bytes: usize) -> Self {
        let shards = shards_of(places);
        let shard = || Shard::new(places_in_each(places), most_bytes / shards);
        Self { shards: (0..shards).map(|_| Mutex::new(shard())).collect() }
    }

    /// Bytes on the heap of an empty table.
    pub(super) fn bytes_of(places: usize) -> usize {
        let shard = size_of::<Mutex<Shard>>() + places_in_each(places) * size_of::<Place>();
        shards_of(places) * shard
    }

    /// The answer to a call that is known to be refused.
    pub(super) fn find(
        &self,
        asked: &Asked<'_>,
        at: Moment,
        generations: &Generations,
    ) -> Option<Decision> {
        let hash = asked.hash?;
        let mut shard = self.shard(hash);
        let decision = shard.find(hash, asked, at, generations);
        match decision {
            Some(_) => shard.hits += 1,
            None => shard.misses += 1,
        }
        decision
    }

    /// Remembers the refusal of a call.
    pub(super) fn keep(&self, asked: &Asked<'_>, refusal: Refusal, at: Moment) {
        if let Some(hash) = asked.hash {
            let kept = Box::new(Kept { refusal, used: false });
            self.shard(hash).keep(hash, asked, kept, at);
        }
    }

    pub(super) fn sums(&self) -> Sums {
        self.shards.iter().map(lock).fold(Sums::default(), |sums, shard| Sums {
            hits: sums.hits.wrapping_add(shard.hits),
            misses: sums.misses.wrapping_add(shard.misses),
            len: sums.len + shard.len,
            bytes: sums.bytes + shard.bytes,
        })
    }

    /// By the high bits of the hash: the low ones choose the places.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[spread(hash, self.shards.len())])
    }
}

/// One of so many, by the high bits of a hash.
pub(super) fn spread(hash: u64, over: usize) -> usize {
    usize::try_from((u128::from(hash) * over as u128) >> 64).unwrap_or(0)
}

/// Nothing is left half done by a caller that panics here: there is nothing that could.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shards_of(places: usize) -> usize {
    (places / PLACES_PER_SHARD).clamp(1, MOST_SHARDS)
}

/// Places of each shard: whole sets of them.
fn places_in_each(places: usize) -> usize {
    (places / shards_of(places) / WAYS).max(1) * WAYS
}

impl Shard {
    fn new(places: usize, most_bytes: usize) -> Self {
        let places = (0..places).map(|_| None).collect();
        Self { places, len: 0, bytes: 0, most_bytes, hand: 0, hits: 0, misses: 0 }
    }

    fn find(
        &mut self,
        hash: u64,
        asked: &Asked<'_>,
        at: Moment,
        generations: &Generations,
    ) -> Option<Decision> {
        let place = self.position(hash, asked)?;
        let (_, kept) = self.places[place].as_mut()?;
        if kept.refusal.holds(asked, at, generations) {
            kept.used = true;
            return Some(kept.refusal.decision(at));
        }
        self.remove(place);
        None
    }

    fn keep(&mut self, hash: u64, asked: &Asked<'_>, kept: Box<Kept>, at: Moment) {
        let bytes = kept.bytes();
        if bytes > self.most_bytes / LARGEST {
            return;
        }
        let place = match self.position(hash, asked) {
            Some(same) => same,
            None => self.place_for(hash, at),
        };
        self.remove(place);
        self.make_room(bytes, at);
        self.bytes += bytes;
        self.len += 1;
        self.places[place] = Some((hash, kept));
    }

    /// Where the refusal of this call lies.
    fn position(&self, hash: u64, asked: &Asked<'_>) -> Option<usize> {
        let set = self.set(hash);
        let is_same = |(other, kept): &(u64, Box<Kept>)| {
            *other == hash && kept.refusal.is_to(asked.call.charges)
        };
        set.clone().find(|place| self.places[*place].as_ref().is_some_and(is_same))
    }

    /// The place that a new refusal takes: one that is free, or whose refusal has to go.
    fn place_for(&mut self, hash: u64, at: Moment) -> usize {
        let set = self.set(hash);
        let worth = |place: &usize| {
            let (_, kept) = self.places[*place].as_ref()?;
            Some((!kept.refusal.is_over(at), kept.used, kept.refusal.until()))
        };
        let place = set.clone().min_by_key(worth).unwrap_or(set.start);
        if let Some((true, ..)) = worth(&place) {
            for (_, kept) in self.places[set].iter_mut().flatten() {
                kept.used = false;
            }
        }
        place
    }

    /// Lets refusals go, wherever they lie, until there is room for so many bytes.
    fn make_room(&mut self, bytes: usize, at: Moment) {
        while self.len > 0 && self.bytes + bytes > self.most_bytes {
            let place = self.hand;
            self.hand = (place + 1) % self.places.len();
            match &mut self.places[place] {
                Some((_, kept)) if kept.used && !kept.refusal.is_over(at) => kept.used = false,
                _ => self.remove(place),
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some((_, kept)) = self.places[place].take() {
            self.bytes -= kept.bytes();
            self.len -= 1;
        }
    }

    /// The places where the refusal of a call may lie.
    fn set(&self, hash: u64) -> Range<usize> {
        let first = spread(hash.rotate_left(32), self.places.len() / WAYS) * WAYS;
        first..first + WAYS
    }
}
