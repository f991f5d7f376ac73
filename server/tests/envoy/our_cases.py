"""Limits that only Tidegate has, behind a real Envoy."""

import concurrent.futures
import math
import time
import unittest

import envoy_config
from cases import Cases
from parts import wait_for

OVER, OK = 429, 200


class Ours(Cases):
    def timed(self, path):
        start = time.time()
        response = self.get(path)
        return start, response, time.time()

    def test_a_gcra_is_refused_with_the_time_after_which_it_is_admitted(self):
        """Checks `gcra 1/3s burst 2`: a client is admitted after Retry-After, and not earlier."""
        shows_it = self.programs.envoy_version >= envoy_config.RETRY_AFTER
        self.scene.fresh_server()
        # Two requests are admitted immediately, then one request per three seconds.
        began, first, answered = self.timed("/gcra")
        self.assertEqual([first.status, self.get("/gcra").status], [OK, OK])
        refusals = 0
        while True:
            sent, response, received = self.timed("/gcra")
            if response.status == OK:
                break
            refusals += 1
            self.assertEqual(response.status, OVER)
            # Both requests were decided between the moments of sending and of receiving.
            earliest, latest = 3 - (received - began), 3 - (sent - answered)
            self.assertGreater(latest, 0, "the request is refused but must be admitted")
            name = "retry-after" if shows_it else "x-ratelimit-reset"
            self.assertIn(
                response.number(name),
                range(max(1, math.ceil(earliest)), math.ceil(latest) + 1),
            )
        self.assertGreaterEqual(received - began, 3, "the request is admitted too early")
        self.assertGreater(refusals, 0)

    def test_a_client_that_waits_for_retry_after_is_admitted(self):
        if self.programs.envoy_version < envoy_config.RETRY_AFTER:
            raise unittest.SkipTest("this Envoy writes no Retry-After")
        self.scene.fresh_server()
        while (response := self.get("/gcra")).status == OK:
            pass
        received = time.monotonic()
        until = received + response.number("retry-after")
        wait_for("the time to retry", lambda: time.monotonic() >= until)
        self.assertEqual(self.get("/gcra").status, OK)

    def test_b95_a_header_of_any_bytes_is_limited_like_any_other(self):
        """Uses the listener that admits requests which the service does not decide."""
        self.scene.fresh_server()
        server = self.scene.server
        before = server.calls()
        values = [b"dave\xff", b"dave\xfe", b"\xc3(", b"dave"]
        for value in values:
            found = self.statuses(5, "/account", {"account": value})
            self.assertEqual(found, [OK, OK, OK, OVER, OVER], value)
        self.assertEqual(server.calls() - before, 5 * len(values))
        self.assertEqual(server.metric("tidegate_server_grpc_unreadable_requests_total"), 0)

    def test_limits_are_charged_all_or_none(self):
        self.scene.fresh_server()
        # The two requests that the user's limit refuses do not charge `two`.
        found = [self.get("/both", {"user": user}).status for user in "aaab"]
        self.assertEqual(found, [OK, OVER, OVER, OK])
        response = self.get("/both", {"user": "c"})
        self.assertEqual((response.status, response.remaining()), (OVER, 0))
        self.assertEqual(response.limit(), "2, 2;w=31536000, 1;w=31536000")

    def test_a_window_of_any_length(self):
        self.within_a_minute(
            lambda: self.assertEqual(self.statuses(4, "/address"), [OK, OK, OK, OVER])
        )
        # The window is not a unit, so Envoy shows no window.
        self.assertEqual(self.get("/address").limit(), "3")

    def test_a_week(self):
        self.scene.fresh_server()
        self.assertEqual(self.get("/week").limit(), "7, 7;w=604800")

    def test_requests_in_flight_are_given_back_when_they_end(self):
        """Checks that the refund that Envoy sends after a refusal refunds nothing."""
        if self.programs.envoy_version < envoy_config.REFUNDS:
            raise unittest.SkipTest("this Envoy has no refunds")
        server = self.scene.fresh_server()
        mock = self.scene.upstreams["mock"]
        calls = server.calls

        def ended(before, count):
            """Waits for both calls of each ended request: the decision and the refund."""
            wait_for("the refunds", lambda: calls() >= before + 2 * count)

        before = calls()
        self.assertEqual(self.statuses(1, "/in-flight"), [OK])
        ended(before, 1)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            held = [pool.submit(self.get, "/in-flight", {"hold": "1"}) for _ in range(2)]
            wait_for("two requests in flight", lambda: mock.held == 2)
            before = calls()
            self.assertEqual(self.statuses(5, "/in-flight"), [OVER] * 5)
            ended(before, 5)
            # Five refusals were "refunded", but no place has become free.
            self.assertEqual(self.statuses(3, "/in-flight"), [OVER] * 3)
            ended(before, 8)
            before = calls()
            mock.released.set()
            self.assertEqual([future.result().status for future in held], [OK, OK])
            wait_for("the refunds", lambda: calls() >= before + 2)
        before = calls()
        for sent in range(1, 4):
            self.assertEqual(self.statuses(1, "/in-flight"), [OK])
            ended(before, sent)

    def test_tokens_are_charged_when_the_response_is_known(self):
        server = self.scene.fresh_server()

        def ask(used):
            before = server.calls()
            response = self.get("/tokens", {"tokens": "alice", "used": str(used)})
            # The response has the header only if the request has reached the upstream.
            wait_for("the charge", lambda: server.calls() >= before + 1 + (response.status == OK))
            return response

        self.assertEqual((ask(4).remaining(), ask(4).remaining()), (10, 6))
        # 8 of 10 are used, and 9 more are charged beyond the limit.
        self.assertEqual((ask(9).status, ask(1).status, ask(1).status), (OK, OVER, OVER))
        self.assertEqual(self.get("/tokens", {"tokens": "bob"}).status, OK)
