//! Lines on standard error and standard output. Where one cannot be written, as on a full disk or to a program that has
//! ended, the server goes on without: `eprintln!` panics then, and would end the task that follows the limits.

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
