//! The commands that need the feature `redis`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::policy;
use crate::command::Failure;
use crate::outputs;
use tidegate::plan::memory::Names;
use tidegate::plan::{self, Wanted, units};
use tidegate::scripts;
use tidegate_core::Policy;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Plan(Plan),
    Scripts(Scripts),
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Plan(plan) => plan.run(),
            Self::Scripts(scripts) => scripts.run(),
        }
    }
}

/// Calculate the memory, nodes and CPU that a number of subjects takes in Redis.
///
/// The command computes these numbers from measurements on one machine, which docs/scale.md
/// describes.
#[derive(Debug, Args)]
#[command(after_long_help = PLANS)]
pub(crate) struct Plan {
    /// Number of subjects that have a state at one time: the subjects with a request within the
    /// lifetime of a key. The plan shows this lifetime for each policy.
    #[arg(long, value_name = "COUNT", value_parser = subjects)]
    subjects: u64,

    /// Policy that each request is charged to. The option can be repeated.
    #[arg(short, long, required = true, value_name = "POLICY", value_parser = policy)]
    policy: Vec<Policy>,

    /// Rate of the requests of all subjects together, such as `500k/s`, `20M/m` or `100/h`.
    #[arg(long, value_name = "COUNT/UNIT", value_parser = units::rate_per_hour)]
    rate: u64,

    /// Memory of a node.
    #[arg(long, value_name = "BYTES", default_value = "16GiB", value_parser = node_memory)]
    node_memory: u64,

    /// Maximum number of decisions per second of a node. Default: calculated from the CPU time of
    /// the policies.
    #[arg(long, value_name = "COUNT", value_parser = node_decisions)]
    node_decisions: Option<u64>,

    /// Plan for callers that share batches (`.coalesced()`), so that a decision costs a node half
    /// as much.
    #[arg(long, conflicts_with = "node_decisions")]
    coalesced: bool,

    /// Percentage of the requests that are decided without a node, by leases or by the deny cache.
    /// The metrics of leases and of the deny cache report this percentage.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    local: u8,

    /// Number of replicas of each primary.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=9))]
    replicas: u8,

    /// Length of a subject, in bytes.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    subject_bytes: u32,

    /// Length of a tenant, in bytes; 0 if there are no tenants.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    tenant_bytes: u32,

    /// Prefix of the keys.
    #[arg(long, default_value = "tidegate")]
    prefix: String,

    /// Number of records in the sliding log of a subject. Default: a full log.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    log_records: Option<u64>,

    /// Number of holders of a subject at one time, for policies of slots. Each request is then a
    /// hold of all policies. Default: as many holders as there are slots.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    holders: Option<u64>,

    /// Number of open grants of a subject, for quotas and credits. The plan does not include the
    /// ids of grants, which a store remembers for 400 days.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=16))]
    grants: u8,
}

const PLANS: &str = "\
Examples:
  tidegate plan --subjects 100M --policy 'api: token-bucket 10/1s burst 20' --rate 500k/s
  tidegate plan --subjects 1B --rate 2M/s --node-memory 64GiB --replicas 2 --tenant-bytes 8 \
--policy 'second: token-bucket 10/1s' --policy 'day: sliding-counter 10000/1d'
  tidegate plan --subjects 5M --rate 20k/s --policy 'login: sliding-log 100/1h' --log-records 4
  tidegate plan --subjects 20k --rate 500/s --policy 'streams: concurrent 10 lease 30s' --holders 2
  tidegate plan --subjects 2M --rate 9k/s --policy 'plan: quota 1000/month in UTC' --grants 3
  tidegate plan --subjects 500 --rate 9k/s --policy 'pool: fair-pool 300000/1m'
  tidegate plan --subjects 1M --rate 1M/s --policy 'ingest: fixed-window 1000000/1m' --coalesced --local 90";

impl Plan {
    fn run(&self) -> Result<(), Failure> {
        self.check()?;
        let plan = plan::Plan::new(self.wanted());
        let mut out = BufWriter::new(io::stdout().lock());
        plan::write(&plan, &mut out)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::writing("the plan", &error))
    }

    fn check(&self) -> Result<(), Failure> {
        if self.grants > 0 && !self.policy.iter().any(Policy::is_quota) {
            let message = "--grants needs a quota or credits, such as `credits 500`";
            return Err(Failure::Usage(message.to_owned()));
        }
        if self.local > 0
            && let Some(pool) = self.policy.iter().find(|policy| policy.is_fair_pool())
        {
            return Err(Failure::Usage(format!(
                "--local is {}; it must be 0 with a fair pool such as `{pool}`, because the pool must see each request",
                self.local
            )));
        }
        let has_slots = self.policy.iter().any(Policy::is_concurrent);
        let message = match (has_slots, self.holders) {
            (false, Some(_)) => {
                "--holders needs a policy of slots, such as `concurrent 10 lease 30s`"
            }
            (true, _) if self.coalesced => {
                "--coalesced is not possible with a policy of slots; the CPU of slots in batches was not measured"
            }
            _ => return Ok(()),
        };
        Err(Failure::Usage(message.to_owned()))
    }

    /// Returns the input of the plan.
    fn wanted(&self) -> Wanted {
        let len = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        Wanted {
            policies: self.policy.clone(),
            subjects: self.subjects,
            rate_per_hour: self.rate,
            node_memory: self.node_memory,
            node_decisions: self.node_decisions,
            is_coalesced: self.coalesced,
            local_percent: self.local,
            replicas: self.replicas.into(),
            names: Names {
                prefix: self.prefix.clone(),
                tenant_bytes: len(self.tenant_bytes),
                subject_bytes: len(self.subject_bytes),
            },
            log_records: self.log_records,
            holders: self.holders,
            grants: self.grants.into(),
        }
    }
}

fn subjects(text: &str) -> Result<u64, String> {
    at_least(units::count(text)?, 1, "subjects; there is at least 1")
}

fn node_memory(text: &str) -> Result<u64, String> {
    at_least(units::bytes(text)?, 64 << 20, "bytes are too few for a Redis; at least 64MiB")
}

fn node_decisions(text: &str) -> Result<u64, String> {
    at_least(units::count(text)?, 1, "decisions a second; a node makes at least 1")
}

fn at_least(number: u64, min: u64, or_else: &str) -> Result<u64, String> {
    if number < min { Err(format!("{number} {or_else}")) } else { Ok(number) }
}

/// Print the Lua scripts that a Redis server executes.
///
/// Without arguments, this command lists the scripts with their sizes and SHA-1 digests. EVALSHA
/// and the log of the server show these digests.
#[derive(Debug, Args)]
#[command(after_long_help = SCRIPTS)]
pub(crate) struct Scripts {
    /// Name of a script to print.
    name: Option<String>,

    /// Folder to write all scripts to, each to its own file.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["name", "call"])]
    dir: Option<PathBuf>,

    /// Policy of one call. Prints a shell command that makes this call, because the argument of a
    /// script is binary.
    #[arg(long, value_name = "POLICY", value_parser = policy, conflicts_with = "name")]
    call: Option<Policy>,

    /// Subject of the call.
    #[arg(long, default_value = "alice", requires = "call")]
    subject: String,

    /// Cost of the call.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "call")]
    cost: u64,

    /// Prefix of the keys.
    #[arg(long, default_value = "tidegate", requires = "call")]
    prefix: String,
}

const SCRIPTS: &str = "\
Examples:
  tidegate scripts token_bucket
  tidegate scripts --dir scripts
  cd scripts && tidegate scripts --call 'api: token-bucket 10/1s burst 20' --subject alice | sh

The header of each script describes its keys, its argument and its reply. `batch` decides all calls \
that the other scripts do not decide: several charges, other operations, and several calls together.";

impl Scripts {
    fn run(&self) -> Result<(), Failure> {
        if let Some(folder) = &self.dir {
            return scripts::write_all(folder)
                .map_err(|error| Failure::writing(&outputs::shown(folder), &error));
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let written = if let Some(policy) = &self.call {
            scripts::write_call(&self.prefix, policy, &self.subject, self.cost, &mut out)
                .map_err(|error| Failure::Usage(format!("--call: {error:#}")))?
        } else if let Some(name) = &self.name {
            let Some(script) = scripts::find(name) else {
                let names = scripts::names().join(", ");
                return Err(Failure::Usage(format!(
                    "`{name}` is not a script; the scripts are {names}"
                )));
            };
            out.write_all(script.code().as_bytes())
        } else {
            scripts::list(&mut out)
        };
        written.and_then(|()| out.flush()).map_err(|error| Failure::writing("the output", &error))
    }
}
