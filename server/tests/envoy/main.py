"""Runs the cases with a real Envoy. .ci/envoy builds and installs the programs.

    main.py ENVOY SERVER [CASE...]

A CASE is a part of a test's name. Without a CASE, all tests are run.
"""

import concurrent.futures
import dataclasses
import io
import re
import subprocess
import sys
import time
import unittest

import cases
import example_cases
import failure_cases
import guide_cases
import lookup_cases
import our_cases
import slot_cases
import tls_cases

MODULES = [
    example_cases,
    failure_cases,
    guide_cases,
    lookup_cases,
    our_cases,
    slot_cases,
    tls_cases,
]

# The number of concurrent cases. Each case runs an Envoy and a server.
AT_A_TIME = 3


@dataclasses.dataclass
class Programs:
    envoy: str
    envoy_version: tuple
    server: str


def version(envoy):
    said = subprocess.run([envoy, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in re.search(r"/(\d+)\.(\d+)\.\d+/", said).groups())


def tests_of(suite):
    for part in suite:
        yield from tests_of(part) if isinstance(part, unittest.TestSuite) else [part]


def run(test):
    start, said = time.monotonic(), io.StringIO()
    result = unittest.TextTestRunner(said, verbosity=0).run(unittest.TestSuite([test]))
    outcome = "skipped" if result.skipped else "ok" if result.wasSuccessful() else "FAILED"
    reason = f": {result.skipped[0][1]}" if result.skipped else ""
    print(f"{outcome:8} {test.id()} ({time.monotonic() - start:.1f} s){reason}", flush=True)
    if not result.wasSuccessful():
        print(said.getvalue(), flush=True)
    return result.wasSuccessful()


def main(envoy, server, *names):
    programs = Programs(envoy, version(envoy), server)
    cases.Cases.programs = programs
    loader = unittest.defaultTestLoader
    found = [test for module in MODULES for test in tests_of(loader.loadTestsFromModule(module))]
    chosen = [test for test in found if not names or any(name in test.id() for name in names)]
    if not chosen:
        sys.exit(f"no case has a name with {' or '.join(names)}")
    print(f"Envoy {'.'.join(map(str, programs.envoy_version))}: {len(chosen)} cases")
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        passed = list(pool.map(run, chosen))
    if not all(passed):
        sys.exit(f"{passed.count(False)} of {len(passed)} cases failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
