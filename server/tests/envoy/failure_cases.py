"""Responses to clients of Envoy while the service, its store or its limits change."""

import threading
import time

from cases import Cases
from parts import Port, Redis, wait_for

OVER, OK, ERROR = 429, 200, 500


class Load:
    """Sends requests from several threads without a pause until the end of a `with` block."""

    def __init__(self, case, requests):
        self.case, self.requests = case, requests
        self.lock = threading.Lock()
        # The responses of each request in order, as tuples (time of sending, response).
        self.responses = [[] for _ in requests]
        self.failures = []
        self.is_over = threading.Event()

    def __enter__(self):
        self.threads = [
            threading.Thread(target=self.send, args=(index, *request))
            for index, request in enumerate(self.requests)
        ]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def send(self, index, path, listener):
        while not self.is_over.is_set():
            sent = time.monotonic()
            try:
                response = self.case.get(path, listener=listener)
            except OSError as error:
                self.failures.append(error)
                return
            self.responses[index].append((sent, response))

    def statuses(self, index, since=0.0):
        return {response.status for sent, response in self.responses[index] if sent >= since}

    def wait_for_more(self, since, count=20):
        """Waits until each request was sent and answered `count` times after a moment."""

        def are_there():
            if self.failures:
                raise AssertionError(self.failures)
            return all(
                sum(sent >= since for sent, _ in responses[-count:]) >= count
                for responses in self.responses
            )

        wait_for(f"{count} responses of each request", are_there)


class WithoutTheService(Cases):
    def test_the_service_is_absent_at_first(self):
        self.assertEqual(self.get("/banned", listener="open").status, OK)
        self.assertEqual(self.get("/probe", listener="open").status, OK)
        self.assertEqual(self.get("/probe", listener="closed").status, ERROR)
        self.scene.fresh_server()
        for listener in ["open", "closed"]:
            self.assertEqual(self.get("/probe", listener=listener).status, OK)
            self.assertEqual(self.get("/banned", listener=listener).status, OVER)

    def test_the_service_is_killed_under_load_and_started_again(self):
        self.scene.fresh_server()
        listeners = ["open", "closed"]
        requests = [(path, listener) for path in ["/probe", "/banned"] for listener in listeners]
        with Load(self, requests) as load:
            load.wait_for_more(time.monotonic())
            self.scene.server.stop()
            stopped = time.monotonic()
            load.wait_for_more(stopped)
            # The service does not answer requests that are sent after its end.
            self.assertEqual([load.statuses(i, stopped) for i in range(4)], [{OK}, {ERROR}] * 2)
            self.scene.fresh_server()
            started = time.monotonic()
            load.wait_for_more(started)
        self.assertEqual([load.statuses(i, started) for i in [0, 1]], [{OK}, {OK}])
        self.assertEqual([load.statuses(i, started) for i in [2, 3]], [{OVER}, {OVER}])
        # No other status occurs at any time.
        self.assertLessEqual(load.statuses(1), {OK, ERROR})
        self.assertLessEqual(load.statuses(3), {OVER, ERROR})


class OnRedis(Cases):
    def setUp(self):
        super().setUp()
        self.port = self.scene.kept(Port(), Port.close)
        self.redis = self.start_redis()

    def start_redis(self):
        return self.scene.kept(Redis(self.port, self.scene.folder), Redis.stop)

    def start(self, index=0, **variables):
        url = f"127.0.0.1:{self.port.number}"
        variables = {"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": url, **variables}
        return self.scene.start_server(index, **variables)


class WithoutTheStore(OnRedis):
    def server_on_redis(self, **variables):
        self.start(**variables)
        self.scene.wait_until_answered()

    def test_the_store_is_killed_under_load_and_started_again(self):
        self.server_on_redis()
        with Load(self, [("/probe", "open"), ("/probe", "closed")]) as load:
            load.wait_for_more(time.monotonic())
            self.redis.stop()
            stopped = time.monotonic()
            load.wait_for_more(stopped)
            self.assertEqual([load.statuses(i, stopped) for i in [0, 1]], [{OK}, {ERROR}])
            self.redis = self.start_redis()
            self.scene.wait_until_answered()
            started = time.monotonic()
            load.wait_for_more(started)
        self.assertEqual([load.statuses(i, started) for i in [0, 1]], [{OK}, {OK}])

    def test_the_server_decides_by_itself_without_its_store(self):
        for setting, status in [("allow", OK), ("deny", OVER)]:
            with self.subTest(setting):
                self.server_on_redis(TIDEGATE_ON_STORE_ERROR=setting)
                self.redis.stop()
                wait_for("its answer", lambda: self.get("/counted").limit() is None)
                for listener in ["open", "closed"]:
                    self.assertEqual(self.get("/counted", listener=listener).status, status)
                self.redis = self.start_redis()


class NewLimits(Cases):
    def test_limits_are_replaced_under_load(self):
        self.scene.fresh_server()
        file = self.scene.limits / "ours.yaml"
        text = file.read_text()
        limits = [1_000_000_001 + round for round in range(6)]
        requests = [("/swapped", "closed"), ("/swapped", "closed"), ("/banned", "closed")]
        with Load(self, requests) as load:
            for limit in limits[1:]:
                load.wait_for_more(time.monotonic())
                file.write_text(text.replace(str(limits[0]), str(limit)))
                shown = f"{limit}, {limit};w=31536000"
                wait_for("new limits", lambda: self.get("/swapped").limit() == shown)
            load.wait_for_more(time.monotonic())
        self.assertEqual([load.statuses(i) for i in range(3)], [{OK}, {OK}, {OVER}])
        for responses in load.responses[:2]:
            found = [int(response.limit().split(",")[0]) for _, response in responses]
            # Each response has one of the limits, and the old limit does not occur again.
            self.assertEqual(sorted(set(found)), limits)
            self.assertEqual(found, sorted(found))


class Health(OnRedis):
    """Tests of two servers on one Redis, whose health Envoy checks."""

    config = {"health_checks": True}
    servers = 2

    def wait_for_healthy(self, count):
        wait_for("servers", lambda: self.scene.envoy.healthy_servers() == count)

    def test_a_server_ends_under_load_and_no_request_fails(self):
        # The drain is much longer than the time in which Envoy notices the change of health.
        drain = {"TIDEGATE_DRAIN": "5s"}
        servers = [self.start(index, **drain) for index in range(2)]
        self.wait_for_healthy(2)
        self.scene.wait_until_answered()
        requests = [("/probe", "closed"), ("/banned", "closed")] * 2
        with Load(self, requests) as load:
            for index in range(2):
                load.wait_for_more(time.monotonic())
                self.assertEqual(servers[index].terminate(), 0)
                self.assertEqual(self.scene.envoy.healthy_servers(), 1)
                load.wait_for_more(time.monotonic())
                servers[index] = self.start(index, **drain)
                self.wait_for_healthy(2)
            load.wait_for_more(time.monotonic())
        self.assertEqual([load.statuses(i) for i in range(4)], [{OK}, {OVER}] * 2)

    def test_a_server_without_its_store_is_not_asked(self):
        server = self.start(0, REDIS_HEALTH_CHECK_ACTIVE_CONNECTION="true")
        self.wait_for_healthy(1)
        self.scene.wait_until_answered()
        self.redis.stop()
        self.wait_for_healthy(0)

        def are_not_asked():
            before = server.calls()
            for listener, status in [("open", OK), ("closed", ERROR)] * 4:
                self.assertEqual(self.get("/banned", listener=listener).status, status)
            return server.calls() == before

        # Envoy's threads are notified a second later (`update_merge_window`).
        wait_for("the end of calls", are_not_asked)
        self.redis = self.start_redis()
        self.wait_for_healthy(1)
        self.scene.wait_until_answered()
        self.assertEqual(self.get("/banned", listener="closed").status, OVER)
