//! Macros that write lines to standard error and standard output. If a line cannot be written, for
//! example to a full disk or a closed pipe, the server continues without it. `eprintln!` would
//! panic and end the task that follows the limits.

macro_rules! stderr {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

macro_rules! stdout {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
