//! Tests the output and the errors of `tidegate plan`.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::process::{Command, Output};

fn plan(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    program.arg("plan").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn planned(arguments: &[&str]) -> String {
    let output = plan(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

const API: [&str; 6] =
    ["--subjects", "100M", "--policy", "api: token-bucket 10/1s burst 20", "--rate", "500k/s"];

#[test]
fn all_of_the_arithmetic_is_shown() {
    assert_eq!(
        planned(&API),
        "\
api: token-bucket 10/1s burst 20
  a state   key of 42 characters 48 + value 64 + entry 48 + expiry 32 + places in tables 32 = 224 bytes
  memory    100,000,000 states × 224 bytes = 20.9 GiB
  lives     up to 3 s after a subject's last request
  CPU       14.43 µs a decision

nodes
  by memory 20.9 GiB / (16.0 GiB × 70 %) = 2 primaries
  one node  60 % of a core / 14.43 µs = 41,580 requests/s
  by CPU    500,000 requests/s / 41,580 = 13 primaries
  in all    13 primaries × (1 + 1 replica) = 26 nodes; 2.3 GiB of memory on each would do

to know
  a cluster: about 1,260 slots on each primary; a slot is on one node, and a node decides on one core
  a tenant (without tenants: a subject) with more than 41,580 requests/s needs `shards`: one node decides on no more
  CPU decides: batches (--coalesced), leases of hot subjects and, where much is refused, a deny cache help (--local); more memory does not
"
    );
}

#[test]
fn batches_and_decisions_without_a_node_need_fewer_nodes() {
    let with = |more: &[&str]| planned(&[&API[..], more].concat());
    let written = with(&["--coalesced"]);
    assert!(written.contains("\n  batches   50 % of the CPU of single calls\n"), "{written}");
    assert!(
        written.contains("\n  one node  60 % of a core / 7.21 µs = 83,217 requests/s\n"),
        "{written}"
    );
    let written = with(&["--local", "90"]);
    assert!(
        written.contains("\n  one node  60 % of a core / 14.43 µs / 10 % = 415,800 requests/s\n"),
        "{written}"
    );
    assert!(written.contains("500,000 requests/s / 415,800 = 2 primaries"), "{written}");
    let written = with(&["--local", "75", "--node-decisions", "100k"]);
    assert!(
        written.contains("\n  one node  100,000 decisions/s / 25 % = 400,000 requests/s\n"),
        "{written}"
    );
    let output = plan(&[&API[..], &["--local", "100"]].concat());
    assert!(text(&output.stderr).contains("100 is not in 0..=99"), "{}", text(&output.stderr));
    let output = plan(&[&API[..], &["--coalesced", "--node-decisions", "1"]].concat());
    assert!(text(&output.stderr).contains("cannot be used with"), "{}", text(&output.stderr));
}

#[test]
fn a_million_subjects_of_a_window_fit_on_one_redis() {
    let small = ["--subjects", "1M", "--policy", "fixed-window 100/1m", "--rate", "5k/s"];
    let plan = planned(&small);
    assert!(plan.contains("1 primary × (1 + 1 replica) = 2 nodes"), "{plan}");
    assert!(plan.contains("one Redis will do"), "{plan}");
}

#[test]
fn each_policy_adds_its_memory_and_its_time() {
    let plan_for = |policies: &[&str]| {
        let mut arguments = vec!["--subjects", "100M", "--rate", "1M/s", "--replicas", "0"];
        policies.iter().for_each(|policy| arguments.extend(["--policy", policy]));
        planned(&arguments)
    };
    let primaries = |plan: &str, by: &str| -> u64 {
        let line = plan.lines().find(|line| line.trim_start().starts_with(by)).unwrap();
        let number = line.rsplit("= ").next().unwrap().trim_end_matches(" primaries");
        number.parse().unwrap()
    };
    let (a, b) = ("a: sliding-counter 100/1d", "b: token-bucket 10/1s");
    for by in ["by memory", "by CPU"] {
        let sum = primaries(&plan_for(&[a]), by) + primaries(&plan_for(&[b]), by);
        let both = primaries(&plan_for(&[a, b]), by);
        // Each number is rounded up.
        assert!(both == sum || both + 1 == sum, "{by}: {both} of {sum}");
    }
}

#[test]
fn what_is_measured_by_oneself_counts() {
    let plan =
        planned(&[&API[..], &["--node-decisions", "100k", "--node-memory", "64GiB"]].concat());
    assert!(plan.contains("500,000 requests/s / 100,000 = 5 primaries"), "{plan}");
    assert!(!plan.contains("µs"), "{plan}");
}

#[test]
fn a_plan_for_slots_has_the_records_and_the_renewals_of_holds() {
    let slots = ["--subjects", "20k", "--rate", "500/s", "-p", "streams: concurrent 10 lease 30s"];
    let with = |more: &[&str]| planned(&[&slots[..], more].concat());
    assert_eq!(
        with(&["--holders", "2"]),
        "\
streams: concurrent 10 lease 30s
  a state   key of 45 characters 64 + value 1298 + entry 32 + expiry 32 + places in tables 32 = 1458 bytes
  memory    20,000 states × 1458 bytes = 27.8 MiB
  lives     up to 75 s after a subject's last request
  CPU       24.00 µs a hold and its settlement

holds
  a record  key of 72 characters 80 + value 176 + entry 32 + expiry 32 + places in tables 32 = 352 bytes, with an id of 36 characters
  settled   416 bytes, for up to 60 s
  memory    40,000 holders × 352 bytes + 500 requests/s × 60 s × 416 bytes = 25.3 MiB
  renewals  40,000 holders / (30 s / 3) = 4,000 renewals/s × 16.00 µs

nodes
  by memory 53.1 MiB / (16.0 GiB × 70 %) = 1 primary
  one node  60 % of a core / 24.00 µs = 25,000 requests/s
  by CPU    (500 requests/s + renewals like 2,667 requests/s) / 25,000 = 1 primary
  in all    1 primary × (1 + 1 replica) = 2 nodes; 75.9 MiB of memory on each would do

to know
  one Redis will do: `tidegate-redis`; a cluster is not needed
  a tenant (without tenants: a subject) with more than 25,000 requests/s needs `shards`: one node decides on no more
  the renewals take more CPU than the requests: a longer lease needs fewer renewals, but a holder that has crashed keeps its slots for the lease
"
    );
    // By default, all slots are in use. A subject cannot have more holders than slots.
    assert_eq!(with(&[]), with(&["--holders", "10"]));
    assert_eq!(with(&[]), with(&["--holders", "99"]));
    assert!(with(&[]).contains("200,000 holders / (30 s / 3) = 20,000 renewals/s"));
    let many = ["--subjects", "100k", "--holders", "6"];
    assert!(planned(&[&slots[2..], &many].concat()).contains("= 2 primaries"));
    // A hold and its settlement are two decisions, and a renewal is one.
    let measured = with(&["--holders", "2", "--node-decisions", "3000"]);
    assert!(measured.contains("\n  one node  3,000 decisions/s / 2 = 1,500 requests/s\n"));
    let by_cpu = "(500 requests/s + renewals like 2,000 requests/s) / 1,500 = 2 primaries";
    assert!(measured.contains(by_cpu), "{measured}");

    // The smallest number of slots and the shortest lease count.
    let rates = ["-p", "jobs: concurrent 5 lease 1m", "-p", "rate: fixed-window 9/1m"];
    let several = with(&rates);
    assert!(several.contains("100,000 holders / (30 s / 3)"), "{several}");
    assert!(several.contains("10,000 renewals/s × 25.00 µs"), "{several}");
    assert!(several.contains("\n  an epoch  key of 48 characters 64 + value 64 + "), "{several}");
    let without = planned(&[&slots[..4], &rates[2..]].concat());
    assert!(!without.contains("epoch") && !without.contains("holds"), "{without}");

    for (more, message) in [
        (&["--coalesced"][..], "--coalesced is not possible with a policy of slots"),
        (&["--holders", "many"], "invalid value 'many' for '--holders <COUNT>'"),
        (&["--holders", "0"], "0 is not in 1.."),
    ] {
        let errors = text(&plan(&[&slots[..], more].concat()).stderr);
        assert!(errors.contains(message), "{errors}");
    }
    let errors = text(&plan(&[&API[..], &["--holders", "2"]].concat()).stderr);
    assert!(errors.contains("--holders needs a policy of slots"), "{errors}");
    let errors = text(&plan(&[&API[..], &["--grants", "2"]].concat()).stderr);
    assert!(errors.contains("--grants needs a quota or credits"), "{errors}");
    // The largest numbers cause no overflow.
    let largest = ["--subjects", "1000000B", "--rate", "1000000B/h", "--replicas", "9", "-p"];
    let largest = [&largest[..], &["concurrent 100000 lease 1us"]].concat();
    let errors = text(&plan(&largest).stderr);
    assert!(errors.is_empty(), "{errors}");
}

#[test]
fn longer_names_and_fuller_logs_take_more() {
    let log = ["--subjects", "1M", "--rate", "1/s", "--policy", "l: sliding-log 1000/1h"];
    let memory = |more: &[&str]| -> u64 {
        let plan = planned(&[&log[..], more].concat());
        let line = plan.lines().find(|line| line.contains("a state")).unwrap();
        line.rsplit("= ").next().unwrap().trim_end_matches(" bytes").parse().unwrap()
    };
    let full = memory(&[]);
    assert!(memory(&["--log-records", "4"]) * 10 < full);
    assert!(memory(&["--subject-bytes", "60"]) >= full + 32);
    assert!(memory(&["--tenant-bytes", "40"]) >= full + 32);
    assert!(memory(&["--prefix", "a-prefix-that-is-much-longer-than-others"]) >= full + 32);
}

#[test]
fn a_limit_in_shards_has_a_state_in_each() {
    let states = |policy| {
        let plan = planned(&["--subjects", "1000", "--rate", "1/s", "--policy", policy]);
        let line = plan.lines().find(|line| line.contains("memory  ")).unwrap();
        line.trim_start().trim_start_matches("memory").trim().split(' ').next().unwrap().to_owned()
    };
    assert_eq!(states("fixed-window 100/1m shards 8"), "8,000");
    assert_eq!(states("fixed-window 100/1m shards 8 whole"), "1,000");
    assert_eq!(states("fixed-window 100/1m shards 8 by-subject"), "8");
}

#[test]
fn a_fair_pool_has_one_state_with_its_members() {
    let pool = ["--rate", "20k/s", "--policy", "pool: fair-pool 300000/1m", "--subjects"];
    let with = |more: &[&str]| planned(&[&pool[..], more].concat());
    let written = with(&["100"]);
    assert!(written.contains(" + value 5136 + "), "{written}");
    assert!(written.contains("\n  memory    1 states × "), "{written}");
    assert!(written.contains("\n  lives     up to 2 min after"), "{written}");
    assert!(written.contains("all subjects) can send up to 32,822 requests/s: "), "{written}");
    assert!(!written.contains("needs `shards`"), "{written}");
    // A state has at most 1,000 members.
    let memory = |subjects| {
        let plan = with(&[subjects]);
        plan.lines().find(|line| line.contains("a state")).unwrap().to_owned()
    };
    assert_ne!(memory("100"), memory("1000"));
    assert_eq!(memory("1000"), memory("1M"));
    let errors = text(&plan(&[&pool[..], &["9", "--local", "50"]].concat()).stderr);
    assert!(errors.contains("--local is 50; it must be 0 with a fair pool such as `pool: "));
}

#[test]
fn more_nodes_than_a_cluster_should_have_are_told() {
    let plan = planned(&[
        "--subjects",
        "1B",
        "--rate",
        "100M/s",
        "--policy",
        "sliding-log 100/1m",
        "--node-memory",
        "8GiB",
    ]);
    assert!(plan.contains("are more than the 1,000 that a cluster should have"), "{plan}");
}

#[test]
fn bad_input_is_named_with_what_would_do() {
    for (bad, says) in [
        (["--subjects", "many"], "`many` is not a count; write 20000, 20k"),
        (["--subjects", "0"], "0 subjects; there is at least 1"),
        (["--rate", "500k"], "`500k` is not a rate; write 500k/s"),
        (["--node-memory", "16"], "`16` is not a number of bytes; write 16GiB"),
        (["--node-memory", "1MiB"], "1048576 bytes are too few for a Redis"),
        (["--policy", "slidng-log 5/1m"], "did you mean `sliding-log`?"),
        (["--replicas", "10"], "10 is not in 0..=9"),
        (["--node-decisions", "0"], "0 decisions a second"),
        (["--log-records", "0"], "0 is not in 1.."),
        (["--subject-bytes", "2000000"], "2000000 is not in 0..=1048576"),
    ] {
        let mut arguments: Vec<&str> = API.to_vec();
        match arguments.iter().position(|argument| *argument == bad[0]) {
            Some(place) => arguments[place + 1] = bad[1],
            None => arguments.extend(bad),
        }
        let output = plan(&arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {errors}");
        assert!(errors.contains(says), "{bad:?}: {errors}");
    }
    for missing in ["--subjects", "--policy", "--rate"] {
        let place = API.iter().position(|argument| *argument == missing).unwrap();
        let arguments = [&API[..place], &API[place + 2..]].concat();
        let errors = text(&plan(&arguments).stderr);
        assert!(errors.contains(missing), "{errors}");
    }
}

#[test]
fn the_help_has_examples_that_run() {
    let help = planned(&["--help"]);
    assert!(
        help.contains("Examples:") && help.contains("--node-memory 64GiB --replicas 2"),
        "{help}"
    );
}
