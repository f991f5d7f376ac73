"""The processes of the cases: Envoy, the server, Redis and the upstreams, on separate ports."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import envoy_config

# The maximum time in seconds on a slow machine. All waits usually end much earlier.
LIMIT = 120

LIMITS = pathlib.Path(__file__).parent / "limits"


def wait_for(what, condition):
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + LIMIT
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not happened within {LIMIT} s")
        time.sleep(0.02)


class Port:
    """A port that is reserved for a server, which can be started and stopped several times.

    The port is bound but not listened on, so that connections are refused. Another socket
    can use the port only by binding to its number.
    """

    def __init__(self):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))
        self.number = self.socket.getsockname()[1]

    def close(self):
        self.socket.close()


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __repr__(self):
        return f"{self.status} {self.headers}"

    def header(self, name):
        """Returns the value of a header, or `None` if it is missing."""
        return self.headers.get(name.lower())

    def number(self, name):
        return int(self.headers[name.lower()])

    def limit(self):
        """Returns the limit as Envoy shows it, such as `10, 10;w=60`."""
        return self.header("x-ratelimit-limit")

    def remaining(self):
        return self.number("x-ratelimit-remaining")


def get(port, path, headers=None):
    """Sends a request on a separate connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        body = response.read().decode()
        return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


def post(port, path, body):
    """Sends a value as JSON, and returns the status of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body))
        return connection.getresponse().status


class Process:
    """A program whose output is kept in a file, and shown if the program ends unexpectedly."""

    def __init__(self, name, arguments, folder, env=None):
        self.name = name
        self.output = tempfile.NamedTemporaryFile(dir=folder, prefix=f"{name}-", delete=False)
        self.process = subprocess.Popen(
            arguments, stdout=self.output, stderr=subprocess.STDOUT, env=env
        )

    def said(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def is_running(self):
        if self.process.poll() is not None:
            raise AssertionError(
                f"{self.name} has ended with {self.process.returncode}: {self.said()[-4000:]}"
            )
        return True

    def terminate(self):
        """Ends the program with SIGTERM, and returns its exit code."""
        self.process.terminate()
        return self.process.wait(LIMIT)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self.output.close()


class Server(Process):
    """A tidegate-server that is ready for requests."""

    def __init__(self, program, port, limits, folder, **variables):
        env = {
            "GRPC_HOST": "127.0.0.1",
            "GRPC_PORT": str(port.number),
            "PORT": "0",
            **variables,
        }
        super().__init__("tidegate-server", [program, "--config", limits], folder, env)
        said = wait_for("the server's start", self.address)
        self.json_port = int(said.group(1))

    def address(self):
        return re.search(r"JSON on http://127\.0\.0\.1:(\d+)", self.said()) or (
            self.is_running() and None
        )

    def metric(self, name, **labels):
        """Returns the value of a metric, or 0 if it is missing."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wanted = f"{name}{{{shown}}} " if labels else f"{name} "
        for line in get(self.json_port, "/metrics").body.splitlines():
            if line.startswith(wanted):
                return float(line[len(wanted) :])
        return 0

    def limit_metric(self, name, domain, *keys):
        labels = {f"key{index}": key for index, key in enumerate(keys, 1)}
        return self.metric(f"ratelimit_service_rate_limit_{name}", domain=domain, **labels)

    def calls(self):
        """Returns the number of requests that the server has received."""
        name = "ratelimit_service_total_requests"
        return self.metric(name, grpc_method="ShouldRateLimit")


class Redis(Process):
    def __init__(self, port, folder):
        program = os.environ.get("TIDEGATE_REDIS_SERVER", "redis-server")
        arguments = [program, "--port", str(port.number), "--bind", "127.0.0.1"]
        arguments += ["--save", "", "--appendonly", "no", "--dir", folder]
        super().__init__("redis-server", arguments, folder)
        wait_for("Redis' start", self.answers)

    def answers(self):
        return self.is_running() and "Ready to accept connections" in self.said()


class Upstream:
    """An upstream of Envoy. It responds with its name, immediately or after it is released."""

    def __init__(self, name):
        upstream = self
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.held = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if self.headers.get("hold"):
                    with upstream.lock:
                        upstream.held += 1
                    upstream.released.wait(LIMIT)
                self.send_response(200)
                self.send_header("x-upstream", name)
                self.send_header("x-tokens", self.headers.get("used", "0"))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A client can disconnect while its request is held.
        self.server.handle_error = lambda *_: None
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


class Envoy(Process):
    """Envoy with a configuration in YAML or JSON, which is valid YAML."""

    def __init__(self, program, config, folder):
        file = pathlib.Path(folder, "envoy.yaml")
        file.write_text(config)
        admin = json.dumps({"admin": {"address": envoy_config.address(0)}})
        self.admin_file = pathlib.Path(folder, "admin")
        arguments = [program, "--config-path", str(file), "--config-yaml", admin]
        arguments += ["--service-cluster", "proxy"]
        arguments += ["--service-node", "test", "--disable-hot-restart", "--concurrency", "2"]
        arguments += ["--admin-address-path", str(self.admin_file), "--log-level", "warning"]
        super().__init__("envoy", arguments, folder)
        wait_for("Envoy's admin address", self.has_admin)
        self.admin = int(self.admin_file.read_text().rpartition(":")[2])
        self.ports = wait_for("Envoy's start", self.listeners)

    def has_admin(self):
        return self.is_running() and self.admin_file.exists() and self.admin_file.read_text()

    def listeners(self):
        """Returns the ports of the listeners by name after all listeners have started."""
        if get(self.admin, "/ready").status != 200:
            return None
        found = json.loads(get(self.admin, "/listeners?format=json").body)
        return {
            listener["name"]: listener["local_address"]["socket_address"]["port_value"]
            for listener in found.get("listener_statuses", [])
        }

    def stat(self, name):
        found = json.loads(get(self.admin, f"/stats?format=json&filter=^{name}$").body)
        return sum(stat.get("value", 0) for stat in found["stats"])

    def healthy_servers(self):
        return self.stat("cluster.ratelimit.membership_healthy")


class Scene:
    """Envoy and its environment. A case can start and restart the server."""

    def __init__(self, programs, servers=1, **config):
        self.programs = programs
        self.stack = contextlib.ExitStack()
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-"))
        self.limits = pathlib.Path(self.folder, "limits")
        self.limits.mkdir()
        for file in LIMITS.glob("*.yaml"):
            if file.name != "services.yaml":
                shutil.copy(file, self.limits)
        services = (LIMITS / "services.yaml").read_text()
        for domain in ["rl-quota", "rl-tokenquota", "rl-multiservice"]:
            (self.limits / f"{domain}.yaml").write_text(services.replace("DOMAIN", domain))
        self.server_ports = [self.kept(Port(), Port.close) for _ in range(servers)]
        self.upstreams = {
            name: self.kept(Upstream(name), Upstream.stop)
            for name in ["mock", "service_1", "service_2"]
        }
        config = envoy_config.bootstrap(
            programs.envoy_version,
            [port.number for port in self.server_ports],
            {name: upstream.port for name, upstream in self.upstreams.items()},
            **config,
        )
        envoy = Envoy(programs.envoy, json.dumps(config), self.folder)
        self.envoy = self.kept(envoy, Envoy.stop)
        self.server = None

    def kept(self, part, stop):
        self.stack.callback(stop, part)
        return part

    def close(self):
        self.stack.close()

    def start_server(self, index=0, **variables):
        """Restarts the server. Counts in its memory are lost."""
        if index == 0 and self.server is not None:
            self.server.stop()
        port = self.server_ports[index]
        server = Server(self.programs.server, port, str(self.limits), self.folder, **variables)
        self.kept(server, Server.stop)
        if index == 0:
            self.server = server
        return server

    def get(self, path, headers=None, listener="open"):
        return get(self.envoy.ports[listener], path, headers)

    def is_answered(self, listener="open"):
        """Returns `True` if the service decides requests."""
        return self.get("/probe", listener=listener).limit() is not None

    def wait_until_answered(self):
        # Each of Envoy's threads has a separate connection to the service.
        def several_times():
            return all(self.is_answered(listener) for listener in ["open", "closed"] * 4)

        wait_for("an answer of the service", several_times)

    def fresh_server(self, **variables):
        self.start_server(**variables)
        self.wait_until_answered()
        return self.server
