//! Subjects of a request.
