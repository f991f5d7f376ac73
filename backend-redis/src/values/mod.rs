//! The bytes of values: kinds, fields, sizes and numbers, which this crate and the scripts share.

pub(crate) mod bytes;
pub(crate) mod layout;

pub(crate) use layout::literal;
