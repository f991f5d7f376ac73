// node-redis and ioredis against tidegate-server: resp_clients.cjs PORT PORT_WITH_PASSWORD
"use strict";

const assert = require("node:assert/strict");
const { createClient } = require("redis");
const Redis = require("ioredis");

const PASSWORD = "s3cret";
const POLICY = "fixed-window 3/365d";

// Checks commands between MULTI and EXEC. `transaction` returns their replies, and fails if the transaction is aborted.
async function checkTransactions(name, call, transaction) {
  const acquire = ["TG.ACQUIRE", name, POLICY];
  const remaining = async () => (await call("TG.PEEK", name, POLICY))[2][2];

  const [acquired, pong, throttled] = await transaction([acquire, ["PING"], ["CL.THROTTLE", name + "t", "15", "30", "60"]]);
  assert.deepEqual([acquired[2].slice(0, 3), pong, throttled], [["allowed", 3, 2], "PONG", [0, 16, 15, -1, 2]]);

  // A command that cannot be queued aborts the transaction, and nothing is charged.
  for (const wrong of [["TG.ACQUIRE", name, "gcra"], ["TG.ACQUIRE", name], ["GET", name]]) {
    await assert.rejects(transaction([acquire, wrong, acquire]), /EXECABORT|there must be a rate|wrong number|unknown command/);
  }
  assert.equal(await remaining(), 2);

  const throttle = ["CL.THROTTLE", name + "l", "9999", "1", "3600"];
  const replies = await transaction(Array(2000).fill(throttle));
  assert.deepEqual(replies.map((reply) => reply[2]), replies.map((_, place) => 9999 - place));
}

// `call` sends a command; `pipeline` sends several at once, and has their replies.
async function check(name, call, pipeline) {
  assert.equal(await call("PING"), "PONG");
  assert.deepEqual(await call("CL.THROTTLE", name, "15", "30", "60"), [0, 16, 15, -1, 2]);
  assert.deepEqual(await call("THROTTLE", name + "t", "5", "10", "60"), [1, 5, 4, 6, 0]);

  const [admitted, wait, charge] = await call("TG.ACQUIRE", name, POLICY, "COST", "2");
  assert.deepEqual([admitted, wait, charge.slice(0, 4), charge[5]], [1, 0, ["allowed", 3, 1, 0], 2]);
  assert.ok(charge[4] > 0);
  assert.equal((await call("TG.PEEK", name, POLICY))[2][2], 1);
  const [later, retry, denied] = await call("TG.ACQUIRE", name, POLICY, "COST", "2");
  assert.deepEqual([later, retry > 0, denied.slice(0, 3)], [0, true, ["denied", 3, 1]]);
  assert.deepEqual((await call("TG.REFUND", name, POLICY, "COST", "9"))[2].slice(2), [3, 0, 0, 2]);
  assert.equal((await call("TG.ACQUIRE", Buffer.from([0, 255, 13, 10]), "fixed-window 99/1d"))[0], 1);

  const replies = await pipeline(Array(50).fill(["CL.THROTTLE", name + "p", "99", "1", "3600"]));
  assert.deepEqual(replies.map((reply) => reply[2]), replies.map((_, place) => 99 - place));

  await assert.rejects(call("TG.ACQUIRE", name, "gcra"), /there must be a rate/);
  await assert.rejects(call("TG.CANCEL", name, POLICY, "ID", "x"), /UNKNOWNHOLD/);
  await assert.rejects(call("GET", "x"), /unknown command/);
  assert.equal(await call("PING"), "PONG");
}

async function nodeRedis(port, password, protocol) {
  const settings = { RESP: protocol, socket: { host: "127.0.0.1", port, reconnectStrategy: false } };
  const client = createClient({ ...settings, password });
  client.on("error", () => {});
  await client.connect();
  const call = (...command) => client.sendCommand(command);
  // Commands of one turn of the event loop are sent together.
  const pipeline = (commands) => Promise.all(commands.map((command) => client.sendCommand(command)));
  await check(`node${protocol}${password}`, call, pipeline);
  const transaction = (commands) => {
    const multi = client.multi();
    commands.forEach((command) => multi.addCommand(command));
    return multi.exec();
  };
  await checkTransactions(`node${protocol}${password}m`, call, transaction);
  await client.close();
  if (password) {
    const wrong = createClient({ ...settings, password: "wrong" });
    wrong.on("error", () => {});
    await assert.rejects(wrong.connect(), /WRONGPASS/);
  }
}

async function ioredis(port, password) {
  const client = new Redis({ host: "127.0.0.1", port, password, retryStrategy: null });
  const pipeline = async (commands) => {
    const batch = client.pipeline();
    commands.forEach((command) => batch.call(...command));
    return (await batch.exec()).map(([error, reply]) => {
      assert.equal(error, null);
      return reply;
    });
  };
  const call = (...command) => client.call(...command);
  await check(`io${password}`, call, pipeline);
  const transaction = async (commands) => {
    const multi = client.multi();
    commands.forEach((command) => multi.call(...command));
    return (await multi.exec()).map(([error, reply]) => {
      assert.equal(error, null);
      return reply;
    });
  };
  await checkTransactions(`io${password}m`, call, transaction);

  // Without a pipeline, each command waits for its reply.
  const key = `io${password}s`;
  await client.multi({ pipeline: false });
  assert.equal(await client.call("TG.ACQUIRE", key, POLICY), "QUEUED");
  assert.equal((await client.exec())[0][1][2][2], 2);
  await client.multi({ pipeline: false });
  assert.equal(await client.call("TG.ACQUIRE", key, POLICY), "QUEUED");
  assert.equal(await client.discard(), "OK");
  assert.equal((await call("TG.PEEK", key, POLICY))[2][2], 2);
  await assert.rejects(client.watch(key), /WATCH is not supported/);
  await client.quit();
  if (password) {
    const wrong = new Redis({ host: "127.0.0.1", port, password: "wrong", retryStrategy: null, lazyConnect: true });
    wrong.on("error", () => {});
    await assert.rejects(wrong.connect().then(() => wrong.ping()), /WRONGPASS|NOAUTH|Connection is closed/);
    wrong.disconnect();
  }
}

async function main() {
  const [open, guarded] = process.argv.slice(2).map(Number);
  for (const protocol of [2, 3]) {
    await nodeRedis(open, undefined, protocol);
    await nodeRedis(guarded, PASSWORD, protocol);
  }
  console.log(`node-redis ${require("redis/package.json").version}: RESP2 and RESP3`);
  await ioredis(open, undefined);
  await ioredis(guarded, PASSWORD);
  console.log(`ioredis ${require("ioredis/package.json").version}: RESP2`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
