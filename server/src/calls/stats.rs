use metrics::{Counter, counter};

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The command was executed.
    Done,
    /// A policy refused the command.
    Refused,
    /// The command failed with an error.
    Failed,
}

impl Outcome {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Done, "done"), (Self::Refused, "refused"), (Self::Failed, "failed")];
}

/// The counters `tidegate_server_commands_total` of a protocol, one per command and outcome. All
/// unknown commands share the name `unknown`.
pub struct CallStats {
    commands: Vec<[Counter; 3]>,
    unknown: [Counter; 3],
}

impl CallStats {
    /// Creates the counters in the recorder of the crate `metrics` that is installed at this time.
    pub fn new(protocol: &'static str, commands: impl Iterator<Item = &'static str>) -> Self {
        let counters = |command: &'static str| {
            Outcome::ALL.map(|(_, outcome)| {
                counter!("tidegate_server_commands_total",
                    "protocol" => protocol, "command" => command, "outcome" => outcome)
            })
        };
        Self { commands: commands.map(counters).collect(), unknown: counters("unknown") }
    }

    /// Counts a command. `command` is its index in the list that was passed to [`new`](Self::new),
    /// or `None` if the command is unknown.
    pub fn count(&self, command: Option<usize>, outcome: Outcome) {
        let counters = command.and_then(|index| self.commands.get(index)).unwrap_or(&self.unknown);
        for (counter, (own, _)) in counters.iter().zip(Outcome::ALL) {
            if own == outcome {
                counter.increment(1);
            }
        }
    }
}

impl std::fmt::Debug for CallStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallStats").finish_non_exhaustive()
    }
}
