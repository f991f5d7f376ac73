# Passes on the output of `cargo test`, and ends with the failed tests and the totals. Used by ./test.

BEGIN {
    seed = "  PROPTEST_RNG_SEED=" ENVIRON["PROPTEST_RNG_SEED"] " "
}

{
    line = $0
    gsub(/\033\[[0-9;]*m/, "", line)
}

# The messages of cargo: only the programs of tests are kept.
index(line, "{\"reason\":\"") == 1 {
    if (line ~ /"test":true/ && line ~ /"executable":"/) print line >>programs
    next
}

line ~ /^tidegate-test-status [0-9]+$/ {
    status = substr(line, 22) + 0
    next
}

{
    print
    fflush()
}

# The last list of failures of a program has names only.
line == "failures:" {
    names = 0
    next
}

line ~ /^    [^ ]/ {
    name[++names] = substr(line, 5)
    next
}

line ~ /^test result: (ok|FAILED)\. [0-9]+ passed; [0-9]+ failed; [0-9]+ ignored; / {
    split(line, word, " ")
    passes = word[4]
    fails = word[6]
    ignores = word[8]
    has_result = is_result = 1
    if (fails == 0) add()
    next
}

# Cargo prints this after a program that failed.
line ~ /^error: .*test failed, to rerun pass `.*`$/ {
    split(line, part, "`")
    if (is_result && fails > 0) {
        for (i = 1; i <= names; i++) failed = failed seed "./test " part[2] " -- --exact '" name[i] "'\n"
        add()
    } else {
        failed = failed seed "./test " part[2] "    # the program ended before its result\n"
        all_failed++
    }
    names = 0
}

function add() {
    all_passed += passes
    all_failed += fails
    all_ignored += ignores
    passes = fails = ignores = names = is_result = 0
}

END {
    if (status != 0 && all_failed == 0) print "test: the build failed, or cargo refused the arguments"
    if (status == 0 && has_result && all_passed + all_ignored == 0) {
        print "test: no test has a name that matches"
        status = 1
    }
    if (failed != "") printf "failed; each line runs one again, with the same random input:\n%s", failed
    if (has_result || status != 0)
        print all_passed + 0 " passed, " all_failed + 0 " failed" (all_ignored ? ", " all_ignored " skipped" : "")
    exit status
}
