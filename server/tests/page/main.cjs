// Tests the page in a real browser during a load: main.cjs CHROMIUM SERVER DIRECTORY SCREENSHOTS
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const path = require("node:path");
const { chromium } = require("playwright-core");
const { exact } = require("./exact.cjs");

const [browserPath, serverPath, directory, screenshots] = process.argv.slice(2);

const LIMITS = `
domain: shop
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: path
    value: /login
    descriptors:
      - key: account
        policy: sliding-log 5/15m block 15m
  - key: report
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 3 }
`;

const HOSTILE = [
  "<img src=x onerror=\"window.broken=true\">",
  "<script>window.broken=true</script>",
  "\u202egnp.exe",
  "a\u0000b\u001b[2J\u0007",
  "'\"&lt;",
  "x".repeat(3000),
  "مرحبا",
  "東京 🚦",
];

const ROUTES = Array.from({ length: 300 }, (_, index) => `r${String(index).padStart(3, "0")}`);
const MANY = `domain: many\ndescriptors:\n${ROUTES.map((route) =>
  `  - { key: route, value: ${route}, policy: token-bucket 1/5s burst 1 }\n`).join("")}`;

async function eventually(what, condition) {
  let last;
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    try {
      last = await condition();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`not within a minute: ${what} (${last})`);
}

// Starts a server on free ports, and reads its addresses from its output.
async function start(settings) {
  const config = path.join(directory, "limits");
  fs.mkdirSync(config, { recursive: true });
  fs.writeFileSync(path.join(config, "shop.yaml"), LIMITS);
  const env = {
    PATH: process.env.PATH, HOST: "127.0.0.1", PORT: "0", GRPC_HOST: "127.0.0.1", GRPC_PORT: "0",
    ...settings,
  };
  const file = path.join(directory, "tidegate.toml");
  fs.writeFileSync(file, "[resp]\naddress = '127.0.0.1:0'\n[page]\naddress = '127.0.0.1:0'\nsubjects = true\n");
  const child = spawn(serverPath, ["--settings", file, "--config", config], { env, stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (data) => (said += data));
  const port = (name) => Number(said.match(new RegExp(`^.*${name} on (?:http://)?[0-9.]+:([0-9]+)`, "m"))?.[1]);
  await eventually("the server starts", () => {
    return child.exitCode !== null || (port("page") && port("RESP") && port("JSON"));
  });
  assert.equal(child.exitCode, null, "the server has ended");
  return { child, config, page: port("page"), resp: port("RESP"), json: port("JSON") };
}

function post(port, route, body) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const request = http.request({ host: "127.0.0.1", port, path: route, method: "POST", headers, agent }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode));
    });
    request.on("error", reject).end(JSON.stringify(body));
  });
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });

function command(...parts) {
  const bytes = parts.map((part) => Buffer.from(String(part)));
  return Buffer.concat([
    Buffer.from(`*${bytes.length}\r\n`),
    ...bytes.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from("\r\n")]),
  ]);
}

// Sends requests over all protocols until it is stopped.
function load(server) {
  let isRunning = true;
  const resp = net.connect(server.resp, "127.0.0.1");
  resp.on("data", () => {}).on("error", () => {});
  const entries = (...pairs) => ({ entries: pairs.map(([key, value]) => ({ key, value })) });
  let turn = 0;
  const run = async () => {
    while (isRunning) {
      turn += 1;
      const hostile = HOSTILE[turn % HOSTILE.length];
      const pipeline = Array.from({ length: 100 }, (_, index) => command("CL.THROTTLE", `user:${index % 2}`, 15, 30, 60));
      resp.write(Buffer.concat(pipeline));
      await Promise.all([
        post(server.json, "/json", { domain: "shop", descriptors: [entries(["remote_address", `203.0.113.${turn % 2}`])] }),
        post(server.json, "/json", { domain: "shop", descriptors: [entries(["path", "/login"], ["account", HOSTILE[turn % 4]])] }),
        post(server.json, "/json", { domain: "shop", descriptors: [entries(["report", "daily"])] }),
        post(server.json, "/v1/acquire", { policy: "checkout: fixed-window 5/1m", subject: hostile, tenant: "acme" }),
      ]).catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    resp.destroy();
  };
  const done = run();
  return { stop: () => ((isRunning = false), done) };
}

async function main() {
  const server = await start({});
  const work = load(server);
  const browser = await chromium.launchPersistentContext(path.join(directory, "profile"), {
    executablePath: browserPath,
    headless: true,
    viewport: { width: 1200, height: 900 },
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"],
  });
  try {
    await exact(browser, `http://127.0.0.1:${server.page}`, eventually);
    await watch(browser, server, work);
  } finally {
    await work.stop();
    await browser.close();
    // A process that was killed has no exit code.
    if (server.child.exitCode === null && server.child.signalCode === null) {
      server.child.kill("SIGTERM");
      await new Promise((resolve) => server.child.once("exit", resolve));
    }
    agent.destroy();
  }
}

async function watch(browser, server, work) {
  const page = await browser.newPage();
  const problems = [];
  let isStopped = false;
  page.on("pageerror", (error) => problems.push(`error: ${error}`));
  page.on("dialog", (dialog) => problems.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
  page.on("console", (message) => {
    // The browser logs each failed request.
    const isExpected = isStopped && message.text().includes("ERR_CONNECTION_REFUSED");
    if (["error", "warning"].includes(message.type()) && !isExpected) problems.push(`console: ${message.text()}`);
  });
  const origin = `http://127.0.0.1:${server.page}`;
  page.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`)) problems.push(`request to ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective}`));
  });
  const shot = (name, fullPage = true) => page.screenshot({ path: path.join(screenshots, `${name}.png`), fullPage });
  const text = (selector) => page.locator(selector).innerText();
  const state = () => page.evaluate(() => document.body.dataset.state);
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);

  await page.emulateMedia({ colorScheme: "light" });
  await page.goto(`${origin}/`);
  await eventually("it is live", async () => (await state()) === "live");
  await eventually("all limits have rows", async () => {
    const limits = await text("#limits");
    return ["shop.remote_address", "5 per 1m", "shop.path_/login.account", "throttle: ", "checkout: "].every((name) => limits.includes(name));
  });
  await eventually("refusals are shown", async () => (await page.locator("#limits .hot").count()) >= 3);
  await eventually("a shadow is shown", async () => (await page.locator("#limits .warm").count()) >= 1);
  await eventually("all hostile subjects are shown", async () => {
    const subjects = await text("#subjects");
    return ["<img src=x", "<script>", "\\u{202e}gnp.exe", "a\\0b\\u{1b}[2J\\u{7}", "'\"&lt;", "… bytes …".slice(2), "مرحبا", "東京", "tenant acme"]
      .every((part) => subjects.includes(part));
  });
  assert.equal(await page.locator("#subjects img, #subjects script, #slow img").count(), 0);
  assert.equal(await page.evaluate(() => window.broken), undefined);

  const refusals = async () => Number((await text("#subjects-note")).match(/^([0-9,]+) refusal/)[1].replaceAll(",", ""));
  const before = await refusals();
  await eventually("numbers move", async () => (await refusals()) > before);
  await eventually("lines are drawn", async () => {
    const paths = await page.locator("#limits path").evaluateAll((all) => all.map((path) => path.getAttribute("d")));
    return paths.length >= 8 && paths.every((path) => /^M[0-9.]+ [0-9.]+L/.test(path));
  });
  assert.match(await text("#stores"), /memory[^]*answers/);
  assert.match(await text("#configuration"), /3 limits in 1 domain[^]*shop\.yaml[^]*none since the start/);
  assert.match(await text("#slow"), /(µs|ms|s)[^]*(envoy|resp|v1)/);
  assert.ok(await fits());
  await shot("light");

  await page.emulateMedia({ colorScheme: "dark" });
  await shot("dark");
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    assert.deepEqual(await contrasts(page), [], `contrast, ${scheme}`);
  }

  await page.setViewportSize({ width: 360, height: 740 });
  assert.ok(await fits(), "the page is wider than a phone");
  await shot("phone");
  await page.emulateMedia({ colorScheme: "light" });
  await shot("phone-light", false);
  await page.setViewportSize({ width: 1200, height: 900 });

  fs.writeFileSync(path.join(server.config, "shop.yaml"), LIMITS.replace("policy:", "polcy:"));
  await eventually("a refused change is shown", async () => (await text("#configuration")).includes("unknown key 'polcy'"));
  assert.match(await text("#alert"), /last change[^]*unknown key .polcy./);
  await shot("refused-change");
  fs.writeFileSync(path.join(server.config, "shop.yaml"), LIMITS.replace("requests_per_unit: 5", "requests_per_unit: 6"));
  await eventually("a change is shown", async () => (await text("#limits")).includes("6 per 1m"));
  assert.ok(await page.locator("#alert").isHidden());
  assert.match(await text("#configuration"), /1 change since the start/);

  await many(page, server, shot, text, fits);
  assert.deepEqual(problems, []);
  await work.stop();
  isStopped = true;
  server.child.kill("SIGKILL");
  await eventually("a server that is gone is shown", async () => (await state()) === "stale");
  assert.match(await text("#state"), /^Stale for [0-9]+ s: no answer$/);
  await shot("stale");
  assert.deepEqual(problems, []);
}

// Checks a page with 300 limits: those with most refusals are first, and the name finds each limit.
async function many(page, server, shot, text, fits) {
  fs.writeFileSync(path.join(server.config, "many.yaml"), MANY);
  await eventually("the limits are in force", async () => (await text("#configuration")).includes("303 limits"));
  let isRunning = true;
  const run = async () => {
    for (let turn = 0; isRunning; turn += 1) {
      // The last routes refuse most.
      const index = Math.floor(300 * Math.sqrt(((turn * 37) % 300) / 300));
      const entries = [{ key: "route", value: ROUTES[turn % 2 ? index : turn / 2 % 300] }];
      await post(server.json, "/json", { domain: "many", descriptors: [{ entries }] }).catch(() => {});
    }
  };
  const done = run();
  await eventually("50 of all limits are listed", async () => /^50 of 30[0-9] limits$/.test(await text("#limits-count")));
  const figures = (column) => page.locator(`#limits tbody tr td:nth-child(${column})`).allInnerTexts();
  const falls = (texts) => texts.map((number) => Number(number.replace(/[^0-9.]/g, ""))).every((number, index, all) => index === 0 || number <= all[index - 1]);
  for (const [name, column] of [["Refused", 3], ["Admitted", 2]]) {
    if (name !== "Refused") await page.locator("#limits th button", { hasText: name }).click();
    await eventually(`the order is that of the figures, ${name}`, async () => falls(await figures(column)));
  }
  await page.locator("#limits th button", { hasText: "Refused" }).click();
  const top = (selector) => page.locator(selector).evaluate((element) => element.getBoundingClientRect().top + scrollY);
  assert.ok((await top("#configuration")) < (await top("#limits")) && (await top("#limits")) < 900, "health comes first");
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await shot(`many-${scheme}`);
    assert.deepEqual(await contrasts(page), [], `contrast of many limits, ${scheme}`);
  }
  await page.setViewportSize({ width: 360, height: 740 });
  assert.ok(await fits(), "many limits are wider than a phone");
  await page.locator("#sort").selectOption("limit");
  await shot("many-phone");
  await page.setViewportSize({ width: 1200, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });

  await page.locator("#name").fill("R217");
  await eventually("a limit is found", async () => (await text("#limits-count")) === "1 limit");
  assert.match(await text("#limits tbody"), /many\.route_r217[^]*token-bucket 1\/5s/);
  await shot("many-found", false);
  await page.locator("#name").fill("");
  await page.locator("#more").click();
  await eventually("all limits are listed", async () => (await page.locator("#limits tbody tr").count()) >= 300);
  isRunning = false;
  await done;
}

// Returns the texts whose contrast is lower than WCAG AA requires.
function contrasts(page) {
  return page.evaluate(() => {
    const numbers = (color) => color.match(/[0-9.]+/g).map(Number);
    const luminance = (color) => {
      const [r, g, b] = numbers(color).map((channel) => {
        const share = channel / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
      for (let ancestor = element; ancestor; ancestor = ancestor.parentElement) {
        const color = getComputedStyle(ancestor).backgroundColor;
        if (numbers(color)[3] !== 0) return color;
      }
      return "rgb(255, 255, 255)";
    };
    const low = [];
    for (const element of document.querySelectorAll("body *")) {
      const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
      if (!hasText || element.offsetParent === null) continue;
      const [a, b] = [luminance(getComputedStyle(element).color), luminance(ground(element))].sort((x, y) => y - x);
      const contrast = (a + 0.05) / (b + 0.05);
      if (contrast < 4.5) low.push(`${element.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
    }
    return low;
  });
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
