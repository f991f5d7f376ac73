"""The example of the guide (examples/envoy and examples/server) with other ports and with TLS."""

import pathlib
import re
import tempfile
import textwrap
import unittest

import envoy_config
from cases import Cases
from certificates import Root, Secret
from parts import Envoy, Port, Server, get, wait_for

OVER, OK = 429, 200
REPOSITORY = pathlib.Path(__file__).parents[3]


class Guide(Cases):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidegate-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        text = (REPOSITORY / "examples/envoy/envoy.yaml").read_text()
        if self.programs.envoy_version < envoy_config.RETRY_AFTER:
            text = re.sub(r".*enable_retry_after_header: true\n", "", text)
        ports = {"10000": "0"}
        for number in ["10001", "8081"]:
            port = Port()
            self.addCleanup(port.close)
            ports[number] = str(port.number)
        # The timeout is increased for busy machines.
        text = text.replace("timeout: 0.1s", "timeout: 30s")
        text = re.sub(r"port_value: (\d+)", lambda found: f"port_value: {ports[found[1]]}", text)
        self.envoy = Envoy(self.programs.envoy, self.configured(text), folder.name)
        self.addCleanup(self.envoy.stop)
        self.server = Server(
            self.programs.server, port, self.limits(), folder.name, **self.variables()
        )
        self.addCleanup(self.server.stop)

    def configured(self, text):
        """Returns the configuration of Envoy."""
        return text

    def limits(self):
        """Returns the folder with the limits of the server."""
        return str(REPOSITORY / "examples/server")

    def variables(self):
        """Returns the variables of the server."""
        return {}

    def get(self, path, headers=None, listener="shop"):
        return get(self.envoy.ports[listener], path, headers)

    def test_the_guide(self):
        wait_for("an answer of the service", lambda: self.get("/").limit() is not None)
        account = {"x-account": "alice"}
        self.assertEqual(self.statuses(6, "/login", account), [OK] * 5 + [OVER])
        response = self.get("/login", account)
        if self.programs.envoy_version >= envoy_config.RETRY_AFTER:
            # The policy has `block 15m`, and a moment of the block has passed.
            self.assertIn(response.number("retry-after"), range(600, 901))
        self.assertEqual(self.get("/login", {"x-account": "bob"}).status, OK)
        self.assertEqual(self.get("/", account).limit(), "100, 100;w=60")
        # The upstream sends this body.
        self.assertEqual(self.get("/", account).body, "welcome\n")


class GuideWithTls(Guide):
    """Tests the example with encrypted connections and with the lines of the guide."""

    def configured(self, text):
        root = Root(f"{self.folder}/root")
        self.server_files = Secret(f"{self.folder}/server", root.issue("ratelimit.example.com"))
        envoy_files = Secret(f"{self.folder}/envoy", root.issue("envoy.example.com"))
        lines = of_guide(r"```yaml\n(transport_socket:\n.*?)```")
        lines = lines.replace("/certs/", f"{envoy_files.folder}/")
        cluster = "    - name: ratelimit\n"
        self.assertEqual(text.count(cluster), 1)
        return text.replace(cluster, cluster + textwrap.indent(lines, " " * 6))

    def variables(self):
        lines = of_guide(r"```sh\n(GRPC_SERVER_USE_TLS=.*?) tidegate-server\n```")
        lines = lines.replace("/certs/", f"{self.server_files.folder}/").replace("\\\n", "")
        return dict(line.split("=") for line in lines.split())

    def test_the_guide(self):
        super().test_the_guide()
        handshakes = {"protocol": "grpc", "outcome": "done"}
        counted = self.server.metric("tidegate_server_tls_handshakes_total", **handshakes)
        self.assertGreater(counted, 0)


class GuideWithSlots(Guide):
    """Tests the example with the filter, the route and the limits of the guide for slots."""

    def setUp(self):
        if self.programs.envoy_version < envoy_config.REFUNDS:
            raise unittest.SkipTest("this Envoy cannot free slots")
        super().setUp()

    def configured(self, text):
        filters = of_guide(r"http_filters:\n(  - name: .*?)  - name: envoy.filters.http.ratelimit #")
        filter = "                  - name: envoy.filters.http.ratelimit\n"
        self.assertEqual(text.count(filter), 1)
        text = text.replace(filter, textwrap.indent(filters, " " * 16) + filter)
        lines = of_guide(r"# Of the route, whose timeout is 60 s.\nrate_limits:\n(.*?)```")
        limits = " " * 28 + "rate_limits:\n"
        self.assertEqual(text.count(limits), 1)
        return text.replace(limits, limits + textwrap.indent(lines, " " * 28))

    def limits(self):
        folder = pathlib.Path(self.folder, "limits")
        folder.mkdir()
        lines = of_guide(r"```yaml\n(domain: shop\ndescriptors:\n  - key: customer\n.*?)```")
        (folder / "shop.yaml").write_text(lines)
        return str(folder)

    def test_the_guide(self):
        customer = {"x-customer": "acme"}
        wait_for("an answer of the service", lambda: self.get("/", customer).limit() is not None)
        wait_for("a free slot", lambda: self.get("/", customer).remaining() == 9)
        self.assertEqual(self.get("/", customer).limit(), "10")


def of_guide(pattern):
    """Returns the only match of a pattern in the guide."""
    text = (REPOSITORY / "docs/guide/envoy.md").read_text()
    [found] = re.findall(pattern, text, re.DOTALL)
    return found
