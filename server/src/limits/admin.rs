//! Shows and changes the limit set in the store over HTTP.
//!
//! | route | effect |
//! |---|---|
//! | `GET /limits` | returns the set as text; the field `ETag` has its version |
//! | `PUT /limits` | replaces the whole set by the body, if the version is the one in `If-Match` |
//! | `PATCH /limits` | sets the lines of the body that begin with `+`, and removes those with `-` |
//! | `POST /limits/rollback/VERSION` | makes a new version with the limits of an earlier version |
//! | `GET /limits/history` | returns the last changes as text |
//!
//! A change needs the fields `Tidegate-Author` and `Tidegate-Reason`.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tidegate_cluster::{KeptLimits, LimitBook, LimitBookError};
use tidegate_core::{LimitSet, Store};

use crate::net::access::{Access, CHALLENGE, Guard};
use crate::net::http::Payload;
use crate::net::login::{DEFAULT_USER, Login};

/// The tokens of the clients that may show and change the limit set. Without a token, no client
/// may. The write token also permits reading.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct AdminTokens {
    /// The token of clients that may show the set and its history.
    pub read: Option<String>,
    /// The token of clients that may also change the set.
    pub write: Option<String>,
}

/// Formats the value without the tokens.
impl fmt::Debug for AdminTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |token: &Option<String>| token.as_ref().map(|_| "***");
        f.debug_struct("AdminTokens")
            .field("read", &shown(&self.read))
            .field("write", &shown(&self.write))
            .finish()
    }
}

/// The maximum number of changes in the response to `GET /limits/history`.
const MAX_SHOWN: usize = 100;

struct Admin {
    store: Arc<dyn Store>,
    book: LimitBook,
    read: Option<Guard>,
    write: Option<Guard>,
}

/// Returns the routes. A client sends its token in the field `Authorization: Bearer TOKEN`. `store`
/// checks that it can keep the states of all policies of a set.
pub fn routes(book: LimitBook, store: Arc<dyn Store>, tokens: &AdminTokens) -> Router {
    let guard = |token: &Option<String>| {
        let login = |token: &String| Login { user: DEFAULT_USER.into(), password: token.clone() };
        token.as_ref().map(|token| Guard::new(Access::Login(login(token))))
    };
    let (read, write) = (guard(&tokens.read), guard(&tokens.write));
    Router::new()
        .route("/limits", get(show).put(replace).patch(change))
        .route("/limits/rollback/{version}", post(roll_back))
        .route("/limits/history", get(history))
        .with_state(Arc::new(Admin { store, book, read, write }))
}

/// The response to a request that cannot be executed.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        let message = format!("{message}\n");
        match status {
            StatusCode::UNAUTHORIZED => (status, CHALLENGE, message).into_response(),
            _ => (status, message).into_response(),
        }
    }
}

impl From<LimitBookError> for Refusal {
    fn from(error: LimitBookError) -> Self {
        let status = match error {
            LimitBookError::Conflict { .. } => StatusCode::CONFLICT,
            LimitBookError::Invalid(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

fn invalid(error: impl fmt::Display) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, error.to_string())
}

impl Admin {
    fn check_reader(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let is =
            |guard: &Option<Guard>| guard.as_ref().is_some_and(|guard| guard.is_login(headers));
        if is(&self.read) | is(&self.write) {
            return Ok(());
        }
        Err(Self::refusal(self.read.as_ref().or(self.write.as_ref())))
    }

    fn check_writer(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.write {
            Some(guard) if guard.is_login(headers) => Ok(()),
            guard => Err(Self::refusal(guard.as_ref())),
        }
    }

    fn refusal(guard: Option<&Guard>) -> Refusal {
        if let Some(guard) = guard {
            guard.count_refusal();
        }
        Refusal(StatusCode::UNAUTHORIZED, "the token does not permit this".to_owned())
    }

    /// Puts a changed set in the store. Returns the new version.
    async fn write(
        &self,
        kept: &KeptLimits,
        set: &LimitSet,
        headers: &HeaderMap,
    ) -> Result<String, Refusal> {
        set.check(&*self.store).map_err(|error| invalid(format!("{error:#}")))?;
        let (author, reason) =
            (field(headers, "tidegate-author")?, field(headers, "tidegate-reason")?);
        let version = self.book.change(kept, set, author, reason).await?;
        Ok(format!("version {version}\n"))
    }
}

fn field<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, Refusal> {
    let value = headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    value.ok_or_else(|| invalid(format!("the header field `{name}` is missing or not UTF-8")))
}

fn tag(kept: &KeptLimits) -> String {
    format!("\"{}-{}\"", kept.version, kept.made_at.as_micros())
}

async fn show(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<Response, Refusal> {
    admin.check_reader(&headers)?;
    let kept = admin.book.read().await?;
    Ok(([(header::ETAG, tag(&kept))], kept.set.to_string()).into_response())
}

async fn history(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<String, Refusal> {
    admin.check_reader(&headers)?;
    let changes = admin.book.history(MAX_SHOWN).await?;
    Ok(changes.iter().map(|change| format!("{change}\n")).collect())
}

/// Reads the body of a change.
async fn read(admin: &Admin, request: Request) -> Result<(HeaderMap, String), Refusal> {
    let headers = request.headers().clone();
    admin.check_writer(&headers)?;
    let body =
        Payload::read(request).await.map_err(|error| Refusal(error.status, error.message))?;
    let body = String::from_utf8(body.0.into()).map_err(|_| invalid("the body is not UTF-8"))?;
    Ok((headers, body))
}

/// Checks that the set still has the version that the client expects.
fn check_version(
    headers: &HeaderMap,
    kept: &KeptLimits,
    needs_version: bool,
) -> Result<(), Refusal> {
    match headers.get(header::IF_MATCH) {
        Some(expected) if expected.as_bytes() != tag(kept).as_bytes() => Err(Refusal(
            StatusCode::PRECONDITION_FAILED,
            format!("the limit set has version {}, and not the one in If-Match", kept.version),
        )),
        None if needs_version => Err(Refusal(
            StatusCode::PRECONDITION_REQUIRED,
            "the field If-Match is missing; it must be the ETag of the replaced set".to_owned(),
        )),
        _ => Ok(()),
    }
}

async fn replace(State(admin): State<Arc<Admin>>, request: Request) -> Result<String, Refusal> {
    let (headers, body) = read(&admin, request).await?;
    let kept = admin.book.read().await?;
    check_version(&headers, &kept, true)?;
    let set = body.parse().map_err(invalid)?;
    admin.write(&kept, &set, &headers).await
}

async fn change(State(admin): State<Arc<Admin>>, request: Request) -> Result<String, Refusal> {
    let (headers, body) = read(&admin, request).await?;
    let (mut changes, mut keys) = (vec![], vec![]);
    for (index, line) in body.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at_line =
            move |error: &dyn fmt::Display| invalid(format!("line {}: {error}", index + 1));
        let (is_set, line) = match line.split_at_checked(1) {
            Some(("+", line)) => (true, line.trim()),
            Some(("-", line)) => (false, line.trim()),
            _ => return Err(at_line(&"it must begin with `+` or `-`")),
        };
        keys.push(LimitSet::key_of(line).map_err(|error| at_line(&error))?);
        changes.push((is_set, line, at_line));
    }
    let kept = admin.book.read_limits(&keys).await?;
    check_version(&headers, &kept, false)?;
    let mut set = kept.set.clone();
    for (is_set, line, at_line) in changes {
        if is_set {
            set.set_line(line).map_err(|error| at_line(&error))?;
            kept.check_end(line).map_err(|error| at_line(&error))?;
        } else if !set.remove_line(line).map_err(|error| at_line(&error))? {
            return Err(at_line(&"the limit set has no such limit"));
        }
    }
    admin.write(&kept, &set, &headers).await
}

async fn roll_back(
    State(admin): State<Arc<Admin>>,
    Path(version): Path<String>,
    headers: HeaderMap,
) -> Result<String, Refusal> {
    admin.check_writer(&headers)?;
    let version = version.parse().map_err(|_| invalid("the version is not a number"))?;
    let (author, reason) =
        (field(&headers, "tidegate-author")?, field(&headers, "tidegate-reason")?);
    let version = admin.book.roll_back(version, author, reason).await?;
    Ok(format!("version {version}\n"))
}
