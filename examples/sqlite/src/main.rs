//! Counts logins in a file, with a limit of five per minute. If you run the program twice within a
//! minute, the store refuses all logins of the second run.
//!
//! ```sh
//! cargo run -p tidegate-example-sqlite -- limits.db
//! ```

use tidegate_core::Limiter;
use tidegate_example_sqlite::SqliteStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: tidegate-example-sqlite FILE")?;
    let store = SqliteStore::open(&path)?;
    let limiter = Limiter::new(store, ["login: sliding-log 5/1m".parse()?])?;
    for attempt in 1..=6 {
        let decision = limiter.acquire("alice").await?;
        match decision.retry_after() {
            _ if decision.is_allowed() => println!("attempt {attempt}: allowed"),
            Some(wait) => println!("attempt {attempt}: refused, try again in {wait:.1?}"),
            None => println!("attempt {attempt}: refused"),
        }
    }
    Ok(())
}
