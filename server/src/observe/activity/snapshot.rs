use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::bans::Ban;
use super::counts::{History, Kind, Widths};
use super::loads::{FollowedSet, Loads, Names};
use super::minutes::{Near, Refused};
use super::shown::{Cut, shown};
use super::slow::SlowCall;
use super::stores::WatchedStore;
use super::warnings::Warned;
use super::{Activity, LimitName, LimitsQuery, NEAR_PERCENT, Samples, lock};
use crate::store::OnStoreError;

/// The maximum number of refused subjects in a snapshot.
const SHOWN_SUBJECTS: usize = 20;

/// The outcomes that are shown for each limit.
const KINDS: [Kind; 3] = [Kind::Admitted, Kind::Refused, Kind::Shadow];

impl Activity {
    /// Returns the present state of the server, as `GET /activity` returns it. `docs/guide/page.md`
    /// in the repository describes the query and the units of the fields.
    #[must_use]
    pub fn snapshot(&self, query: &LimitsQuery) -> Value {
        // Every thread acquires the locks of `samples` and `loads` in this order, so that no
        // deadlock is possible.
        let Samples { widths, totals, .. } = &*lock(&self.samples);
        let loads = &*lock(&self.loads);
        let (limits, other_limits) = self.limit_rows(query, widths, loads);
        let (refused, top) = self.refusals.top(SHOWN_SUBJECTS);
        let subjects = top.into_iter().map(|(estimate, Refused { limit, cut, blocked })| {
            let mut fields = Map::new();
            fields.insert("limit".into(), limit.text().into());
            put_subject(&mut fields, cut);
            fields.insert("at_least".into(), estimate.at_least.into());
            fields.insert("at_most".into(), estimate.at_most.into());
            let until = blocked.map(|blocked| millis(blocked.until));
            fields.insert("blocked_until_ms".into(), until.into());
            fields.insert("block_level".into(), blocked.map_or(0, |blocked| blocked.level).into());
            Value::Object(fields)
        });
        let mut errors = Vec::new();
        self.errors.for_each(|kind, series| {
            errors.push(json!({
                "kind": kind,
                "total": series.total(),
                "per_second": series.rate_now(widths),
                "history": series.rates(widths),
            }));
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "now_ms": millis(SystemTime::now()),
            "started_ms": millis(self.started),
            "problems": problems(&self.stores, loads),
            "totals": rates(totals, widths, &[Kind::Admitted, Kind::Refused, Kind::Failed]),
            "limits": limits,
            "other_limits": other_limits,
            "refused_subjects": {
                "are_shown": self.settings.shows_subjects,
                "refusals": refused,
                "top": subjects.collect::<Vec<_>>(),
            },
            "near_subjects": self.near_subjects(query),
            "slow_calls": self.slow.top().into_iter().map(slow_call).collect::<Vec<_>>(),
            "bans": self.bans.last().into_iter().map(ban).collect::<Vec<_>>(),
            "warnings": self.warnings.last().into_iter().map(warned).collect::<Vec<_>>(),
            "stores": self.stores.iter().map(store).collect::<Vec<_>>(),
            "on_store_error": match self.settings.on_store_error {
                OnStoreError::Error => "error".to_owned(),
                OnStoreError::Allow => "allow".to_owned(),
                OnStoreError::Deny => "deny".to_owned(),
                OnStoreError::Share(share) => format!("share:{share}"),
            },
            "errors": errors,
            "configuration": configuration(loads),
        })
    }

    /// Returns the subjects near the limits that the query selects. A subject whose usage has
    /// fallen since then is also contained.
    fn near_subjects(&self, query: &LimitsQuery) -> Value {
        let (is_complete, near) = self.near.separated();
        let is_selected = |near: &Near| query.selects(&near.limit.text());
        let mut near: Vec<Near> = near.into_iter().filter(is_selected).collect();
        near.sort_by_key(|near| Reverse((near.usage.percent(), near.at)));
        let top = near.iter().take(SHOWN_SUBJECTS).map(|near| {
            let mut fields = Map::new();
            fields.insert("limit".into(), near.limit.text().into());
            put_subject(&mut fields, near.cut.clone());
            fields.insert("used".into(), near.usage.used.into());
            fields.insert("of".into(), near.usage.limit.into());
            fields.insert("at_ms".into(), millis(near.at).into());
            Value::Object(fields)
        });
        json!({
            "are_shown": self.settings.shows_subjects,
            "percent": NEAR_PERCENT,
            "count": near.len(),
            "is_complete": is_complete,
            "top": top.collect::<Vec<_>>(),
        })
    }

    /// Returns the rows of the limits that the query lists, in the order of the query. The second
    /// value contains the sums of the selected limits that are not among these rows.
    fn limit_rows(
        &self,
        query: &LimitsQuery,
        widths: &Widths,
        loads: &Loads,
    ) -> (Vec<Value>, Value) {
        let mut order = Vec::new();
        self.for_each_limit(|name, history| {
            let key = name.and_then(|name| query.key(name.text(), history, widths));
            order.extend(key.zip(name.cloned()));
        });
        order.sort_by(|(a, _), (b, _)| query.compare(a, b));
        let others = order.split_off(order.len().min(query.rows));
        let others: HashSet<LimitName> = others.into_iter().map(|(_, name)| name).collect();
        let places: HashMap<LimitName, usize> =
            order.into_iter().enumerate().map(|(place, (_, name))| (name, place)).collect();

        let policies = policies(&places, loads);
        let mut rows = vec![Value::Null; places.len()];
        let mut other = [0.0; KINDS.len()];
        self.for_each_limit(|name, history| {
            // The call without a name is for the sums of all limits beyond `MAX_LIMITS`.
            let is_other = name.map_or(query.name.is_empty(), |name| others.contains(name));
            let row = name.and_then(|name| Some((name, rows.get_mut(*places.get(name)?)?)));
            match row {
                Some((name, row)) => {
                    let mut fields = rates(history, widths, &KINDS);
                    fields.insert("limit".into(), name.text().into());
                    let is_of_files = matches!(name, LimitName::Key(_));
                    let source = if is_of_files { "files" } else { "calls" };
                    fields.insert("source".into(), source.into());
                    fields.insert("policy".into(), policies.get(name).cloned().into());
                    *row = Value::Object(fields);
                }
                None if is_other => add(&mut other, history, widths),
                // The query does not select this limit, or its first decision was made after the
                // order was determined.
                None => {}
            }
        });
        let mut fields = Map::new();
        fields.insert("count".into(), others.len().into());
        for (kind, rate) in KINDS.into_iter().zip(other) {
            fields.insert(format!("{}_per_second", kind.as_str()), rate.into());
        }
        // The row of a limit is missing if the limit was removed after the order was determined.
        rows.retain(|row| !row.is_null());
        (rows, Value::Object(fields))
    }

    /// Calls `see` for each limit. For the sums of the limits beyond `MAX_LIMITS`, calls `see`
    /// without a name: once for limits of the files, and once for policies of calls.
    fn for_each_limit(&self, mut see: impl FnMut(Option<&LimitName>, &History)) {
        self.limits.for_each(|key, history| {
            see(key.map(|key| LimitName::Key(key.clone())).as_ref(), history);
        });
        self.policies.for_each(|policy, history| {
            see(policy.map(|policy| LimitName::Policy(policy.clone())).as_ref(), history);
        });
    }
}

#[expect(clippy::float_arithmetic, reason = "it is only shown")]
fn add(sums: &mut [f64; KINDS.len()], history: &History, widths: &Widths) {
    for (sum, kind) in sums.iter_mut().zip(KINDS) {
        *sum += history.series(kind).rate_now(widths);
    }
}

/// Returns the texts of the limits in `names` that the current configuration contains.
fn policies(names: &HashMap<LimitName, usize>, loads: &Loads) -> HashMap<LimitName, String> {
    let mut texts = HashMap::new();
    if let Some(in_force) = &loads.in_force {
        in_force.config.for_each_limit(&mut |limit| {
            let name = LimitName::Key(limit.stat_key.clone());
            if names.contains_key(&name) {
                texts.insert(name, shown(limit.to_string().as_bytes()));
            }
        });
    }
    texts
}

fn rates(history: &History, widths: &Widths, kinds: &[Kind]) -> Map<String, Value> {
    let mut fields = Map::new();
    for kind in kinds {
        let (name, series) = (kind.as_str(), history.series(*kind));
        fields.insert(format!("{name}_per_second"), series.rate_now(widths).into());
        fields.insert(format!("{name}_history"), series.rates(widths).into());
    }
    fields
}

fn put_subject(fields: &mut Map<String, Value>, cut: Option<Cut>) {
    let (tenant, subject) = cut.map(|cut| (cut.tenant.text(), cut.subject.text())).unzip();
    fields.insert("subject".into(), subject.into());
    let tenant = tenant.filter(|tenant: &String| !tenant.is_empty());
    fields.insert("tenant".into(), tenant.into());
}

fn slow_call(call: SlowCall) -> Value {
    let mut fields = Map::new();
    fields.insert("at_ms".into(), millis(call.at).into());
    fields.insert("took_us".into(), call.took.as_micros().try_into().unwrap_or(u64::MAX).into());
    fields.insert("protocol".into(), call.source.as_str().into());
    fields.insert("calls".into(), call.calls.into());
    fields.insert("limit".into(), call.limit.map(|limit| limit.text()).into());
    fields.insert("other_limits".into(), call.other_limits.into());
    fields.insert("outcome".into(), call.outcome.into());
    put_subject(&mut fields, call.subject);
    Value::Object(fields)
}

fn ban(ban: Ban) -> Value {
    let (end, reason) = ban.end_and_reason.unzip();
    let mut fields = Map::new();
    fields.insert("at_ms".into(), millis(ban.at).into());
    fields.insert("protocol".into(), ban.source.as_str().into());
    fields.insert("limit".into(), ban.limit.text().into());
    put_subject(&mut fields, ban.subject);
    fields.insert("until_ms".into(), end.map(millis).into());
    fields.insert("reason".into(), reason.map(|reason| shown(reason.as_bytes())).into());
    Value::Object(fields)
}

fn warned(warned: Warned) -> Value {
    let mut fields = Map::new();
    fields.insert("at_ms".into(), millis(warned.at).into());
    fields.insert("limit".into(), shown(warned.policy.to_string().as_bytes()).into());
    put_subject(&mut fields, warned.subject);
    fields.insert("remaining".into(), warned.remaining.into());
    Value::Object(fields)
}

fn store(store: &WatchedStore) -> Value {
    let state = store.state();
    let since = state.as_ref().map(|state| millis(state.since));
    let answer = state.map(|state| state.answer.map(|took| took.as_micros()));
    let breaker = store.breaker();
    json!({
        "role": store.role(),
        "url": store.url(),
        "answers": answer.as_ref().map(Result::is_ok),
        "since_ms": since,
        "probe_us": answer.as_ref().and_then(|answer| answer.as_ref().ok()).map(|micros| u64::try_from(*micros).unwrap_or(u64::MAX)),
        "error": answer.and_then(Result::err),
        "breaker": breaker.map(|(state, _)| state),
        "breaker_opened": breaker.map(|(_, opened)| opened),
        "leases": store.leases().map(|leases| json!({
            "subjects": leases.len(),
            "local": leases.local(),
            "passed": leases.passed(),
        })),
    })
}

/// Returns the most important problems for an operator, as sentences.
fn problems(stores: &[WatchedStore], loads: &Loads) -> Vec<String> {
    let mut problems = Vec::new();
    for store in stores {
        let (role, url) = (store.role(), store.url());
        match (store.state().map(|state| state.answer), store.breaker()) {
            (Some(Err(error)), _) => {
                problems.push(format!("The store {url} ({role}) does not answer: {error}"));
            }
            (_, Some((state, _))) if state != "closed" => {
                problems
                    .push(format!("The circuit breaker of the store {url} ({role}) is {state}."));
            }
            _ => {}
        }
    }
    if loads.in_force.is_none() {
        problems.push("No limits are in force.".to_owned());
    }
    // The reason can contain a subject, so only the log has it.
    if let Some(FollowedSet { version, is_current: false }) = loads.limit_set {
        problems.push(match version {
            0 => "The limit set is not in force: see the log.".to_owned(),
            _ => format!("The limit set cannot be updated, and version {version} stays in force: see the log."),
        });
    }
    if let Some(refused) = loads.refused.as_ref().filter(|refused| refused.is_last) {
        let error = &refused.error;
        problems.push(format!("The last change of the limits is not in force: {error}"));
    }
    problems
}

fn configuration(loads: &Loads) -> Value {
    let names = |names: &Names| json!({"count": names.count, "first": names.first});
    let in_force = loads.in_force.as_ref().map(|in_force| {
        json!({
            "at_ms": millis(in_force.at),
            "limits": in_force.limits,
            "domains": names(&in_force.domains),
            "files": names(&in_force.files),
        })
    });
    let refused = loads
        .refused
        .as_ref()
        .map(|refused| json!({"at_ms": millis(refused.at), "error": refused.error, "is_last": refused.is_last}));
    let version = loads.limit_set.map(|set| set.version);
    json!({"loads": loads.changes, "in_force": in_force, "refused": refused, "limit_set_version": version})
}

/// Returns the milliseconds since 1970.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
