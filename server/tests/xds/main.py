"""Runs tidegate-server with a management server on go-control-plane. .ci/xds builds both.

    main.py MANAGEMENT_SERVER SERVER [CASE...]

A CASE is a part of a test's name. Without a CASE, all tests are run.
"""

import http.client
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "envoy"))

from certificates import Root, Secret  # noqa: E402
from parts import LIMIT, Port, Process, get, wait_for  # noqa: E402

NODE = "envoy-ratelimit"
NAME = "envoy-gateway"
PROGRAMS = []


def per_day(count, key="a"):
    policy = {"unit": "DAY", "requests_per_unit": count}
    return {"name": "d", "domain": "d", "descriptors": [{"key": key, "rate_limit": policy}]}


BAD, REASON = per_day(9, key=""), "d: descriptor has empty key"


class Management(Process):
    """A management server that reads snapshots from its input and prints the requests of clients."""

    def __init__(self, folder, port, certs=None):
        self.folder = pathlib.Path(folder)
        self.files = 0
        arguments = [PROGRAMS[0], "-address", f"127.0.0.1:{port.number}", "-node", NODE]
        arguments += ["-certs", str(certs)] if certs else []
        self.name = "management"
        self.output = tempfile.NamedTemporaryFile(dir=folder, prefix="management-", delete=False)
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=self.output, stderr=subprocess.STDOUT
        )
        wait_for("the management server's start", lambda: self.is_running() and "listening" in self.said())

    def put(self, version, resources):
        """Puts a snapshot in place. `None` is a snapshot without limits, which has no version."""
        line = version
        if resources is not None:
            self.files += 1
            file = self.folder / f"{self.output.name}.{self.files}.json"
            file.write_text(json.dumps(resources))
            line = f"{version} {file}"
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def wait_for(self, pattern):
        """Waits for a line that matches, and returns the number of such lines."""
        lines = re.compile(pattern, re.MULTILINE)
        wait_for(pattern, lambda: self.is_running() and lines.search(self.said()))
        return len(lines.findall(self.said()))

    def accepted(self, version):
        self.wait_for(rf'^request .*version="{version}" nonce="\d+" error=""$')

    def refused(self, version, reason):
        """Waits for a refusal. `version` is the version that stays in force."""
        self.wait_for(rf'^request .*version="{version}" nonce="\d+" error="{re.escape(reason)}"$')

    def requests(self):
        return self.said().count("\nrequest ")

    def stop(self):
        self.process.stdin.close()
        super().stop()


class Server(Process):
    """tidegate-server with the settings that Envoy Gateway gives envoyproxy/ratelimit."""

    def __init__(self, folder, port, **variables):
        env = {
            "HOST": "127.0.0.1",
            "PORT": "0",
            "GRPC_HOST": "127.0.0.1",
            "GRPC_PORT": "0",
            "TIDEGATE_STORE": "memory",
            "RUNTIME_ROOT": "/data",
            "RUNTIME_SUBDIRECTORY": "ratelimit",
            "RUNTIME_IGNOREDOTFILES": "true",
            "RUNTIME_WATCH_ROOT": "false",
            "LOG_LEVEL": "info",
            "USE_STATSD": "false",
            "CONFIG_TYPE": "GRPC_XDS_SOTW",
            "CONFIG_GRPC_XDS_SERVER_URL": f"localhost:{port.number}",
            "CONFIG_GRPC_XDS_NODE_ID": NODE,
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "200ms",
            **variables,
        }
        super().__init__("tidegate-server", [PROGRAMS[1]], folder, env)
        pattern = re.compile(r"JSON on http://127\.0\.0\.1:(\d+)")
        self.port = int(wait_for("the server's start", lambda: self.is_running() and pattern.search(self.said()))[1])

    def ask(self, domain, *descriptors):
        """Returns the status code and the statuses. A descriptor is a list of `(key, value)`."""
        wanted = [
            {"entries": [{"key": key, "value": value} for key, value in descriptor]}
            for descriptor in descriptors
        ]
        body = json.dumps({"domain": domain, "descriptors": wanted})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        connection.request("POST", "/json", body)
        response = connection.getresponse()
        said = response.read()
        connection.close()
        return response.status, json.loads(said).get("statuses", []) if said.startswith(b"{") else said

    def decide(self, domain, entries):
        """Returns the status code and the limit of a descriptor, such as `5 per DAY`, or `None`."""
        status, [said] = self.ask(domain, entries)
        found = said.get("currentLimit")
        return status, found and f"{found.get('requestsPerUnit', 0)} per {found['unit']}"

    def limit(self):
        return self.decide("d", [("a", "x")])[1]

    def health(self):
        return get(self.port, "/healthcheck").status

    def has_limit(self, limit):
        wait_for(f"the limit {limit}", lambda: self.is_running() and self.health() == 200 and self.limit() == limit)


class Cases(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidegate-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.port = Port()
        self.addCleanup(self.port.close)

    def management(self, **settings):
        peer = Management(self.folder, self.port, **settings)
        self.addCleanup(lambda: peer.process.poll() is None and peer.stop())
        return peer

    def server(self, **variables):
        server = Server(self.folder, self.port, **variables)
        self.addCleanup(server.stop)
        return server


class Protocol(Cases):
    def test_limits_come_change_and_are_refused(self):
        peer, server = self.management(), self.server()
        peer.wait_for(r'^request 1 node=envoy-ratelimit version="" nonce="" error=""$')
        self.assertEqual(server.health(), 500)
        peer.put("1", [per_day(1)])
        peer.accepted("1")
        self.assertEqual(server.health(), 200)
        self.assertEqual(server.ask("d", [("a", "x")])[0], 200)
        self.assertEqual(server.ask("d", [("a", "x")])[0], 429)
        peer.put("2", [per_day(2)])
        peer.accepted("2")
        self.assertEqual(server.limit(), "2 per DAY")
        peer.put("3", [per_day(3), {**BAD, "domain": "e"}])
        peer.refused("2", REASON)
        self.assertEqual(server.limit(), "2 per DAY")
        peer.put("4", [per_day(4)])
        peer.accepted("4")
        self.assertEqual(server.limit(), "4 per DAY")
        self.assertEqual(peer.wait_for("^open"), 1)

    def test_a_refused_snapshot_is_sent_again_at_once_and_read_slowly(self):
        peer, server = self.management(), self.server(XDS_CLIENT_BACKOFF_INITIAL_INTERVAL="10s")
        peer.put("1", [BAD])
        # The pauses are 100, 200, 400 and 800 ms. go-control-plane itself does not pause.
        wait_for("four refusals", lambda: peer.said().count(REASON) >= 4)
        peer.put("2", [per_day(2)])
        peer.accepted("2")
        self.assertLess(peer.said().count(REASON), 10)
        self.assertEqual(server.limit(), "2 per DAY")

    def test_an_empty_snapshot_ends_all_limits(self):
        peer, server = self.management(), self.server()
        peer.put("1", [per_day(1)])
        server.has_limit("1 per DAY")
        peer.put("2", [])
        peer.accepted("2")
        self.assertEqual((server.health(), server.limit()), (200, None))
        peer.put("3", [per_day(3)])
        server.has_limit("3 per DAY")
        # Envoy Gateway sends such a snapshot if it has no gateways.
        peer.put("4", None)
        server.has_limit(None)
        peer.put("5", [per_day(5)])
        server.has_limit("5 per DAY")
        self.assertEqual(peer.wait_for("^open"), 1)

    def test_another_node_has_no_limits(self):
        peer, server = self.management(), self.server(CONFIG_GRPC_XDS_NODE_ID="another")
        peer.put("1", [per_day(1)])
        peer.wait_for(r'^request 1 node=another version=""')
        own = self.server()
        own.has_limit("1 per DAY")
        self.assertEqual(server.health(), 500)

    def test_each_server_of_a_node_has_the_limits(self):
        peer, servers = self.management(), [self.server() for _ in range(3)]
        for count in range(1, 4):
            peer.put(str(count), [per_day(count)])
            for server in servers:
                server.has_limit(f"{count} per DAY")

    def test_limits_above_the_maximum_end_the_stream_and_change_nothing(self):
        peer, server = self.management(), self.server()
        peer.put("1", [per_day(1)])
        server.has_limit("1 per DAY")
        peer.put("2", [per_day(2), {"name": "x" * (5 << 20), "domain": "e"}])
        wait_for("its log", lambda: "4194304 bytes" in server.said())
        self.assertGreaterEqual(peer.wait_for("^open"), 1)
        self.assertEqual(server.limit(), "1 per DAY")
        self.assertNotIn('error="d', peer.said())
        peer.put("3", [per_day(3)])
        server.has_limit("3 per DAY")


class Restarts(Cases):
    def again(self, peer):
        peer.stop()
        return self.management()

    def test_limits_stay_while_it_is_away_and_a_version_may_come_again(self):
        peer, server = self.management(), self.server()
        peer.put("1", [per_day(1)])
        server.has_limit("1 per DAY")
        peer.stop()
        wait_for("its log", lambda: server.said().count("Connection refused") >= 2)
        self.assertEqual((server.health(), server.limit()), (200, "1 per DAY"))
        peer = self.management()
        peer.put("1", [per_day(2)])
        server.has_limit("2 per DAY")

    def test_limits_that_ended_while_it_was_away_end(self):
        peer, server = self.management(), self.server()
        for resources in [[], None]:
            peer.put("1", [per_day(1)])
            server.has_limit("1 per DAY")
            peer = self.again(peer)
            peer.put("1", resources)
            server.has_limit(None)
            peer = self.again(peer)

    def test_without_a_snapshot_yet_the_limits_stay(self):
        peer, server = self.management(), self.server()
        peer.put("1", [per_day(1)])
        server.has_limit("1 per DAY")
        peer = self.again(peer)
        peer.wait_for("^request")
        self.assertEqual(server.limit(), "1 per DAY")
        peer.put("1", [BAD])
        wait_for("a refusal", lambda: REASON in peer.said())
        self.assertEqual(server.limit(), "1 per DAY")
        peer.put("2", [per_day(2)])
        server.has_limit("2 per DAY")


class Encrypted(Cases):
    """Tests of mutual TLS 1.3, with certificates in the folders that Envoy Gateway mounts."""

    def setUp(self):
        super().setUp()
        self.root, self.other = Root(f"{self.folder}/root"), Root(f"{self.folder}/other")
        self.certs = self.root.issue(NAME)

    def server(self, certs, **variables):
        return super().server(
            CONFIG_GRPC_XDS_SERVER_USE_TLS="true",
            CONFIG_GRPC_XDS_CLIENT_TLS_CERT=f"{certs}/tls.crt",
            CONFIG_GRPC_XDS_CLIENT_TLS_KEY=f"{certs}/tls.key",
            CONFIG_GRPC_XDS_SERVER_TLS_CACERT=f"{certs}/ca.crt",
            **{"CONFIG_GRPC_XDS_SERVER_TLS_SAN": NAME, **variables},
        )

    def test_both_sides_show_certificates(self):
        peer, server = self.management(certs=self.certs), self.server(self.root.issue(NODE))
        peer.put("1", [per_day(1)])
        server.has_limit("1 per DAY")

    def test_what_is_not_of_the_root_or_the_name_is_refused(self):
        peer = self.management(certs=self.certs)
        peer.put("1", [per_day(1)])
        client = self.root.issue(NODE)
        for reason, server in [
            ("not valid for name", self.server(client, CONFIG_GRPC_XDS_SERVER_TLS_SAN="other")),
            ("UnknownIssuer", self.server(self.root.issue(NODE, trusts=self.other))),
            ("alert", self.server(self.other.issue(NODE, trusts=self.root))),
        ]:
            wait_for(reason, lambda: server.is_running() and reason in server.said())
            self.assertEqual(server.health(), 500)
        self.assertNotIn("open", peer.said())

    def test_replaced_certificates_are_shown_to_the_next_connection(self):
        secret = Secret(f"{self.folder}/secret", self.root.issue(NODE))
        peer, server = self.management(certs=self.certs), self.server(secret.folder)
        peer.put("1", [per_day(1)])
        server.has_limit("1 per DAY")
        peer.stop()
        secret.put(self.other.issue(NODE))
        peer = self.management(certs=self.other.issue(NAME))
        peer.put("1", [per_day(2)])
        server.has_limit("2 per DAY")


class Translated(Cases):
    """Tests of the limits into which Envoy Gateway translates its policies."""

    def test_each_shape_decides(self):
        cases = json.loads((HERE / "envoy_gateway.json").read_text())
        peer, server = self.management(), self.server()
        peer.put("1", cases["resources"])
        peer.accepted("1")
        for case in cases["requests"]:
            with self.subTest(case["is"]):
                entries = [tuple(entry) for entry in case["entries"]]
                decided = server.decide(case["domain"], entries)
                self.assertEqual(decided, (case["status"], case["limit"]))


def main(management, server, *names):
    PROGRAMS[:] = [management, server]
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in names] or None
    suite = loader.loadTestsFromModule(sys.modules[__name__])
    passed = unittest.TextTestRunner(verbosity=2).run(suite)
    if not passed.testsRun:
        sys.exit(f"no case has a name with {' or '.join(names)}")
    sys.exit(not passed.wasSuccessful())


if __name__ == "__main__":
    main(*sys.argv[1:])
