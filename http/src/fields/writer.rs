//! Writes fields from a decision.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tidegate_core::{Decision, DegradedAnswer, Outcome, Policy, PolicyVerdict};

use super::text::{Text, check, fits, secs_ceil};
use super::{FieldError, FieldFormat, FieldScope, names};

/// Writes decisions into the fields of responses.
///
/// Build a writer once, for the policies of a limiter. The fields of a decision then cost one
/// allocation, or three in the formats with a field for each number. They cost one more if the
/// policies, or their order, differ from those of the writer. A refusal costs one more for
/// `Retry-After`.
///
/// # Values
///
/// | value | content |
/// |---|---|
/// | policy (`q`, `w`) | the limit and its window. A bucket is written as its capacity and the time in which it fills. `w` is rounded up to seconds. A window below one second is omitted, or written as 1 in the older drafts, which require it |
/// | remaining (`r`) | the remaining amount of the verdict, rounded down; 0 for a blocked subject |
/// | reset (`t`), of an admission | the time until the policy has fully recovered, rounded up; if nothing remains, the time until [more remains](PolicyVerdict::next_after) |
/// | reset (`t`), of a refusal | the wait of a policy that refuses, rounded up. The other policies have no reset, and neither has a policy for which no wait is long enough |
/// | `Retry-After` | only of a refusal: the longest wait of the policies that refuse, rounded up, and at least 1. Omitted if no wait is long enough |
///
/// In a refusal, no `t` is greater than `Retry-After`. A client that waits for the greatest `t`, or
/// for `Retry-After`, does not retry too early, provided that the store decides no other request of
/// the same subject in the meantime.
///
/// The field `RateLimit-Warning` is the list of the names of all policies that
/// [warn](Policy::warn_at), such as `"daily"`. It is absent if no policy warns.
///
/// Shadow policies are not written, except in `RateLimit-Warning`. If a decision is on more than
/// four policies, only the tightest policy of each unit is written. With another [`FieldScope`],
/// other policies are written. For a decision that [failed open](DegradedAnswer::FailedOpen), no
/// field is written, because the remaining amounts are not known. For a decision that [failed
/// closed](DegradedAnswer::FailedClosed), only `Retry-After` is written.
///
/// ```
/// use http::HeaderMap;
/// use tidegate_core::{Limiter, ManualClock};
/// use tidegate_http::fields::FieldWriter;
/// use tidegate_memory::MemoryStore;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::builder().clock(ManualClock::default()).build();
/// let limiter = Limiter::new(
///     store,
///     ["burst: token-bucket 10/1s burst 100".parse()?, "daily: fixed-window 1000/1d".parse()?],
/// )?;
/// let writer = FieldWriter::new(limiter.policies())?;
///
/// let decision = limiter.subject("alice").cost(25).acquire().await?;
/// let mut headers = HeaderMap::new();
/// writer.write(limiter.verdicts(&decision), &decision, &mut headers);
/// assert_eq!(headers["ratelimit-policy"], r#""burst";q=100;w=10, "daily";q=1000;w=86400"#);
/// assert_eq!(headers["ratelimit"], r#""burst";r=75;t=3, "daily";r=975;t=86400"#);
///
/// let refusal = limiter.subject("alice").cost(80).acquire().await?;
/// let mut headers = HeaderMap::new();
/// writer.write(limiter.verdicts(&refusal), &refusal, &mut headers);
/// assert_eq!(headers["ratelimit"], r#""burst";r=75;t=1, "daily";r=975"#);
/// assert_eq!(headers["retry-after"], "1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FieldWriter {
    format: FieldFormat,
    scope: FieldScope,
    units: Box<[PolicyUnit]>,
    /// The enforced policies for which the writer was built, in their order.
    policies: Box<[Policy]>,
    /// For each policy, the beginning of its member in `RateLimit`, such as `"burst";r=`.
    members: Box<[Text]>,
    /// The prepared value of `RateLimit-Policy` for all of `policies`.
    policy_value: Option<HeaderValue>,
}

/// A verdict that is written.
struct Written<'v> {
    /// The index of the verdict among all verdicts that a field can contain.
    place: usize,
    verdict: PolicyVerdict<'v>,
    partition_key: Option<&'v [u8]>,
}

#[derive(Debug, Clone)]
struct PolicyUnit {
    policy: Box<str>,
    unit: Box<str>,
}

/// Settings of a [`FieldWriter`], from [`FieldWriter::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "settings write nothing until a writer is built"]
pub struct FieldWriterBuilder {
    format: FieldFormat,
    scope: FieldScope,
    units: Vec<PolicyUnit>,
}

impl FieldWriterBuilder {
    /// Sets the format of the fields. The default is [`FieldFormat::Ietf11`].
    pub fn format(mut self, format: FieldFormat) -> Self {
        self.format = format;
        self
    }

    /// Sets the policies that the fields name. The default is [`FieldScope::Auto`].
    pub fn scope(mut self, scope: FieldScope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets the unit of the policy with this name, if the policy does not count requests. Examples
    /// are `content-bytes`, `concurrent-requests`, and a word of the application. Only
    /// [`FieldFormat::Ietf11`] writes the unit.
    ///
    /// ```
    /// use tidegate_core::Policy;
    /// use tidegate_http::fields::FieldWriter;
    ///
    /// let upload: Policy = "upload: token-bucket 1048576/1s".parse()?;
    /// let writer = FieldWriter::builder().unit("upload", "content-bytes").build([&upload])?;
    /// let value = writer.policy_value().unwrap();
    /// assert_eq!(value, r#""upload";q=1048576;qu="content-bytes";w=1"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unit(mut self, policy: impl Into<Box<str>>, unit: impl Into<Box<str>>) -> Self {
        let (policy, unit) = (policy.into(), unit.into());
        self.units.retain(|known| known.policy != policy);
        self.units.push(PolicyUnit { policy, unit });
        self
    }

    /// Builds a writer for decisions on these policies, such as
    /// [`Limiter::policies`](tidegate_core::Limiter::policies).
    ///
    /// The writer can also write decisions on other policies, such as a user's plan that a request
    /// contains.
    ///
    /// # Errors
    ///
    /// Returns an error if a field cannot contain the name of a policy or a unit, because the text
    /// contains a character that is not printable ASCII, or more than 1,024 characters.
    pub fn build<'p>(
        self,
        policies: impl IntoIterator<Item = &'p Policy>,
    ) -> Result<FieldWriter, FieldError> {
        let policies = policies.into_iter().filter(|policy| !policy.is_shadow());
        let mut writer = FieldWriter {
            format: self.format,
            scope: self.scope,
            units: self.units.into(),
            policies: policies.cloned().collect(),
            members: Box::default(),
            policy_value: None,
        };
        for policy in &writer.policies {
            check("name", policy.name())?;
        }
        for PolicyUnit { unit, .. } in &writer.units {
            check("unit", unit)?;
        }
        writer.members = writer.policies.iter().map(|policy| member(policy.name())).collect();
        writer.policy_value = writer.policy_text(writer.policies.iter());
        Ok(writer)
    }
}

impl FieldWriter {
    /// Creates a writer in the default format: `FieldWriter::builder().build(policies)`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`FieldWriterBuilder::build`].
    pub fn new<'p>(policies: impl IntoIterator<Item = &'p Policy>) -> Result<Self, FieldError> {
        Self::builder().build(policies)
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> FieldWriterBuilder {
        FieldWriterBuilder::default()
    }

    /// Returns this writer with another format.
    #[must_use]
    pub fn with_format(mut self, format: FieldFormat) -> Self {
        self.format = format;
        self.policy_value = self.policy_text(self.policies.iter());
        self
    }

    /// Returns this writer with another scope.
    #[must_use]
    pub fn with_scope(mut self, scope: FieldScope) -> Self {
        self.scope = scope;
        self
    }

    /// Returns the format of the fields.
    #[must_use]
    pub fn format(&self) -> FieldFormat {
        self.format
    }

    /// Returns the scope, which determines the policies that the fields name.
    #[must_use]
    pub fn scope(&self) -> FieldScope {
        self.scope
    }

    /// Returns the field `RateLimit-Policy` of all policies that the writer was built for,
    /// regardless of the scope. Returns `None` if the format has no such field, or if all policies
    /// are shadows.
    #[must_use]
    pub fn policy_value(&self) -> Option<&HeaderValue> {
        self.policy_value.as_ref()
    }

    /// Writes the fields of a decision. The verdicts come from
    /// [`Limiter::verdicts`](tidegate_core::Limiter::verdicts) or
    /// [`MultiRequest::verdicts`](tidegate_core::MultiRequest::verdicts).
    ///
    /// If another layer has already written `RateLimit` fields, [`FieldFormat::Ietf11`] adds its
    /// lists to them. All other fields are replaced. If a field cannot contain the name of a
    /// policy, the policy is omitted. This never happens to the policies that the writer was built
    /// for.
    pub fn write<'v>(
        &self,
        verdicts: impl IntoIterator<Item = PolicyVerdict<'v>>,
        decision: &Decision,
        headers: &mut HeaderMap,
    ) {
        let verdicts = verdicts.into_iter().map(|verdict| (verdict, None));
        // The clock is read only if the format needs the time, because reading the clock may be a
        // system call.
        self.write_with(verdicts, decision, headers, SystemTime::now);
    }

    /// Like [`write`](Self::write), but takes the current time, which
    /// [`FieldFormat::XRateLimitEpoch`] needs.
    pub fn write_at<'v>(
        &self,
        now: SystemTime,
        verdicts: impl IntoIterator<Item = PolicyVerdict<'v>>,
        decision: &Decision,
        headers: &mut HeaderMap,
    ) {
        let verdicts = verdicts.into_iter().map(|verdict| (verdict, None));
        self.write_with(verdicts, decision, headers, || now);
    }

    /// Like [`write`](Self::write), but takes a partition key with each verdict. In the format
    /// [`FieldFormat::Ietf11`], the key becomes the parameter `pk` of the field `RateLimit`. `None`
    /// discloses no partition.
    ///
    /// A key must not disclose more about a subject than its client may know. Use a keyed hash of
    /// the subject, as `Limit::partition_key` of the layer does, instead of the subject itself.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tidegate_core::Limiter;
    /// use tidegate_http::fields::FieldWriter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), ["user: fixed-window 100/1h".parse()?])?;
    /// let writer = FieldWriter::new(limiter.policies())?;
    /// let decision = limiter.subject("alice").acquire().await?;
    ///
    /// let mut headers = HeaderMap::new();
    /// let verdicts = limiter.verdicts(&decision).map(|verdict| (verdict, Some(&b"partition 7"[..])));
    /// writer.write_partitioned(verdicts, &decision, &mut headers);
    /// let value = headers["ratelimit"].to_str()?;
    /// assert!(value.ends_with(";pk=:cGFydGl0aW9uIDc=:"), "{value}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_partitioned<'v>(
        &self,
        verdicts: impl IntoIterator<Item = (PolicyVerdict<'v>, Option<&'v [u8]>)>,
        decision: &Decision,
        headers: &mut HeaderMap,
    ) {
        self.write_with(verdicts, decision, headers, SystemTime::now);
    }

    fn write_with<'v>(
        &self,
        verdicts: impl IntoIterator<Item = (PolicyVerdict<'v>, Option<&'v [u8]>)>,
        decision: &Decision,
        headers: &mut HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) {
        let is_denied = decision.is_denied();
        if is_denied && let Some(secs) = decision.retry_after_secs() {
            insert_integer(headers, RETRY_AFTER, secs);
        }
        match decision.degraded().map(|degraded| degraded.answer) {
            None | Some(DegradedAnswer::FellBack) => {}
            // Nothing is known.
            Some(_) => return,
        }
        let mut warnings = Text::default();
        let add_warning = |(verdict, _): &(PolicyVerdict<'v>, _)| {
            if verdict.warns() {
                warnings.next_member();
                warnings.push_string(verdict.name());
            }
        };
        let fit = verdicts.into_iter().filter(|(verdict, _)| fits(verdict.name()));
        let enforced = fit.inspect(add_warning).filter(|(verdict, _)| !verdict.is_shadow());
        // Another alternative pays, so the amount of a skipped policy limits nothing.
        let is_effective = |verdict: &PolicyVerdict<'v>| verdict.outcome() != Outcome::Skipped;
        let verdicts = enforced.enumerate().filter(|(_, (verdict, _))| is_effective(verdict));
        let mut verdicts: SmallVec<[Written<'v>; 4]> = verdicts
            .map(|(place, (verdict, partition_key))| Written { place, verdict, partition_key })
            .collect();
        if !warnings.is_empty()
            && let Some(value) = warnings.to_value()
        {
            append(headers, names::RATELIMIT_WARNING, value);
        }
        if verdicts.is_empty() {
            return;
        }
        if self.scope.is_narrower_than(verdicts.len()) {
            let places = self.tightest_of_units(&verdicts);
            verdicts.retain(|written| places.contains(&written.place));
        }
        match self.format {
            FieldFormat::Ietf11 => self.write_all(&verdicts, is_denied, headers),
            _ => self.write_tightest(&verdicts, is_denied, headers, now),
        }
    }

    /// Returns [`Written::place`] of the tightest verdict of each unit. Among equally tight
    /// verdicts, the first counts.
    fn tightest_of_units(&self, verdicts: &[Written<'_>]) -> SmallVec<[usize; 4]> {
        let mut tightest: SmallVec<[(Option<&str>, &Written<'_>); 4]> = SmallVec::new();
        for written in verdicts {
            let unit = self.unit(written.verdict.policy());
            match tightest.iter_mut().find(|(known, _)| *known == unit) {
                None => tightest.push((unit, written)),
                Some((_, known)) if tightness(&written.verdict) > tightness(&known.verdict) => {
                    *known = written;
                }
                Some(_) => {}
            }
        }
        tightest.iter().map(|(_, written)| written.place).collect()
    }

    fn write_all(&self, verdicts: &[Written<'_>], is_denied: bool, headers: &mut HeaderMap) {
        let mut text = Text::default();
        for Written { place, verdict, partition_key } in verdicts {
            text.next_member();
            match self.policies.iter().zip(&self.members).nth(*place) {
                Some((known, member)) if verdict.policy().is_same_object(known) => {
                    text.push(member);
                }
                _ => text.push(&member(verdict.name())),
            }
            text.push_integer(verdict.remaining());
            // The time at which a slot becomes free is not known, and credits never recover.
            let has_reset = has_window(verdict.policy());
            if let Some(reset) = reset(verdict, is_denied).filter(|_| has_reset) {
                text.push_str(";t=");
                text.push_integer(reset);
            }
            if let Some(key) = partition_key {
                text.push_str(";pk=");
                text.push_bytes(key);
            }
        }
        if let Some(value) = self.policy_value_of(verdicts) {
            append(headers, names::RATELIMIT_POLICY, value);
        }
        if let Some(value) = text.to_value() {
            append(headers, names::RATELIMIT, value);
        }
    }

    fn write_tightest(
        &self,
        verdicts: &[Written<'_>],
        is_denied: bool,
        headers: &mut HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) {
        // A verdict without a unit takes precedence, because the older fields cannot name a unit.
        // Among equally tight verdicts, the first counts.
        let tightest =
            verdicts.iter().map(|written| &written.verdict).rev().max_by_key(|verdict| {
                let (wait, ..) = tightness(verdict);
                (wait, self.unit(verdict.policy()).is_none(), tightness(verdict))
            });
        let Some(tightest) = tightest else { return };
        let reset = reset(tightest, is_denied).filter(|_| has_window(tightest.policy()));
        let fields = match self.format {
            FieldFormat::Ietf07 => {
                // Draft 07 requires the reset, so a limit without a reset cannot be written.
                if let Some(reset) = reset {
                    insert(headers, names::RATELIMIT, &dictionary(tightest, reset));
                }
                None
            }
            FieldFormat::Ietf06 => {
                Some((names::RATELIMIT_LIMIT, names::RATELIMIT_REMAINING, names::RATELIMIT_RESET))
            }
            _ => Some((
                names::X_RATELIMIT_LIMIT,
                names::X_RATELIMIT_REMAINING,
                names::X_RATELIMIT_RESET,
            )),
        };
        if let Some((limit_name, remaining_name, reset_name)) = fields {
            insert(headers, limit_name, &self.limit_value(tightest, verdicts));
            insert_integer(headers, remaining_name, tightest.remaining());
            if let Some(reset) = reset {
                let reset = match self.format {
                    FieldFormat::XRateLimitEpoch => epoch_after(now(), reset),
                    _ => reset,
                };
                insert_integer(headers, reset_name, reset);
            }
        }
        if let Some(value) = self.policy_value_of(verdicts) {
            insert_value(headers, names::RATELIMIT_POLICY, value);
        }
    }

    /// Returns the value of the field for the limit. In the format of Envoy, the policies follow
    /// the limit: `100, 100;w=60;name="burst"`.
    fn limit_value(&self, tightest: &PolicyVerdict<'_>, verdicts: &[Written<'_>]) -> Text {
        let mut text = Text::default();
        text.push_integer(tightest.limit());
        if self.format == FieldFormat::EnvoyDraft03 {
            // The format requires a window, and slots and credits have none.
            let with_windows =
                verdicts.iter().filter(|written| has_window(written.verdict.policy()));
            for Written { verdict, .. } in with_windows {
                text.next_member();
                push_numbered(&mut text, verdict.policy());
                text.push_str(";name=");
                text.push_string(verdict.name());
            }
        }
        text
    }

    fn unit(&self, policy: &Policy) -> Option<&str> {
        let known = self.units.iter().find(|known| *known.policy == *policy.name());
        let slot_unit = policy.is_concurrent().then_some("concurrent-requests");
        known.map(|known| &*known.unit).or(slot_unit)
    }

    /// Returns the value of `RateLimit-Policy`. For the policies that the writer was built for,
    /// this value is already prepared.
    fn policy_value_of(&self, verdicts: &[Written<'_>]) -> Option<HeaderValue> {
        let policies = verdicts.iter().map(|written| written.verdict.policy());
        let mut pairs = policies.clone().zip(&self.policies);
        let is_prepared = verdicts.len() == self.policies.len()
            && pairs.all(|(policy, known)| policy.is_same_object(known) || policy == known);
        if is_prepared {
            return self.policy_value.clone();
        }
        self.policy_text(policies)
    }

    fn policy_text<'p>(&self, policies: impl Iterator<Item = &'p Policy>) -> Option<HeaderValue> {
        let policies: SmallVec<[&Policy; 4]> = policies.collect();
        let mut text = Text::default();
        for (place, policy) in policies.iter().enumerate() {
            match self.format {
                FieldFormat::Ietf11 => self.push_named(&mut text, policy),
                FieldFormat::Ietf07 | FieldFormat::Ietf06 => {
                    // In drafts 04 to 07, a field must not contain two policies with the same
                    // limit. Only the first is written.
                    let mut before = policies.iter().take(place);
                    if has_window(policy)
                        && !before.any(|other| has_window(other) && other.limit() == policy.limit())
                    {
                        text.next_member();
                        push_numbered(&mut text, policy);
                    }
                }
                FieldFormat::EnvoyDraft03
                | FieldFormat::XRateLimit
                | FieldFormat::XRateLimitEpoch => {}
            }
        }
        if text.is_empty() { None } else { text.to_value() }
    }

    fn push_named(&self, text: &mut Text, policy: &Policy) {
        text.next_member();
        text.push_string(policy.name());
        text.push_str(";q=");
        text.push_integer(policy.limit());
        if let Some(unit) = self.unit(policy) {
            text.push_str(";qu=");
            text.push_string(unit);
        }
        if has_window(policy) && policy.window() >= Duration::from_secs(1) {
            text.push_str(";w=");
            text.push_integer(secs_ceil(policy.window()));
        }
    }
}

/// Returns `false` for slots and for credits.
fn has_window(policy: &Policy) -> bool {
    !policy.is_concurrent() && !policy.is_credits()
}

/// Returns a key that orders verdicts by tightness. A verdict that refuses is tighter than a
/// verdict that admits. Among verdicts that refuse, a longer wait is tighter, and a verdict for
/// which no wait is long enough is the tightest. Among verdicts that admit, a smaller remaining
/// amount is tighter, and then a later reset.
fn tightness(verdict: &PolicyVerdict<'_>) -> (Option<Duration>, Reverse<u64>, Duration) {
    let wait = verdict.refuses().then(|| verdict.retry_after().unwrap_or(Duration::MAX));
    (wait, Reverse(verdict.remaining()), verdict.reset_after())
}

/// Appends a policy in the syntax of the older drafts, which require a window of at least one
/// second.
fn push_numbered(text: &mut Text, policy: &Policy) {
    text.push_integer(policy.limit());
    text.push_str(";w=");
    text.push_integer(secs_ceil(policy.window()).max(1));
}

/// Returns the beginning of a member of `RateLimit`, such as `"burst";r=`.
fn member(name: &str) -> Text {
    let mut text = Text::default();
    text.push_string(name);
    text.push_str(";r=");
    text
}

/// Returns the reset `t` of a verdict, in seconds. Returns `None` if the verdict has no reset.
fn reset(verdict: &PolicyVerdict<'_>, is_denied: bool) -> Option<u64> {
    let span = match is_denied {
        // A client waits for `t` if nothing remains. A bucket can admit long before it is full.
        false if verdict.remaining() == 0 => Some(verdict.next_after()),
        false => Some(verdict.reset_after()),
        true if verdict.refuses() => verdict.retry_after(),
        true => None,
    };
    // In a refusal, a wait of zero is written as 1, as in `Retry-After`.
    span.map(|span| secs_ceil(span).max(u64::from(is_denied)))
}

/// Returns the value of `RateLimit` in the syntax of draft 07.
fn dictionary(verdict: &PolicyVerdict<'_>, reset: u64) -> Text {
    let mut text = Text::default();
    text.push_str("limit=");
    text.push_integer(verdict.limit());
    text.push_str(", remaining=");
    text.push_integer(verdict.remaining());
    text.push_str(", reset=");
    text.push_integer(reset);
    text
}

/// Returns the time that is `secs` after `now`, as whole seconds since 1970, rounded up.
fn epoch_after(now: SystemTime, secs: u64) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    secs_ceil(since).saturating_add(secs)
}

// A `HeaderMap` holds at most 32,768 fields. If the map is full, the following functions write
// nothing.

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &Text) {
    if let Some(value) = text.to_value() {
        insert_value(headers, name, value);
    }
}

fn insert_value(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_insert(name, value);
}

fn insert_integer(headers: &mut HeaderMap, name: HeaderName, number: u64) {
    let mut text = Text::default();
    text.push_integer(number);
    insert(headers, name, &text);
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_append(name, value);
}
