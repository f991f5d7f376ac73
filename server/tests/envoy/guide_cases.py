"""The example of the guide: examples/envoy and examples/server, with other ports."""

import pathlib
import re
import tempfile

import envoy_config
from cases import Cases
from parts import Envoy, Port, Server, get, wait_for

OVER, OK = 429, 200
REPOSITORY = pathlib.Path(__file__).parents[3]


class Guide(Cases):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidegate-")
        self.addCleanup(folder.cleanup)
        text = (REPOSITORY / "examples/envoy/envoy.yaml").read_text()
        if self.programs.envoy_version < envoy_config.RETRY_AFTER:
            text = re.sub(r".*enable_retry_after_header: true\n", "", text)
        ports = {"10000": "0"}
        for number in ["10001", "8081"]:
            port = Port()
            self.addCleanup(port.close)
            ports[number] = str(port.number)
        # The timeout is that of a machine with time to spare.
        text = text.replace("timeout: 0.1s", "timeout: 30s")
        text = re.sub(r"port_value: (\d+)", lambda it: f"port_value: {ports[it[1]]}", text)
        self.envoy = Envoy(self.programs.envoy, text, folder.name)
        self.addCleanup(self.envoy.stop)
        limits = str(REPOSITORY / "examples/server")
        self.server = Server(self.programs.server, port, limits, folder.name)
        self.addCleanup(self.server.stop)

    def get(self, path, headers=None, listener="shop"):
        return get(self.envoy.ports[listener], path, headers)

    def test_the_guide(self):
        wait_for("an answer of the service", lambda: self.get("/").limit() is not None)
        account = {"x-account": "alice"}
        self.assertEqual(self.statuses(6, "/login", account), [OK] * 5 + [OVER])
        response = self.get("/login", account)
        if self.programs.envoy_version >= envoy_config.RETRY_AFTER:
            # `block 15m`, of which a moment has passed.
            self.assertIn(response.number("retry-after"), range(600, 901))
        self.assertEqual(self.get("/login", {"x-account": "bob"}).status, OK)
        self.assertEqual(self.get("/", account).limit(), "100, 100;w=60")
        # Of what is behind Envoy.
        self.assertEqual(self.get("/", account).body, "welcome\n")


