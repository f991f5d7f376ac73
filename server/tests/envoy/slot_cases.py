"""Limits of slots behind a real Envoy: each request holds a slot until it ends."""

import concurrent.futures
import contextlib
import socket
import time
import unittest

import envoy_config
import parts
from cases import Cases
from parts import wait_for

OVER, OK = 429, 200


class Slots(Cases):
    def setUp(self):
        if self.programs.envoy_version < envoy_config.REFUNDS:
            raise unittest.SkipTest("this Envoy cannot free slots")
        super().setUp()
        self.scene.fresh_server()
        self.mock = self.scene.upstreams["mock"]
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)
        # The cleanups run in reverse order, so that no request is held when the pool ends.
        self.addCleanup(self.mock.released.set)

    def hold(self, count, path, headers=None):
        """Sends concurrent requests, which the upstream holds until it is released."""
        headers = {"hold": "1", **(headers or {})}
        return [self.pool.submit(self.get, path, headers) for _ in range(count)]

    def hold_one_by_one(self, count, path):
        """Like `hold`, but repeats a refused request. Envoy frees a slot only after the end of its request."""
        held = []
        while len(held) < count:
            before = self.mock.held
            sent = self.hold(1, path)[0]
            wait_for("an answer", lambda: sent.done() or self.mock.held > before)
            if self.mock.held > before:
                held.append(sent)
        return held

    def wait_until_held(self, count):
        wait_for(f"{count} held requests", lambda: self.mock.held == count)

    def end(self, held):
        """Ends requests, and waits until Envoy has freed their slots."""
        before = self.scene.server.calls()
        self.mock.released.set()
        statuses = [future.result().status for future in held]
        wait_for("the ends", lambda: self.scene.server.calls() >= before + statuses.count(OK))
        self.mock.released.clear()
        self.mock.held = 0
        return statuses

    def test_no_more_requests_than_slots_at_a_time(self):
        for _ in range(2):
            sent = self.hold(5, "/slots")
            self.wait_until_held(3)
            refused = wait_for(
                "two refusals",
                lambda: (done := [future for future in sent if future.done()])[1:] and done,
            )
            for future in refused:
                response = future.result()
                self.assertEqual(response.status, OVER)
                self.assertEqual((response.limit(), response.remaining()), ("3", 0))
                # The service returns no time to wait. Envoy then writes its minimum.
                shows_it = self.programs.envoy_version >= envoy_config.RETRY_AFTER
                self.assertEqual(response.header("retry-after"), "1" if shows_it else None)
                self.assertEqual(response.header("x-ratelimit-reset"), "0")
            self.assertEqual(self.get("/slots").status, OVER)
            held = [future for future in sent if future not in refused]
            self.assertEqual(self.end(held), [OK] * 3)

    def test_a_client_that_disconnects_frees_its_slot(self):
        request = b"GET /slots HTTP/1.1\r\nhost: a\r\nhold: 1\r\n\r\n"
        address = ("127.0.0.1", self.scene.envoy.ports["open"])
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(3)]
            for client in clients:
                client.sendall(request)
            self.wait_until_held(3)
            self.assertEqual(self.get("/slots").status, OVER)
            clients[0].close()
            self.hold_one_by_one(1, "/slots")
            self.assertEqual(self.get("/slots").status, OVER)

    def test_a_client_that_disconnects_during_the_decision_frees_its_slot(self):
        request = b"GET /slots HTTP/1.1\r\nhost: a\r\n\r\n"
        address = ("127.0.0.1", self.scene.envoy.ports["open"])
        for microseconds in range(0, 2000, 20):
            with socket.create_connection(address) as client:
                client.sendall(request)
                time.sleep(microseconds / 1_000_000)
        wait_for("three free slots", lambda: self.get("/slots").remaining() == 2)

    def test_a_request_that_a_rate_refuses_keeps_no_slot(self):
        user = {"user": "alice"}
        self.assertEqual(self.statuses(5, "/slots", user), [OK] + [OVER] * 4)
        held = self.hold_one_by_one(3, "/slots")
        # A refusal by the slots does not charge the rate of the user.
        self.assertEqual(self.get("/slots", {"user": "bob"}).status, OVER)
        self.assertEqual(self.end(held), [OK] * 3)
        wait_for("a free slot", lambda: self.get("/slots", {"user": "bob"}).status == OK)
        self.assertEqual(self.get("/slots", {"user": "bob"}).status, OVER)

    def test_requests_with_one_id_share_a_slot(self):
        """Checks also that a client cannot choose the id that Envoy writes into a header."""
        chosen = {"x-request-id": "a", "x-slot-id": "a"}
        held = self.hold(4, "/slots", chosen)
        self.wait_until_held(4)
        self.assertEqual(self.end(held), [OK] * 4)
        held = self.hold(2, "/unique-slots", chosen)
        self.wait_until_held(2)
        self.assertEqual(self.get("/unique-slots", chosen).status, OVER)
        self.assertEqual(self.end(held), [OK] * 2)
        for _ in range(3):
            wait_for("a free slot", lambda: self.get("/unique-slots", chosen).status == OK)

    def test_the_slots_of_an_envoy_that_is_killed_are_free_after_the_lease(self):
        entries = [{"key": "policy", "value": "short_lease"}, {"key": "id", "value": "other"}]
        request = {"domain": "ours", "descriptors": [{"entries": entries}]}
        began = time.monotonic()
        self.hold(1, "/short-lease")
        self.wait_until_held(1)
        self.scene.envoy.process.kill()
        ask = lambda: parts.post(self.scene.server.json_port, "/json", request)
        wait_for("the end of the lease", lambda: ask() == OK)
        self.assertGreaterEqual(time.monotonic() - began, 2)
