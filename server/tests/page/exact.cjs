// Checks what the page shows for answers that the test selects.
"use strict";

const assert = require("node:assert/strict");

const NOW = 1_000_000_000;
const ago = (seconds) => NOW - seconds * 1000;
const LINE = [0, 1, 2];

// An answer with a value in each field. No number occurs twice.
const FULL = {
  version: "1.2.3", now_ms: NOW, started_ms: ago(3 * 86_400),
  problems: ["The store redis://a (store) does not answer: down", "The circuit breaker is half-open."],
  totals: {
    admitted_per_second: 10.4, refused_per_second: 9.9, failed_per_second: 0.3,
    admitted_history: LINE, refused_history: LINE, failed_history: LINE,
  },
  limits: [{
    limit: "d.a", policy: null, source: "calls", admitted_per_second: 1.1, refused_per_second: 2.2, shadow_per_second: 3.3,
    admitted_history: [0, 4], refused_history: [2, 0], shadow_history: LINE,
  }, {
    limit: "d.b", policy: "gcra 1/s", source: "files", admitted_per_second: 0, refused_per_second: 0, shadow_per_second: 0,
    admitted_history: LINE, refused_history: LINE, shadow_history: LINE,
  }],
  other_limits: { count: 7, admitted_per_second: 4.4, refused_per_second: 5.5, shadow_per_second: 6.6 },
  refused_subjects: {
    are_shown: false, refusals: 1234,
    top: [
      { limit: "d.a", subject: null, tenant: null, at_least: 12, at_most: 3456, blocked_until_ms: ago(-90), block_level: 2 },
      { limit: "d.b", subject: "", tenant: "t", at_least: 8, at_most: 8, blocked_until_ms: null, block_level: 0 },
    ],
  },
  near_subjects: {
    are_shown: false, percent: 80, count: 2, is_complete: false,
    top: [
      { limit: "d.a", subject: null, tenant: null, used: 1999, of: 2000, at_ms: ago(16) },
      { limit: "d.b", subject: "", tenant: "t", used: 8, of: 10, at_ms: ago(17) },
    ],
  },
  warnings: [{ at_ms: ago(14), limit: "plan", subject: "s", tenant: "t", remaining: 1234 }],
  bans: [
    { at_ms: ago(15), protocol: "v1", limit: "d.a", subject: "s", tenant: null, until_ms: null, reason: null },
    { at_ms: ago(17), protocol: "resp", limit: "d.b", subject: null, tenant: null, until_ms: ago(-70), reason: "why" },
    { at_ms: ago(18), protocol: "v1", limit: "d.b", subject: null, tenant: null, until_ms: ago(2), reason: "old" },
  ],
  slow_calls: [
    { at_ms: ago(119), took_us: 2_345_678, protocol: "v1", calls: 3, limit: "d.a", other_limits: 2, outcome: "refused", subject: "s", tenant: null },
    { at_ms: ago(120), took_us: 5_432, protocol: "resp", calls: 1, limit: null, other_limits: 0, outcome: "timeout", subject: null, tenant: null },
    { at_ms: ago(7200), took_us: 987, protocol: "envoy", calls: 1, limit: "d.b", other_limits: 1, outcome: "admitted", subject: null, tenant: null },
  ],
  stores: [
    { role: "store", url: "redis://a", answers: false, since_ms: ago(60), probe_us: null, error: "down", breaker: "open", breaker_opened: 2, leases: { subjects: 2, local: 1999, passed: 1 } },
    { role: "limits per second", url: "redis://b", answers: true, since_ms: ago(61), probe_us: 1500, error: null, breaker: "half-open", breaker_opened: 1, leases: { subjects: 0, local: 0, passed: 0 } },
    { role: "store", url: "redis://c", answers: null, since_ms: null, probe_us: null, error: null, breaker: null, breaker_opened: null, leases: null },
  ],
  on_store_error: "allow",
  errors: [{ kind: "timeout", total: 5678, per_second: 0.7, history: LINE }],
  configuration: {
    loads: 3,
    in_force: { at_ms: ago(30), limits: 5, domains: { count: 52, first: ["x", "y"] }, files: { count: 1, first: ["z.yaml"] } },
    refused: { at_ms: ago(20), error: "bad", is_last: false },
    limit_set_version: 1234,
  },
};

const EMPTY = {
  ...FULL, problems: [], limits: [], slow_calls: [], warnings: [], bans: [], errors: [], stores: FULL.stores.slice(2), on_store_error: "deny",
  other_limits: { count: 0, admitted_per_second: 0, refused_per_second: 0, shadow_per_second: 0 },
  refused_subjects: { are_shown: true, refusals: 1, top: [] },
  near_subjects: { are_shown: true, percent: 80, count: 0, is_complete: true, top: [] },
  configuration: { loads: 0, in_force: null, refused: null, limit_set_version: null },
};

async function exact(browser, origin, eventually) {
  const page = await browser.newPage();
  let answer = { json: FULL };
  let asked = 0;
  let query = "";
  await page.route(/\/activity\?/, (route) => {
    asked += 1;
    query = new URL(route.request().url()).search;
    // Without an answer, the page waits.
    if (answer !== null) return route.fulfill(answer);
  });
  const rows = (id) => page.locator(`#${id} tbody tr`).evaluateAll((all) => {
    const text = (cell) => [...(cell.children.length ? cell.children : [cell])].map((child) => child.textContent).filter(Boolean).join("; ");
    return all.map((row) => [...row.cells].map(text).filter(Boolean));
  });
  const text = (id) => page.locator(`#${id}`).evaluate((element) => element.textContent);
  const isState = (state) => async () => (await page.evaluate(() => document.body.dataset.state)) === state;
  await page.goto(`${origin}/`);
  await eventually("the answer is shown", isState("live"));
  assert.equal(await text("state"), "Live");
  assert.equal(await text("about"), "1.2.3, up for 3 days");
  assert.deepEqual(await Promise.all(["admitted", "refused", "failed"].map(text)), ["10", "9.9", "0.3"]);
  assert.deepEqual(await rows("limits"), [["d.a; named by calls", "1.1", "2.2", "3.3"], ["d.b; gcra 1/s", "0", "0", "0"]]);
  const kinds = await page.locator("#limits tbody tr").first().locator("td.number").evaluateAll((all) => all.map((cell) => cell.className));
  assert.deepEqual(kinds, ["number ", "number hot", "number warm"]);
  const lines = await page.locator("#limits tbody tr").first().locator("path").evaluateAll((all) => all.map((path) => [path.getAttribute("class"), path.getAttribute("d")]));
  assert.deepEqual(lines, [["admitted", "M58.5 19.0L59.5 1.0"], ["refused", "M58.5 10.0L59.5 19.0"]]);
  assert.equal(await text("limits-other"), "Others: 4.4 admitted, 5.5 refused, 6.6 in shadow per second.");
  assert.deepEqual(await rows("subjects"), [
    ["hidden", "d.a", "for 90 s; level 2", "12 – 3,456"], ["(empty); tenant t", "d.b", "none", "8"],
  ]);
  assert.deepEqual(await rows("near"), [
    ["hidden", "d.a", "16 s ago", "99 %; 1,999 of 2,000"], ["(empty); tenant t", "d.b", "17 s ago", "80 %; 8 of 10"],
  ]);
  assert.equal(await text("near-note"), "More than 2 subjects have used 80 % of a limit or more. These had the most decisions, " +
    "at a decision in this and the previous minute. Subjects are hidden; page.subjects = true in the settings file shows them.");
  assert.deepEqual(await rows("warnings"), [["s; tenant t", "plan", "14 s ago", "1,234"]]);
  assert.deepEqual(await rows("bans"), [
    ["s", "d.a", "15 s ago; v1", "unbanned", "–"],
    ["hidden", "d.b", "17 s ago; resp", "for 70 s", "why"],
    ["hidden", "d.b", "18 s ago; v1", "over", "old"],
  ]);
  assert.equal(await text("subjects-note"), "1,234 refusals in this and the previous minute. Two numbers are the bounds of a count. " +
    "Subjects are hidden; page.subjects = true in the settings file shows them.");
  assert.deepEqual(await rows("stores"), [
    ["redis://a; store", "does not answer; for 60 s; down", "open; opened 2 times", "2 subjects; 99 % of 2,000 calls decided here", "–"],
    ["redis://b; limits per second", "answers; for 61 s", "half-open; opened 1 time", "none", "1.5 ms"],
    ["redis://c; store", "not probed yet", "none", "none", "–"],
  ]);
  assert.equal(await text("on-store-error"), "Requests that a store cannot decide pass.");
  assert.deepEqual(await rows("errors"), [["timeout", "0.7", "5,678"]]);
  const configuration = await text("configuration");
  assert.match(configuration, /^Limits5 limits in 52 domainsDomainsx, y and 50 moreFilesz\.yamlLast change30 s ago, at [^;]*; 2 changes since the start/);
  assert.match(configuration, /Last refused change20 s ago, at [^(]* \(corrected since then\): badLimit setversion 1,234$/);
  assert.deepEqual(await rows("slow"), [
    ["2.3 s", "119 s ago", "v1", "d.a; the first of 3 calls; and 2 other limits; s", "refused"],
    ["5.4 ms", "2 min ago", "resp", "no limit", "timeout"],
    ["987 µs", "2 h ago", "envoy", "d.b; and 1 other limit", "admitted"],
  ]);
  assert.deepEqual(await page.locator("#alert p").evaluateAll((all) => all.map((paragraph) => paragraph.textContent)), FULL.problems);
  assert.equal(query, "?name=&sort=refused&reversed=false&rows=50");
  assert.equal(await text("limits-count"), "2 of 9 limits");
  const shown = async (ids) => {
    const are = await Promise.all(ids.map((id) => page.locator(`#${id}`).isVisible()));
    return ids.filter((_, index) => are[index]);
  };
  const parts = ["limits", "limits-none", "subjects", "subjects-none", "near", "near-none", "errors", "slow", "slow-none", "alert"];
  assert.deepEqual(await shown(parts), ["limits", "subjects", "near", "errors", "slow", "alert"]);

  answer = { json: EMPTY };
  await eventually("nothing is shown", async () => (await text("configuration")) === "Limitsnone in force");
  assert.deepEqual(await shown(parts), ["limits-none", "subjects-none", "near-none", "slow-none"]);
  assert.deepEqual(await Promise.all(["limits", "subjects", "slow", "errors"].map(rows)), [[], [], [], []]);
  assert.equal((await rows("stores")).length, 1);
  assert.equal(await text("limits-other"), "");
  assert.equal(await text("limits-count"), "0 limits");
  assert.equal(await text("limits-none"), "No decision in the last minute.");
  assert.equal(await text("subjects-note"), "1 refusal in this and the previous minute. Two numbers are the bounds of a count.");
  assert.equal(await text("on-store-error"), "Requests that a store cannot decide are refused.");

  answer = { json: { ...EMPTY, on_store_error: "share:1/3" } };
  const byShare = "Requests that a store cannot decide are decided by this server, with 1/3 of each limit.";
  await eventually("a share is shown", async () => (await text("on-store-error")) === byShare);

  answer = { json: { ...EMPTY, other_limits: { ...EMPTY.other_limits, count: 3 } } };
  await eventually("others are shown", async () => {
    return (await text("limits-other")) === "Others: 0 admitted, 0 refused, 0 in shadow per second.";
  });

  answer = { json: FULL };
  await choose(page, eventually, () => query);
  answer = { json: EMPTY };
  await page.locator("#name").fill("none");
  await eventually("it says that there is none", async () => {
    return (await text("limits-none")) === "No limit with “none” in its name has decided in the last minute.";
  });

  answer = { status: 503, body: "" };
  await eventually("an error is shown", isState("stale"));
  assert.match(await text("state"), /^Stale for [0-9]+ s: status 503$/);
  answer = { json: FULL };
  await eventually("it goes on", isState("live"));
  answer = null;
  await eventually("a server that does not answer is shown", isState("stale"));
  assert.match(await text("state"), /^Stale for [0-9]+ s: no answer$/);

  // In the background, the page polls less often. It polls immediately when it becomes visible.
  answer = { json: FULL };
  await eventually("it goes on", isState("live"));
  const see = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await see(true);
  let before;
  await eventually("it asks less often", async () => {
    before = asked;
    await new Promise((resolve) => setTimeout(resolve, 3000));
    return asked === before;
  });
  // The timer is removed. No request is in flight that would set it again.
  await page.evaluate(() => {
    for (let id = setTimeout(() => {}, 0); id > 0; id -= 1) clearTimeout(id);
  });
  before = asked;
  await see(false);
  await eventually("it asks at once", () => asked > before);

  // The page polls only once, although it became visible several times while the server was silent.
  answer = null;
  before = asked;
  await eventually("it waits", () => asked > before);
  for (let time = 0; time < 8; time += 1) await see(false);
  await eventually("a server that does not answer is shown again", isState("stale"));
  answer = { json: FULL };
  await eventually("it goes on", isState("live"));
  const [first, start] = [asked, Date.now()];
  await new Promise((resolve) => setTimeout(resolve, 4000));
  const most = (Date.now() - start) / 1000 + 3;
  assert.ok(asked - first <= most, `${asked - first} requests in ${most} seconds`);
  await page.close();
}

// Checks the requests of the page when its reader selects limits.
async function choose(page, eventually, query) {
  const asks = (expected) => eventually(`it asks for ${expected}`, () => query() === expected);
  const order = () => page.locator("#limits th[aria-sort]").evaluateAll((all) => all.map((head) => `${head.textContent} ${head.getAttribute("aria-sort")}`));
  await page.locator("#more").click();
  await asks("?name=&sort=refused&reversed=false&rows=500");
  await eventually("there are no more limits to show", () => page.locator("#more").isHidden());
  await page.locator("#name").fill("a b&c");
  await asks("?name=a%20b%26c&sort=refused&reversed=false&rows=50");
  assert.deepEqual(await order(), ["Refused descending"]);
  await page.locator("#limits th button", { hasText: "Refused" }).click();
  assert.deepEqual(await order(), ["Refused ascending"]);
  await asks("?name=a%20b%26c&sort=refused&reversed=true&rows=50");
  for (const [name, sort, direction] of [
    ["Limit", "limit", "ascending"], ["Admitted", "admitted", "descending"], ["Shadow", "shadow", "descending"],
    ["Last minute", "minute", "descending"],
  ]) {
    await page.locator("#limits th button", { hasText: name }).click();
    assert.deepEqual(await order(), [`${name} ${direction}`]);
    await asks(`?name=a%20b%26c&sort=${sort}&reversed=false&rows=50`);
  }
  // The address contains the selection, so that a reload keeps it.
  await page.reload();
  await asks("?name=a%20b%26c&sort=minute&reversed=false&rows=50");
  assert.equal(await page.locator("#name").inputValue(), "a b&c");
  assert.deepEqual(await order(), ["Last minute descending"]);
  // An invalid address has the same effect as an address without a selection.
  await page.goto(`${page.url().split("?")[0]}?sort=x&rows=7&reversed=1`);
  await asks("?name=&sort=refused&reversed=false&rows=50");
}

module.exports = { exact };
