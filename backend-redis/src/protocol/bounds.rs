//! The bounds of the size of a request for several calls.

/// The maximum number of charges in a request, regardless of the number of its keys.
///
/// A server runs nothing else while a script runs, and cannot stop a script that has written. A
/// script takes about 10 ms for 1,024 charges. The maximum also bounds the number of keys, because
/// Lua can unpack only a few thousand values.
pub(super) const MAX_CHARGES: usize = 1024;

/// The total size of the keys, in bytes, above which a request gets no further call.
pub(super) const MAX_KEY_BYTES: usize = 1 << 20;
