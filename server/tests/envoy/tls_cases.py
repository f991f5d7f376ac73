"""Encrypted connections between Envoy and the service. Certificates are replaced under load."""

import socket
import ssl
import tempfile
import time

import envoy_config
from cases import Cases
from certificates import Root, Secret
from failure_cases import Load
from parts import wait_for

OVER, OK, ERROR = 429, 200, 500
SERVICE, ENVOY = "ratelimit.example.com", "envoy.example.com"


class Encrypted(Cases):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidegate-")
        self.addCleanup(folder.cleanup)
        self.root, self.other = Root(f"{folder.name}/root"), Root(f"{folder.name}/other")
        self.envoy = self.root.issue(ENVOY)
        self.issued = self.root.issue(SERVICE)
        self.secret = Secret(f"{folder.name}/secret", self.issued)
        self.config = {"encryption": envoy_config.encryption(self.envoy, SERVICE)}
        super().setUp()
        # Because of the short age, Envoy opens new connections again and again.
        age = {"GRPC_MAX_CONNECTION_AGE": "300ms"}
        self.server = self.scene.start_server(**self.secret.variables(), **age)
        self.scene.wait_until_answered()

    def put(self, issued):
        """Replaces the server's files, and waits until the server has loaded them."""
        before = self.reloads()
        self.issued = issued
        self.secret.put(issued)
        wait_for("new certificates", lambda: self.reloads() > before)

    def reloads(self):
        name = "tidegate_server_tls_reloads_total"
        self.assertEqual(self.server.metric(name, protocol="grpc", outcome="failed"), 0)
        return self.server.metric(name, protocol="grpc", outcome="done")

    def stat(self, name):
        return self.scene.envoy.stat(f"cluster.ratelimit.{name}")

    def shown(self):
        """Returns the certificate that the server presents now."""
        context = ssl.create_default_context(cafile=self.root.certificate)
        context.load_cert_chain(self.envoy / "tls.crt", self.envoy / "tls.key")
        address = ("127.0.0.1", self.scene.server_ports[0].number)
        with socket.create_connection(address) as plain:
            with context.wrap_socket(plain, server_hostname=SERVICE) as encrypted:
                return encrypted.getpeercert(True)

    def wait_for_connections(self, count):
        """Waits until Envoy has opened `count` more connections."""
        before = self.stat("ssl.handshake")
        wait_for("new connections", lambda: self.stat("ssl.handshake") >= before + count)

    def test_g19_certificates_are_replaced_under_load_and_no_request_fails(self):
        requests = [("/probe", "closed"), ("/banned", "closed")] * 2
        with Load(self, requests) as load:
            for _ in range(3):
                load.wait_for_more(time.monotonic())
                self.put(self.root.issue(SERVICE))
                shown = ssl.PEM_cert_to_DER_cert((self.issued / "tls.crt").read_text())
                self.assertEqual(self.shown(), shown)
                self.wait_for_connections(4)
            load.wait_for_more(time.monotonic())
        self.assertEqual([load.statuses(i) for i in range(4)], [{OK}, {OVER}] * 2)
        self.assertEqual(self.stat("ssl.connection_error"), 0)
        # Each connection ended with a GOAWAY after its requests.
        self.assertGreaterEqual(self.stat("upstream_cx_close_notify"), 12)
        self.assertEqual(self.stat("upstream_cx_destroy_with_active_rq"), 0)

    def test_g19_a_certificate_that_is_not_trusted_is_refused(self):
        name = "tidegate_server_tls_handshakes_total"
        for case, issued, outcome in [
            ("of the server", self.other.issue(SERVICE, self.root), "refused_by_client"),
            ("of Envoy", self.root.issue(SERVICE, self.other), "bad_client_certificate"),
        ]:
            with self.subTest(case), Load(self, [("/probe", "open"), ("/probe", "closed")]) as load:
                trusted = self.issued
                load.wait_for_more(time.monotonic())
                self.put(issued)
                # Existing connections stay until they reach the maximum age.
                wait_for("the last connection's end", self.is_not_answered)
                gone = time.monotonic()
                load.wait_for_more(gone)
                self.assertGreater(self.server.metric(name, protocol="grpc", outcome=outcome), 0)
                self.assertEqual([load.statuses(i, gone) for i in [0, 1]], [{OK}, {ERROR}])
                self.put(trusted)
                self.scene.wait_until_answered()
                back = time.monotonic()
                load.wait_for_more(back)
                self.assertEqual([load.statuses(i, back) for i in [0, 1]], [{OK}, {OK}])

    def is_not_answered(self):
        before = self.server.calls()
        statuses = self.statuses(8, "/probe", listener="closed")
        return statuses == [ERROR] * 8 and self.server.calls() == before
