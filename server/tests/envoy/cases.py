"""What the cases have in common."""

import time
import unittest

import parts


class Cases(unittest.TestCase):
    """Cases with an Envoy of their own."""

    programs = None
    # What the configuration of Envoy has beside.
    config = {}
    servers = 1

    def setUp(self):
        self.scene = parts.Scene(self.programs, self.servers, **self.config)
        self.addCleanup(self.scene.close)

    def get(self, path, headers=None, listener="open"):
        return self.scene.get(path, headers, listener)

    def statuses(self, count, path, headers=None, **where):
        return [self.get(path, headers, **where).status for _ in range(count)]

    def within_a_minute(self, body, **variables):
        """Runs a case on empty counts within one minute of the clock.

        If a minute has ended before the case, its windows have too, and it is run once more.
        """
        for _ in range(5):
            self.scene.fresh_server(**variables)
            start = minute()
            try:
                result = body()
            except AssertionError:
                if minute() == start:
                    raise
            else:
                if minute() == start:
                    return result
        raise AssertionError("five runs have not ended within the minute in which they began")


def minute():
    return int(time.time()) // 60
