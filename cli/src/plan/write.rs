//! Writes a plan as text that shows the arithmetic.

use std::io::{self, Write};
use std::time::Duration;

use tidegate_core::Policy;

use crate::report::number::thousands;

use super::cost::PERCENT_IN_BATCHES;
use super::memory::{Bytes, ID};
use super::{CPU_PERCENT, Holds, MEMORY_PERCENT, MOST_NODES, PerPolicy, Plan, SLOTS};

/// Writes a plan.
///
/// # Errors
///
/// Returns an error if writing fails.
pub fn write(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    for policy in &plan.policies {
        write_policy(policy, plan, out)?;
    }
    if let Some(holds) = &plan.holds {
        write_holds(holds, plan, out)?;
    }
    write_nodes(plan, out)?;
    write_limits(plan, out)
}

fn write_policy(of: &PerPolicy, plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    let PerPolicy { policy, bytes, busy, epoch, memory, cost, lives } = of;
    writeln!(out, "{policy}")?;
    writeln!(out, "  a state   {}", parts(bytes))?;
    if let Some(epoch) = epoch {
        writeln!(out, "  an epoch  {}, because each request is a hold", parts(epoch))?;
    }
    let total = bytes.total() + epoch.map_or(0, |epoch| epoch.total());
    let states = memory / u128::from(total.max(1));
    writeln!(out, "  memory    {} states × {total} bytes = {}", wide(states), size(*memory))?;
    if let Some(busy) = busy {
        writeln!(
            out,
            "  busy      up to {} bytes, where the log stays that full: records that are over stay \
             until they are half of it",
            busy.total(),
        )?;
    }
    writeln!(out, "  lives     up to {} after a subject's last request", span(*lives))?;
    if plan.wanted.node_decisions.is_none() {
        let calls = if policy.is_concurrent() { "hold and its settlement" } else { "decision" };
        writeln!(out, "  CPU       {} µs a {calls}", hundredths(*cost))?;
    }
    if policy.is_per_tenant() {
        writeln!(out, "  (the limit belongs to the tenant; the states are of one tenant)")?;
    }
    writeln!(out)
}

/// Returns the sum of the parts of a key and its value.
fn parts(bytes: &Bytes) -> String {
    let Bytes { name, key, value, entry, expiry, places } = bytes;
    format!(
        "key of {name} characters {key} + value {value} + entry {entry} + expiry {expiry} + places in \
         tables {places} = {} bytes",
        bytes.total(),
    )
}

fn write_holds(holds: &Holds, plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    let Holds { holders, lease, record, settled, memory, renewals_per_hour, renewal_cost } = holds;
    writeln!(out, "holds")?;
    writeln!(out, "  a record  {}, with an id of {ID} characters", parts(record))?;
    writeln!(out, "  settled   {} bytes, for up to {}", settled.total(), span(*lease * 2))?;
    writeln!(
        out,
        "  memory    {} holders × {} bytes + {} requests/s × {} × {} bytes = {}",
        wide(*holders),
        record.total(),
        rate(plan.wanted.rate_per_hour),
        span(*lease * 2),
        settled.total(),
        size(*memory),
    )?;
    let per_second = renewals_per_hour.div_ceil(3_600);
    let cost = match plan.wanted.node_decisions {
        None => format!(" × {} µs", hundredths(*renewal_cost)),
        Some(_) => String::new(),
    };
    writeln!(
        out,
        "  renewals  {} holders / ({} / 3) = {} renewals/s{cost}",
        wide(*holders),
        span(*lease),
        wide(per_second),
    )?;
    writeln!(out)
}

fn write_nodes(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    let wanted = &plan.wanted;
    writeln!(out, "nodes")?;
    writeln!(
        out,
        "  by memory {} / ({} × {MEMORY_PERCENT} %) = {}",
        size(plan.memory),
        size(wanted.node_memory.into()),
        counted(plan.by_memory, "primary", "primaries"),
    )?;
    if wanted.is_coalesced {
        writeln!(out, "  batches   {PERCENT_IN_BATCHES} % of the CPU of single calls")?;
    }
    let passed = 100_u64.saturating_sub(wanted.local_percent.into());
    let divisor = if passed < 100 { format!(" / {passed} %") } else { String::new() };
    match wanted.node_decisions {
        None => writeln!(
            out,
            "  one node  {CPU_PERCENT} % of a core / {} µs{divisor} = {} requests/s",
            hundredths(plan.cost),
            thousands(plan.requests_per_node),
        )?,
        Some(decisions) if passed < 100 || plan.holds.is_some() => writeln!(
            out,
            "  one node  {} decisions/s{}{divisor} = {} requests/s",
            thousands(decisions),
            if plan.holds.is_some() { " / 2" } else { "" },
            thousands(plan.requests_per_node),
        )?,
        Some(_) => {}
    }
    let requests = match &plan.holds {
        None => format!("{} requests/s", rate(wanted.rate_per_hour)),
        Some(_) => format!(
            "({} requests/s + renewals like {} requests/s)",
            rate(wanted.rate_per_hour),
            wide(plan.renewals.div_ceil(3_600)),
        ),
    };
    writeln!(
        out,
        "  by CPU    {requests} / {} = {}",
        thousands(plan.requests_per_node),
        counted(plan.by_cpu, "primary", "primaries"),
    )?;
    writeln!(
        out,
        "  in all    {} × (1 + {}) = {}; {} of memory on each would do",
        counted(plan.primaries(), "primary", "primaries"),
        counted(wanted.replicas.into(), "replica", "replicas"),
        counted(plan.nodes(), "node", "nodes"),
        size((plan.memory / plan.primaries() * 100).div_ceil(MEMORY_PERCENT.into())),
    )?;
    writeln!(out)
}

fn write_limits(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "to know")?;
    match plan.primaries() {
        1 => writeln!(out, "  one Redis will do: `tidegate-redis`; a cluster is not needed")?,
        nodes => writeln!(
            out,
            "  a cluster: about {} slots on each primary; a slot is on one node, and a node decides on \
             one core",
            wide(u128::from(SLOTS) / nodes.min(SLOTS.into())),
        )?,
    }
    let max = thousands(plan.requests_per_node);
    let has_pool = plan.wanted.policies.iter().any(Policy::is_fair_pool);
    if has_pool {
        writeln!(
            out,
            "  a tenant (without tenants: all subjects) can send up to {max} requests/s: a fair pool is on one node, and \
             cannot have `shards`",
        )?;
    } else {
        writeln!(
            out,
            "  a tenant (without tenants: a subject) with more than {max} requests/s needs `shards`: one node \
             decides on no more",
        )?;
    }
    if plan.nodes() > u128::from(MOST_NODES) {
        writeln!(
            out,
            "  {} nodes are more than the {} that a cluster should have: take larger nodes, batches, leases, a \
             deny cache, or several clusters",
            wide(plan.nodes()),
            thousands(MOST_NODES),
        )?;
    }
    if plan.by_memory > plan.by_cpu * 2 {
        writeln!(
            out,
            "  memory decides: shorter subjects, a shorter prefix and larger nodes help; so does an \
             algorithm that keeps less"
        )?;
    }
    if plan.renewals > u128::from(plan.wanted.rate_per_hour) {
        writeln!(
            out,
            "  the renewals take more CPU than the requests: a longer lease needs fewer renewals, but a holder that \
             has crashed keeps its slots for the lease"
        )?;
    }
    if plan.by_cpu > plan.by_memory * 2 && plan.holds.is_none() && !has_pool {
        writeln!(
            out,
            "  CPU decides: batches (--coalesced), leases of hot subjects and, where much is refused, a deny cache help \
             (--local); more memory does not"
        )?;
    }
    Ok(())
}

fn wide(number: u128) -> String {
    u64::try_from(number).map_or_else(|_| number.to_string(), thousands)
}

fn counted(number: u128, one: &str, many: &str) -> String {
    format!("{} {}", wide(number), if number == 1 { one } else { many })
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// Returns a rate in requests per second. A rate of at most 10 per second that is not a whole
/// number is written as a fraction, such as `7/3600`.
fn rate(per_hour: u64) -> String {
    if per_hour.is_multiple_of(3_600) || per_hour > 36_000 {
        return thousands(per_hour / 3_600);
    }
    format!("{}/3600", thousands(per_hour))
}

/// Returns a size in the largest unit in which the number is at least 1, such as `1.5 PiB`.
fn size(bytes: u128) -> String {
    let (mut unit, mut name) = (1, "bytes");
    for (next, next_name) in [(10, "KiB"), (20, "MiB"), (30, "GiB"), (40, "TiB"), (50, "PiB")] {
        if bytes >> next == 0 {
            break;
        }
        (unit, name) = (1_u128 << next, next_name);
    }
    if unit == 1 {
        return format!("{bytes} {name}");
    }
    let tenths = (bytes * 10 + unit / 2) / unit;
    format!("{}.{} {name}", wide(tenths / 10), tenths % 10)
}

/// Returns a duration in the largest unit that fits into it at least twice, such as `90 s` or `2.5
/// min`.
fn span(span: Duration) -> String {
    let micros = span.as_micros();
    let units =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")];
    for (unit, name) in units {
        if micros >= 2 * unit {
            let tenths = micros * 10 / unit;
            let part =
                if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
            return format!("{}{part} {name}", tenths / 10);
        }
    }
    format!("{} ms", micros.div_ceil(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_spans_are_read_at_a_glance() {
        assert_eq!(size(1_023), "1023 bytes");
        assert_eq!(size(16 << 30), "16.0 GiB");
        assert_eq!(size(1_500 << 40), "1.5 PiB");
        assert_eq!(rate(500_000 * 3_600), "500,000");
        assert_eq!(rate(7), "7/3600");
        assert_eq!(span(Duration::from_millis(1_500)), "1500 ms");
        assert_eq!(span(Duration::from_secs(90)), "90 s");
        assert_eq!(span(Duration::from_secs(150)), "2.5 min");
        assert_eq!(span(Duration::from_secs(172_800)), "2 d");
        assert_eq!(hundredths(1_305), "13.05");
    }
}
