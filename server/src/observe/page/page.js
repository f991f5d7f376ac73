// Fetches `GET /activity` once a second and shows it. All texts are set as `textContent`, never as
// HTML.
"use strict";

const INTERVAL_MS = 1000;
const HIDDEN_INTERVAL_MS = 15000;
const TIMEOUT_MS = 4000;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const number = (value) => (Math.abs(value) < 10 ? tenths : whole).format(value);
const count = (value) => whole.format(value);

function took(micros) {
  if (micros < 1000) return `${count(micros)} µs`;
  if (micros < 1e6) return `${number(micros / 1000)} ms`;
  return `${number(micros / 1e6)} s`;
}

function span(millis) {
  const seconds = Math.max(0, Math.round(millis / 1000));
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

const clock = (millis) => new Date(millis).toLocaleTimeString();
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

// Returns the path of a line over 60 seconds, the newest second at the right.
function line(values, max) {
  const points = values.map((value, index) => {
    const x = 60 - values.length + index + 0.5;
    const y = 19 - (18 * value) / max;
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return points.length ? `M${points.join("L")}` : "";
}

function draw(svg, histories) {
  const max = Math.max(1, ...histories.flatMap(([values]) => values));
  while (svg.children.length < histories.length) svg.append(document.createElementNS(SVG, "path"));
  histories.forEach(([values, kind], index) => {
    const path = svg.children[index];
    path.setAttribute("d", line(values, max));
    if (kind) path.setAttribute("class", kind);
  });
}

// Fills a table with items. A column has a CSS class, a label for narrow screens, and a function
// that sets a cell.
function fill(id, items, columns) {
  const table = byId(id);
  const body = table.tBodies[0];
  while (body.rows.length > items.length) body.deleteRow(-1);
  while (body.rows.length < items.length) {
    const row = body.insertRow();
    row.setAttribute("role", "row");
    for (const column of columns) {
      const cell = row.insertCell();
      cell.setAttribute("role", "cell");
      if (column.kind) cell.className = column.kind;
      if (column.label) cell.dataset.label = column.label;
    }
  }
  items.forEach((item, place) => {
    columns.forEach((column, index) => column.set(body.rows[place].cells[index], item));
  });
  table.hidden = items.length === 0;
  const none = byId(`${id}-none`);
  if (none) none.hidden = items.length > 0;
}

// Shows several texts in a cell, each in its own element.
function parts(cell, texts) {
  const shown = texts.filter(([text]) => text);
  while (cell.children.length > shown.length) cell.lastChild.remove();
  while (cell.children.length < shown.length) cell.append(document.createElement("span"));
  shown.forEach(([text, kind], index) => {
    const part = cell.children[index];
    if (part.className !== kind) part.className = kind;
    setText(part, text);
  });
}

function rate(field, kind) {
  return (cell, item) => {
    const value = item[field];
    cell.className = value > 0 ? `number ${kind}` : "number zero";
    setText(cell, number(value));
  };
}

function historyCell(fields) {
  return (cell, item) => {
    let svg = cell.firstElementChild;
    if (!svg) {
      svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("viewBox", "0 0 60 20");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      cell.append(svg);
    }
    draw(svg, fields.map(([field, kind]) => [item[field], kind]));
  };
}

const limitColumns = [
  { kind: "wide", set: (cell, it) => parts(cell, [[it.limit, "name"], [it.policy || (it.source === "calls" ? "named by calls" : ""), "more"]]) },
  { kind: "number", label: "admitted", set: rate("admitted_per_second", "") },
  { kind: "number", label: "refused", set: rate("refused_per_second", "hot") },
  { kind: "number", label: "shadow", set: rate("shadow_per_second", "warm") },
  { kind: "wide line", set: historyCell([["admitted_history", "admitted"], ["refused_history", "refused"]]) },
];

const subjectText = (it) => [
  [it.subject === null ? "hidden" : it.subject === "" ? "(empty)" : it.subject, it.subject ? "subject" : "zero"],
  [it.tenant && `tenant ${it.tenant}`, "more subject"],
];

function subjectColumns(now) {
  const block = (it) => {
    if (it.blocked_until_ms === null || it.blocked_until_ms <= now) return [["none", "zero"]];
    return [[`for ${span(it.blocked_until_ms - now)}`, "hot"], [it.block_level ? `level ${it.block_level}` : "", "more"]];
  };
  return [
    { kind: "wide", set: (cell, it) => parts(cell, subjectText(it)) },
    { kind: "wide", set: (cell, it) => setText(cell, it.limit) },
    { kind: "", label: "block", set: (cell, it) => parts(cell, block(it)) },
    {
      kind: "number", label: "refusals",
      set: (cell, it) => setText(cell, it.at_least === it.at_most ? count(it.at_most) : `${count(it.at_least)} – ${count(it.at_most)}`),
    },
  ];
}

function nearColumns(now) {
  return [
    { kind: "wide", set: (cell, it) => parts(cell, subjectText(it)) },
    { kind: "wide", set: (cell, it) => setText(cell, it.limit) },
    { kind: "", set: (cell, it) => setText(cell, `${span(now - it.at_ms)} ago`) },
    { kind: "number", label: "used", set: (cell, it) => parts(cell, [[`${Math.floor(100 * it.used / Math.max(it.of, 1))} %`, ""], [`${count(it.used)} of ${count(it.of)}`, "more"]]) },
  ];
}

function banColumns(now) {
  const end = (it) => {
    if (it.until_ms === null) return [["unbanned", "good"]];
    return it.until_ms <= now ? [["over", "zero"]] : [[`for ${span(it.until_ms - now)}`, "hot"]];
  };
  return [
    { kind: "wide", set: (cell, it) => parts(cell, subjectText(it)) },
    { kind: "wide", set: (cell, it) => setText(cell, it.limit) },
    { kind: "", set: (cell, it) => parts(cell, [[`${span(now - it.at_ms)} ago`, ""], [it.protocol, "more"]]) },
    { kind: "", set: (cell, it) => parts(cell, end(it)) },
    { kind: "wide", label: "reason", set: (cell, it) => setText(cell, it.reason === null ? "–" : it.reason) },
  ];
}

function warningColumns(now) {
  return [
    { kind: "wide", set: (cell, it) => parts(cell, subjectText(it)) },
    { kind: "wide", set: (cell, it) => setText(cell, it.limit) },
    { kind: "", set: (cell, it) => setText(cell, `${span(now - it.at_ms)} ago`) },
    { kind: "number", label: "remaining", set: (cell, it) => setText(cell, count(it.remaining)) },
  ];
}

function storeColumns(now) {
  const state = (it) => {
    if (it.answers === null) return [["not probed yet", "zero"]];
    const since = `for ${span(now - it.since_ms)}`;
    return it.answers ? [["answers", "good"], [since, "more"]] : [["does not answer", "bad"], [since, "more"], [it.error, "more"]];
  };
  const breaker = (it) => {
    if (it.breaker === null) return [["none", "zero"]];
    const opened = it.breaker_opened ? `opened ${plural(it.breaker_opened, "time", "times")}` : "";
    return [[it.breaker, it.breaker === "closed" ? "good" : "bad"], [opened, "more"]];
  };
  const leases = (it) => {
    const calls = it.leases && it.leases.local + it.leases.passed;
    if (!calls) return [["none", "zero"]];
    const share = Math.floor(100 * it.leases.local / calls);
    return [[plural(it.leases.subjects, "subject", "subjects"), ""], [`${share} % of ${plural(calls, "call", "calls")} decided here`, "more"]];
  };
  return [
    { kind: "wide", set: (cell, it) => parts(cell, [[it.url, "name"], [it.role, "more"]]) },
    { kind: "", set: (cell, it) => parts(cell, state(it)) },
    { kind: "", label: "breaker", set: (cell, it) => parts(cell, breaker(it)) },
    { kind: "", label: "leases", set: (cell, it) => parts(cell, leases(it)) },
    { kind: "number", set: (cell, it) => setText(cell, it.probe_us === null ? "–" : took(it.probe_us)) },
  ];
}

const errorColumns = [
  { kind: "wide", set: (cell, it) => parts(cell, [[it.kind, "name"]]) },
  { kind: "number", label: "per second", set: rate("per_second", "hot") },
  { kind: "number", label: "since the start", set: (cell, it) => setText(cell, count(it.total)) },
  { kind: "wide line", set: historyCell([["history", "failed"]]) },
];

function slowColumns(now) {
  const limit = (it) => [
    [it.limit === null ? "no limit" : it.limit, it.limit === null ? "zero" : ""],
    [it.calls > 1 ? `the first of ${count(it.calls)} calls` : "", "more"],
    [it.other_limits ? `and ${plural(it.other_limits, "other limit", "other limits")}` : "", "more"],
    [it.subject, "more subject"],
  ];
  return [
    { kind: "number", set: (cell, it) => setText(cell, took(it.took_us)) },
    { kind: "", set: (cell, it) => setText(cell, `${span(now - it.at_ms)} ago`) },
    { kind: "", set: (cell, it) => setText(cell, it.protocol) },
    { kind: "wide", set: (cell, it) => parts(cell, limit(it)) },
    { kind: "", set: (cell, it) => setText(cell, it.outcome) },
  ];
}

// The number of names that are shown. Longer lists would push the limits off the screen.
const NAMES = 5;

function names(list) {
  const first = list.first.slice(0, NAMES);
  const rest = list.count - first.length;
  return first.join(", ") + (rest > 0 ? ` and ${count(rest)} more` : "") || "none";
}

function showConfiguration(configuration, now) {
  const when = (at) => `${span(now - at)} ago, at ${clock(at)}`;
  const { in_force: inForce, refused, loads } = configuration;
  const lines = [];
  if (inForce) {
    lines.push(["Limits", `${plural(inForce.limits, "limit", "limits")} in ${plural(inForce.domains.count, "domain", "domains")}`]);
    lines.push(["Domains", names(inForce.domains)]);
    lines.push(["Files", names(inForce.files)]);
    lines.push(["Last change", loads > 1 ? `${when(inForce.at_ms)}; ${plural(loads - 1, "change", "changes")} since the start` : `none since the start, ${when(inForce.at_ms)}`]);
  } else {
    lines.push(["Limits", "none in force"]);
  }
  if (refused) {
    const state = refused.is_last ? "the files are not valid, and the limits stay as they were" : "corrected since then";
    lines.push(["Last refused change", `${when(refused.at_ms)} (${state}): ${refused.error}`, refused.is_last ? "bad" : ""]);
  }
  if (configuration.limit_set_version !== null) {
    lines.push(["Limit set", `version ${count(configuration.limit_set_version)}`]);
  }
  const list = byId("configuration");
  while (list.children.length > 2 * lines.length) list.lastChild.remove();
  while (list.children.length < 2 * lines.length) list.append(document.createElement("dt"), document.createElement("dd"));
  lines.forEach(([name, text, kind], index) => {
    setText(list.children[2 * index], name);
    setText(list.children[2 * index + 1], text);
    list.children[2 * index + 1].className = kind || "";
  });
}

const ON_STORE_ERROR = { error: "get an error", allow: "pass", deny: "are refused" };

function show(activity) {
  const now = activity.now_ms;
  setText(byId("about"), `${activity.version}, up for ${span(now - activity.started_ms)}`);
  for (const kind of ["admitted", "refused", "failed"]) {
    setText(byId(kind), number(activity.totals[`${kind}_per_second`]));
    draw(byId(`${kind}-history`), [[activity.totals[`${kind}_history`], ""]]);
  }
  fill("limits", activity.limits, limitColumns);
  showLimits(activity);
  const other = activity.other_limits;
  const isOther = other.count > 0 || other.admitted_per_second + other.refused_per_second + other.shadow_per_second > 0;
  setText(byId("limits-other"), isOther
    ? `Others: ${number(other.admitted_per_second)} admitted, ${number(other.refused_per_second)} refused, ${number(other.shadow_per_second)} in shadow per second.`
    : "");
  const subjects = activity.refused_subjects;
  fill("subjects", subjects.top, subjectColumns(now));
  const hidden = subjects.are_shown ? "" : " Subjects are hidden; page.subjects = true in the settings file shows them.";
  setText(byId("subjects-note"), `${plural(subjects.refusals, "refusal", "refusals")} in this and the previous minute. Two numbers are the bounds of a count.${hidden}`);
  const near = activity.near_subjects;
  fill("near", near.top, nearColumns(now));
  const shown = near.is_complete
    ? `${plural(near.count, "subject has", "subjects have")} used ${near.percent} % of a limit or more`
    : `More than ${plural(near.count, "subject has", "subjects have")} used ${near.percent} % of a limit or more. These had the most decisions`;
  setText(byId("near-note"), `${shown}, at a decision in this and the previous minute.${hidden}`);
  fill("warnings", activity.warnings, warningColumns(now));
  fill("bans", activity.bans, banColumns(now));
  fill("stores", activity.stores, storeColumns(now));
  const onStoreError = activity.on_store_error;
  const share = onStoreError.startsWith("share:") ? `are decided by this server, with ${onStoreError.slice(6)} of each limit` : onStoreError;
  setText(byId("on-store-error"), `Requests that a store cannot decide ${ON_STORE_ERROR[onStoreError] || share}.`);
  fill("errors", activity.errors, errorColumns);
  showConfiguration(activity.configuration, now);
  fill("slow", activity.slow_calls, slowColumns(now));
  const alert = byId("alert");
  const { problems } = activity;
  while (alert.children.length > problems.length) alert.lastChild.remove();
  while (alert.children.length < problems.length) alert.append(document.createElement("p"));
  problems.forEach((problem, index) => setText(alert.children[index], problem));
  alert.hidden = problems.length === 0;
}

const ROWS = 50;
const MAX_ROWS = 500;

// The selected limits and their order. The address of the page contains them too, so that the page
// can be reloaded and shared.
const query = (() => {
  const given = new URLSearchParams(location.search);
  const columns = [...document.querySelectorAll("[data-sort]")].map((button) => button.dataset.sort);
  return {
    name: given.get("name") || "",
    sort: columns.includes(given.get("sort")) ? given.get("sort") : "refused",
    reversed: given.get("reversed") === "true",
    rows: given.get("rows") === String(MAX_ROWS) ? MAX_ROWS : ROWS,
  };
})();

function showQuery() {
  byId("sort").value = query.sort;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const { sort } = button.dataset;
    const head = button.closest("th");
    // By default names ascend and numbers descend.
    const isAscending = (sort === "limit") !== query.reversed;
    if (sort === query.sort) head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
}

function change(changed) {
  Object.assign(query, changed);
  showQuery();
  run();
  // The address changes last, because browsers refuse the change after many changes within a few
  // seconds.
  history.replaceState(null, "", `?${new URLSearchParams(query)}`);
}

byId("name").value = query.name;
byId("name").addEventListener("input", (event) => change({ name: event.target.value, rows: ROWS }));
byId("sort").addEventListener("change", (event) => change({ sort: event.target.value, reversed: false }));
byId("more").addEventListener("click", () => change({ rows: MAX_ROWS }));
for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    const { sort } = button.dataset;
    change({ sort, reversed: sort === query.sort && !query.reversed });
  });
}

function showLimits(activity) {
  const listed = activity.limits.length;
  const all = listed + activity.other_limits.count;
  const isAll = listed === all;
  setText(byId("limits-count"), isAll ? plural(all, "limit", "limits") : `${count(listed)} of ${count(all)} limits`);
  byId("more").hidden = isAll || query.rows === MAX_ROWS;
  setText(byId("limits-none"), query.name
    ? `No limit with “${query.name}” in its name has decided in the last minute.`
    : "No decision in the last minute.");
}

let receivedAt = null;

function setState(state, text) {
  document.body.dataset.state = state;
  setText(byId("state"), text);
}

// `isLast` returns false if another request began after this one, possibly for other limits.
async function poll(isLast) {
  try {
    const url = `activity?${new URLSearchParams(query)}`.replaceAll("+", "%20");
    const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const activity = await response.json();
    if (!isLast()) return;
    show(activity);
    receivedAt = Date.now();
    setState("live", "Live");
  } catch (error) {
    const why = /^status/.test(error.message) ? error.message : "no answer";
    setState("stale", receivedAt === null ? `Nothing received: ${why}` : `Stale for ${span(Date.now() - receivedAt)}: ${why}`);
  }
}

let timer = null;

async function run() {
  clearTimeout(timer);
  timer = null;
  const mine = (run.turn = (run.turn || 0) + 1);
  const isLast = () => mine === run.turn;
  await poll(isLast);
  // If a later run has begun, that run sets the timer.
  if (isLast()) timer = setTimeout(run, document.hidden ? HIDDEN_INTERVAL_MS : INTERVAL_MS);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) run();
});
showQuery();
run();
