"""redis-py against tidegate-server: resp_clients.py PORT PORT_WITH_PASSWORD"""

import sys

import redis

PASSWORD = "s3cret"
POLICY = "fixed-window 3/365d"


def refused(kind, code, call):
    """Checks that a call fails with an error of this type, whose text begins with the code."""
    try:
        call()
    except kind as error:
        assert code in str(error), error
        return
    raise AssertionError(f"{code} is missing")


def check_transactions(client, name):
    """Checks pipelines as redis-py creates them by default: between MULTI and EXEC."""

    def remaining():
        return client.execute_command("TG.PEEK", name, POLICY)[2][2]

    pipeline = client.pipeline()
    pipeline.execute_command("TG.ACQUIRE", name, POLICY)
    pipeline.ping()
    pipeline.execute_command("CL.THROTTLE", name + "t", 15, 30, 60)
    assert remaining() == 3
    acquired, pong, throttled = pipeline.execute()
    assert acquired[2][:3] == ["allowed", 3, 2] and pong and throttled == [0, 16, 15, -1, 2]

    # A command that cannot be queued aborts the transaction, and nothing is charged.
    for wrong in (["TG.ACQUIRE", name, "gcra"], ["TG.ACQUIRE", name], ["GET", name]):
        pipeline.execute_command("TG.ACQUIRE", name, POLICY)
        pipeline.execute_command(*wrong)
        refused(redis.ResponseError, "Command # 2", pipeline.execute)
    assert remaining() == 2

    # A command that fails at EXEC leaves the others their replies.
    pipeline.execute_command("TG.CANCEL", name, POLICY, "ID", "x")
    pipeline.execute_command("TG.ACQUIRE", name, POLICY)
    error, acquired = pipeline.execute(raise_on_error=False)
    assert isinstance(error, redis.ResponseError) and acquired[0] == 1
    assert client.transaction(lambda pipe: pipe.execute_command("TG.ACQUIRE", name, POLICY))[0][2][2] == 0

    large = client.pipeline()
    for _ in range(2_000):
        large.execute_command("CL.THROTTLE", name + "l", 9_999, 1, 3_600)
    assert [reply[2] for reply in large.execute()] == list(range(9_999, 7_999, -1))

    refused(redis.ResponseError, "WATCH is not supported", lambda: client.pipeline().watch(name))
    assert client.ping()


def check(port, password, protocol):
    name = f"py{protocol}{password}"
    settings = {"host": "127.0.0.1", "port": port, "protocol": protocol, "decode_responses": True}
    client = redis.Redis(password=password, socket_timeout=60, **settings)
    call = client.execute_command
    assert client.ping()
    assert call("CL.THROTTLE", name, 15, 30, 60) == [0, 16, 15, -1, 2]
    assert call("THROTTLE", name + "t", 5, 10, 60) == [1, 5, 4, 6, 0]

    admitted, wait, (outcome, limit, remaining, retry, reset, amount) = call("TG.ACQUIRE", name, POLICY, "COST", 2)
    assert (admitted, wait, outcome, limit, remaining, retry, amount) == (1, 0, "allowed", 3, 1, 0, 2)
    assert reset > 0
    assert call("TG.PEEK", name, POLICY)[2][2] == 1
    admitted, wait, charge = call("TG.ACQUIRE", name, POLICY, "COST", 2)
    assert admitted == 0 and wait > 0 and charge[:3] == ["denied", 3, 1]
    assert call("TG.REFUND", name, POLICY, "COST", 9)[2][2:] == [3, 0, 0, 2]
    assert call("TG.ACQUIRE", b"\0\xff\r\n" + name.encode(), POLICY)[0] == 1

    pipeline = client.pipeline(transaction=False)
    for _ in range(50):
        pipeline.execute_command("CL.THROTTLE", name + "p", 99, 1, 3600)
    assert [reply[2] for reply in pipeline.execute()] == list(range(99, 49, -1))

    check_transactions(client, name + "m")

    refused(redis.ResponseError, "there must be a rate", lambda: call("TG.ACQUIRE", name, "gcra"))
    refused(redis.ResponseError, "UNKNOWNHOLD", lambda: call("TG.CANCEL", name, POLICY, "ID", "x"))
    refused(redis.ResponseError, "unknown command", lambda: client.get("x"))
    assert client.ping()
    if password:
        for wrong in (None, "wrong"):
            other = redis.Redis(password=wrong, **settings)
            refused(redis.AuthenticationError, "", other.ping)


open_port, guarded_port = map(int, sys.argv[1:])
for protocol in (2, 3):
    check(open_port, None, protocol)
    check(guarded_port, PASSWORD, protocol)
print(f"redis-py {redis.__version__}: RESP2 and RESP3")
