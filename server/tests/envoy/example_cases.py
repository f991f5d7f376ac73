"""E01 to E16: the example of envoyproxy/ratelimit, with the requests of its scripts."""

import envoy_config
from cases import Cases, minute
from parts import wait_for

OVER, OK = 429, 200


class Example(Cases):
    def test_e01_to_e03_headers(self):
        self.within_a_minute(self.headers)

    def headers(self):
        self.assertEqual(self.statuses(1, "/twoheader", {"foo": "test", "baz": "shady"}), [OK])
        not_so_shady = {"foo": "pelle", "baz": "not-so-shady"}
        self.assertEqual(self.statuses(4, "/twoheader", not_so_shady), [OK, OK, OK, OVER])

        shady = [self.get("/twoheader", {"foo": "pelle", "baz": "shady"}) for _ in range(6)]
        self.assertEqual([response.status for response in shady], [OK] * 6)
        self.assertEqual([response.remaining() for response in shady], [2, 1, 0, 0, 0, 0])
        self.assertEqual({response.limit() for response in shady}, {"3, 3;w=60"})
        key = ("rl", "foo", "baz_shady")
        self.assertEqual(self.scene.server.limit_metric("shadow_mode", *key), 3)
        self.assertEqual(self.scene.server.limit_metric("total_hits", *key), 7)

    def test_e04_to_e06_quotas(self):
        ended = self.within_a_minute(self.quotas, RESPONSE_DYNAMIC_METADATA="true")
        wait_for("the next minute", lambda: minute() > ended)
        # The windows have ended, so all counts begin again.
        self.assertEqual(self.get("/quota").status, OK)
        self.assertEqual(self.get("/tokenquota").status, OK)
        if self.has_locality_metadata():
            self.assertEqual(self.multiservice(1), ["service_1"])

    def quotas(self):
        self.assertEqual(self.statuses(3, "/quota"), [OK, OK, OVER], "E04")
        self.assertEqual(self.token_quota(4), [OK, OK, OK, OVER], "E05")
        if self.has_locality_metadata():
            one, two = "service_1", "service_2"
            self.assertEqual(self.multiservice(6), [one, one, two, two, two, OVER], "E06")
        return minute()

    def has_locality_metadata(self):
        return self.programs.envoy_version >= envoy_config.LOCALITY_METADATA

    def token_quota(self, count):
        return [self.and_charged("/tokenquota").status for _ in range(count)]

    def multiservice(self, count):
        """Returns the service that received each request, or the status of a refused request."""
        found = [self.and_charged("/multiservice-tokenquota") for _ in range(count)]
        return [response.header("x-upstream") or response.status for response in found]

    def and_charged(self, path):
        """Sends a request, and waits for the charge that Envoy sends at the end of its stream.

        Envoy also sends the charge after a refusal.
        """
        before = self.scene.server.calls()
        response = self.get(path)
        # A refused request has no upstream, so that the key of its charge is unknown.
        is_charged = response.status == OK or path == "/tokenquota"
        expected = before + 1 + is_charged
        wait_for("the charge afterwards", lambda: self.scene.server.calls() >= expected)
        return response

    def test_e07_to_e15_limits_that_replace_others(self):
        self.within_a_minute(self.replaces)

    def replaces(self):
        def statuses(count, path, foo, bar, destination=None, **more):
            headers = {"foo": foo, "bar": bar, **more}
            if destination is not None:
                headers |= {"source_cluster": "proxy", "destination_cluster": destination}
            return self.statuses(count, path, headers)

        banned, mine = ("bkthomps", "banned"), ("my_foo", "bkthomps")
        two, four, five = "/twoheader", "/fourheader", "/fiveheader"
        account = {"category": "account"}
        self.assertEqual(statuses(1, two, *banned), [OVER], "E07")
        self.assertEqual(statuses(1, four, *banned, "mock"), [OVER], "E08")
        self.assertEqual(statuses(3, four, *banned, "override"), [OK, OK, OVER], "E09")
        self.assertEqual(statuses(3, four, *mine, "bkthomps"), [OK, OK, OVER], "E10")
        self.assertEqual(statuses(2, four, *mine, "not_bkthomps"), [OK, OVER], "E11")
        self.assertEqual(statuses(1, four, *mine, "bkthomps"), [OVER], "E12")
        once = statuses(5, five, *mine, "fake", **account)
        self.assertEqual(once, [OK, OK, OK, OK, OVER], "E13")
        self.assertEqual(statuses(2, two, "foo_2", "bkthomps"), [OK, OVER], "E14")
        self.assertEqual(statuses(3, four, "foo_3", "bar_3", "fake"), [OK, OK, OVER], "E15")
        self.assertEqual(statuses(1, five, *mine, "fake", **account), [OVER], "E15")

    def test_e16_a_detailed_metric(self):
        def case():
            found = self.statuses(3, "/unspec", {"unspec": "unspecified_value"})
            self.assertEqual(found, [OK, OK, OVER])
            key = ("rl", "unspec_unspecified_value")
            self.assertEqual(self.scene.server.limit_metric("over_limit", *key), 1)

        self.within_a_minute(case)

    def test_clusters_of_envoy_itself(self):
        """Checks descriptors with the names of Envoy itself and of the target cluster."""

        def case():
            self.assertEqual(self.statuses(2, "/proxy"), [OK, OVER])

        self.within_a_minute(case)


