"""The base class of all cases."""

import time
import unittest

import parts


class Cases(unittest.TestCase):
    """Cases with a separate Envoy."""

    programs = None
    # Additional arguments for the configuration of Envoy.
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

        If the minute ends before the case does, its windows end as well, so the case runs again.
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
