"""G01 to G17: the limit of each request, the headers that Envoy shows, and the counts."""

import time

import envoy_config
from cases import Cases
from parts import get, wait_for

OVER, OK = 429, 200

RELOAD = """
domain: reload
descriptors:
  - key: key1
    rate_limit: { unit: second, requests_per_unit: 50 }
  - key: block
    rate_limit: { unit: second, requests_per_unit: 0 }
"""

SECONDS = {
    "SECOND": 1,
    "MINUTE": 60,
    "HOUR": 3_600,
    "DAY": 86_400,
    "MONTH": 30 * 86_400,
    "YEAR": 365 * 86_400,
}


class Lookups(Cases):
    def limit(self, path, **headers):
        response = self.get(path, headers)
        self.assertEqual(response.status, OK)
        return response.limit()

    def test_g01_g02_g05_limits_of_all_sizes(self):
        server = self.scene.fresh_server()
        self.assertIsNone(self.limit("/unknown", hello="world"), "G01")
        self.assertEqual(server.metric("ratelimit_service_domain_not_found"), 1, "G01")

        response = self.get("/basic", {"key1": "foo"})
        self.assertEqual((response.limit(), response.remaining()), ("50, 50;w=1", 49), "G02")
        self.assertEqual(server.limit_metric("total_hits", "basic", "key1"), 1, "G02")

        def reset():
            """Returns the end of the window by the local clock, and the duration of the request."""
            start = time.time()
            seconds = self.get("/another", {"key4": "a"}).number("x-ratelimit-reset")
            return start + seconds, time.time() - start

        # The end is the same moment, regardless of the time between the two requests.
        (first, took), (second, took_too) = reset(), wait_two_seconds(reset)
        self.assertAlmostEqual(first % 86_400, second % 86_400, delta=2 + took + took_too, msg="G05")
        off = first % 86_400
        self.assertLess(min(off, 86_400 - off), 2 + took, "G05: the end of a day")

    def test_g03_g04_counts_of_a_minute(self):
        def g03():
            responses = [self.get("/another", {"key2": "rnd"}) for _ in range(25)]
            self.assertEqual([response.status for response in responses], [OK] * 20 + [OVER] * 5)
            remaining = [response.remaining() for response in responses]
            self.assertEqual(remaining, [*range(19, -1, -1), *[0] * 5])
            key = ("another", "key2")
            self.assertEqual(self.scene.server.limit_metric("over_limit", *key), 5)
            self.assertEqual(self.scene.server.limit_metric("within_limit", *key), 20)

        def g04(counted):
            responses = [self.get("/another", {"key2": "r", "key3": "r"}) for _ in range(15)]
            self.assertEqual([response.status for response in responses], [OK] * 10 + [OVER] * 5)
            remaining = [response.remaining() for response in responses]
            self.assertEqual(remaining, [*range(9, -1, -1), *[0] * 5])
            self.assertEqual({response.limit() for response in responses}, {"10, 20;w=60, 10;w=3600"})
            # A 16th request shows the count of the limit that has refused nothing.
            self.assertEqual(self.get("/another", {"key2": "r"}).remaining(), 20 - counted - 1)

        def g03_and_g04():
            g03()
            g04(15)

        self.within_a_minute(g03_and_g04)
        stop = {"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"}
        self.within_a_minute(lambda: g04(10), **stop)

    def test_g06_limits_change(self):
        server = self.scene.fresh_server()
        file = self.scene.limits / "reload.yaml"
        loads, errors = "ratelimit_service_config_load_success", "ratelimit_service_config_load_error"
        self.assertIsNone(self.limit("/reload", block="foo"))
        before = server.metric(loads)

        file.write_text(RELOAD)
        wait_for("the new limit", lambda: self.get("/reload", {"block": "foo"}).status == OVER)
        response = self.get("/reload", {"key1": "a"})
        self.assertEqual((response.limit(), response.remaining()), ("50, 50;w=1", 49))
        self.assertGreater(server.metric(loads), before)

        before = server.metric(errors)
        file.write_text("domain: reload\ndescriptors: [{ratelimit: 5}]\n")
        wait_for("the error", lambda: server.metric(errors) > before)
        self.assertEqual(self.get("/reload", {"block": "foo"}).status, OVER)

        before = server.metric(loads)
        file.unlink()
        wait_for("no limit", lambda: self.get("/reload", {"block": "foo"}).status == OK)
        self.assertGreater(server.metric(loads), before)

    def test_g07_g08_patterns_that_share_a_count(self):
        def case():
            self.assertEqual(self.statuses(10, "/share", {"files": "files/a.pdf"}), [OK] * 10)
            response = self.get("/share", {"files": "files/b.csv"})
            self.assertEqual((response.status, response.remaining()), (OVER, 0))
            for file in ["files_no_share/a", "files_no_share/b"]:
                self.assertEqual(self.get("/share", {"files_no_share": file}).remaining(), 9)

        self.within_a_minute(case)

    def test_g09_the_limit_is_that_of_as_many_entries(self):
        self.scene.fresh_server()
        limit = self.limit
        self.assertIsNone(limit("/lookups", key1="value1"))
        self.assertEqual(limit("/lookups/key1", key1="value1", subkey1="x"), "5, 5;w=1")
        self.assertEqual(limit("/lookups/key1", key1="value1", subkey1="subvalue1"), "10, 10;w=1")
        self.assertEqual(limit("/lookups", key2="x"), "20, 20;w=60")
        self.assertEqual(limit("/lookups", key2="value2"), "30, 30;w=60")
        self.assertIsNone(limit("/lookups", key2="value3"))
        self.assertIsNone(limit("/lookups/key2", key2="value2", subkey="x"))
        self.assertIsNone(limit("/lookups", key6="foo"))

    def test_g10_patterns(self):
        def case():
            for value in ["foo1", "foo2"]:
                self.assertEqual(self.get("/lookups", {"wild": value}).remaining(), 19)
            self.assertIsNone(self.limit("/lookups", wild="bar"))
            found = [self.limit("/lookups", midWild=value) for value in ["barab", "bar123b", "barb"]]
            self.assertEqual(found, ["20, 20;w=60"] * 3)
            found = [self.limit("/lookups", midWild=value) for value in ["bara", "xbarb"]]
            found += [self.limit("/lookups", multiWild=value) for value in ["foo123baz", "bar456baz"]]
            self.assertEqual(found, [None] * 4)
            for value in ["foo123bar456baz", "foobarbaz"]:
                self.assertEqual(self.limit("/lookups", multiWild=value), "10, 10;w=60")
            nested = self.limit("/lookups/wild", nestedWild="val1", wild="goo1")
            self.assertEqual(nested, "20, 20;w=60")
            metric = self.scene.server.limit_metric
            self.assertEqual(metric("total_hits", "lookups", "wild_foo*"), 2)
            self.assertEqual(metric("total_hits", "lookups", "nestedWild_val1", "wild_goo*"), 1)

        self.within_a_minute(case)

    def test_g11_limits_of_requests(self):
        self.scene.fresh_server()
        for unit in envoy_config.UNITS:
            limit = self.limit(f"/limited/lookups/{unit}", shady="x")
            self.assertEqual(limit, f"10, 10;w={SECONDS[unit]}")
            self.assertIsNone(self.limit(f"/limited/unknown/{unit}", shady="x"))
        # The limit is not a shadow, although the limit in the file is one.
        year = [self.get("/limited/lookups/YEAR", {"shady": "y"}).status for _ in range(11)]
        self.assertEqual(year, [OK] * 10 + [OVER])

    def test_g13_one_is_unlimited(self):
        self.scene.fresh_server()
        self.assertEqual(self.limit("/lookups", key2="x", key6="foo"), "20, 20;w=60")

    def test_g14_a_server_in_shadow(self):
        server = self.scene.fresh_server(SHADOW_MODE="true")
        headers = {"foo": "bkthomps", "bar": "banned"}
        self.assertEqual(self.statuses(2, "/twoheader", headers), [OK, OK])
        self.assertEqual(server.metric("ratelimit_service_global_shadow_mode"), 2)
        self.assertEqual(server.limit_metric("over_limit", "rl", "foo", "bar_banned"), 2)

    def test_g15_quotas(self):
        def case():
            both = {"five": "x", "three": "x"}
            self.assertEqual(self.statuses(6, "/quotas", both), [OK] * 5 + [OVER])
            self.assertEqual(self.get("/quotas", {**both, "none": "x"}).status, OVER)
            fresh = {"five": "y", "three": "y"}
            self.assertEqual(self.get("/quotas", {**fresh, "none": "x"}).status, OVER)

        self.within_a_minute(case)

    def test_g16_headers_of_the_service(self):
        def case():
            for _ in range(11):
                start = time.time()
                response = self.get("/headers", {"ten": "x"})
                end = time.time()
            found = [response.header(f"ratelimit-{name}") for name in ["limit", "remaining"]]
            self.assertEqual((response.status, found), (OVER, ["10", "0"]))
            reset = response.number("ratelimit-reset")
            self.assertLessEqual(60 - int(end) % 60, reset)
            self.assertLessEqual(reset, 60 - int(start) % 60)

        self.within_a_minute(case, LIMIT_RESPONSE_HEADERS_ENABLED="true")

    def test_g17_near_the_limit(self):
        server = self.scene.fresh_server()
        names = ["near_limit", "over_limit", "within_limit"]

        def counts(value):
            # The key in metrics contains the value if the limit has a value or requests it.
            return [server.limit_metric(name, "near", f"near_{value}") for name in names]

        def ask(value, hits):
            """Sends a request, and returns the changes of the statistics."""
            before = counts(value)
            self.get("/near", {"near": value, "hits": str(hits)})
            return [int(b - a) for a, b in zip(before, counts(value))]

        # Each row contains the count before, the hits of the request, and [near, over, within].
        for value, table in {
            "fifteen": [(10, 1, [0, 0, 1]), (12, 1, [1, 0, 1]), (15, 1, [0, 1, 0])],
            "twenty-a": [(2, 3, [0, 0, 3])],
            "eight": [(5, 2, [1, 0, 2])],
            "twenty-b": [(16, 3, [3, 0, 3])],
            "twenty-c": [(19, 3, [1, 2, 0])],
            "twenty-d": [(15, 7, [4, 2, 0])],
            "ten": [(27, 3, [0, 3, 0])],
        }.items():
            counted = 0
            for before, hits, expected in table:
                if before > counted:
                    ask(value, before - counted)
                self.assertEqual(ask(value, hits), expected, (value, before, hits))
                counted = before + hits

    def test_g20_json_beside_envoy(self):
        """Checks that JSON and gRPC share their counts."""

        def case():
            self.assertEqual(self.get("/another", {"key2": "shared"}).remaining(), 19)
            config = get(self.scene.server.json_port, "/config").body
            self.assertIn('"another.key2"', config)

        self.within_a_minute(case)


def wait_two_seconds(then):
    """Waits two seconds, so that a clock advances. The exact time does not matter."""
    start = time.monotonic()
    wait_for("two seconds", lambda: time.monotonic() - start >= 2)
    return then()
