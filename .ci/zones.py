"""Compares the windows that the program `windows` prints with the edges that zoneinfo computes."""

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib import resources
from io import BytesIO
from zoneinfo import ZoneInfo, available_timezones

FIRST, LAST = datetime(2020, 1, 1), datetime(2040, 1, 1)
# The times of day at which the compared days begin. Most clocks change between 0:00 and 4:00.
TIMES = ("00:00", "02:30")


def seconds(naive):
    return int(naive.replace(tzinfo=timezone.utc).timestamp())


def first_instant(zone, local):
    """Returns the first instant at which the clock of the zone shows `local` or a later time."""
    guess = int(local.replace(tzinfo=zone, fold=0).timestamp())
    shown = datetime.fromtimestamp(guess, zone).replace(tzinfo=None)
    if shown == local:
        return guess
    # The clock skips the time. The clock jumps at the first instant at which it shows a later time.
    before, after = guess - 86_400, guess
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).replace(tzinfo=None) < local:
            before = middle
        else:
            after = middle
    return after


@cache
def data_of(name):
    """Returns the data of a zone. Many names are other names of one zone."""
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@cache
def edges(data, time):
    zone = ZoneInfo.from_file(BytesIO(data))
    hour, minute = map(int, time.split(":"))
    local = FIRST.replace(hour=hour, minute=minute) - timedelta(days=2)
    found = []
    while local < LAST + timedelta(days=2):
        found.append(first_instant(zone, local))
        local += timedelta(days=1)
    first, last = seconds(FIRST), seconds(LAST)
    # A day that the clock skips entirely has no window.
    return sorted({edge for edge in found if first < edge <= last})


def main(program):
    names = sorted(available_timezones() - {"Factory", "localtime"})
    quotas = [(name, time) for name in names for time in TIMES]
    policies = "".join(f"quota 1/day in {name} at {time}\n" for name, time in quotas)
    arguments = [program, str(seconds(FIRST)), str(seconds(LAST))]
    printed = subprocess.run(arguments, input=policies, text=True, check=True, capture_output=True)
    lines = printed.stdout.splitlines()
    assert len(lines) == len(quotas), (len(lines), len(quotas))
    compared, wrong = 0, 0
    for (name, time), line in zip(quotas, lines):
        expected = edges(data_of(name), time)
        given = [] if line.startswith("error:") else [int(end) for end in line.split()]
        compared += len(expected)
        if given != expected:
            wrong += 1
            differing = sorted(set(given) ^ set(expected))[:4]
            print(f"{name} at {time}: {line[:80] if not given else differing}", file=sys.stderr)
    print(f"{compared} edges in {len(names)} time zones, {wrong} of {len(quotas)} quotas differ")
    sys.exit(wrong > 0)


main(sys.argv[1])
