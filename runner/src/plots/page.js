"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main"), tip = document.getElementById("tip");
// The browser knows the name of SVG; spelled out here it would look like an address.
const SVG = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;

// ---- small things
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value); else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function bytes(value) {
  if (value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return (value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)) + " " + units[unit];
}
function percent(value) { return value === undefined || value === null ? "–" : value.toFixed(0) + " %"; }
function lasts(ms) {
  if (ms < 1000) return ms + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  const s = Math.round(ms / 1000), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? h + " h " + m + " min" : m + " min " + (s % 60) + " s";
}
function clock(ms) { return new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }); }
function outcome(job) { return job.cause === undefined ? "completed" : job.cause; }
function label(job) { return job.attempt > 1 ? job.name + " (attempt " + job.attempt + ")" : job.name; }
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const y = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18;
  tip.style.left = x + "px"; tip.style.top = y + "px";
}
function hideTip() { tip.hidden = true; }
function niceStep(span, parts, base) {
  const raw = span / parts, power = base === 1024 ? 2 ** Math.floor(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
  return (base === 1024 ? [1, 2, 4] : [1, 2, 5, 10]).map(m => m * power).find(step => step >= raw * 0.999) || raw;
}
function timeStep(seconds, parts) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  return steps.find(step => seconds / step <= parts) || Math.ceil(seconds / parts / 86400) * 86400;
}
function since(seconds) {
  if (seconds < 120) return seconds + " s";
  if (seconds < 7200) return +(seconds / 60).toFixed(1) + " min";
  return +(seconds / 3600).toFixed(1) + " h";
}

// ---- a curve over time: points are [seconds, value]
function curve(points, { kind, unit, limit, top, span, width = 440, height = 104 }) {
  const left = 62, right = 10, above = 10, below = 20;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  points = points.filter(point => point[1] !== null && point[1] !== undefined);
  if (!points.length) return svg;
  const from = span ? Math.min(span[0], points[0][0]) : points[0][0];
  const to = Math.max(points[points.length - 1][0], span ? span[1] : 0, from + 1);
  const most = Math.max(...points.map(point => point[1]), limit || 0, top || 0, 1) * 1.08;
  const x = time => left + (time - from) / (to - from) * (width - left - right);
  const y = value => height - below - value / most * (height - above - below);
  const step = niceStep(most, height > 140 ? 5 : 3, unit === bytes ? 1024 : 10);
  for (let value = 0; value <= most; value += step) {
    svg.append(shape("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, unit(value)));
  }
  const every = timeStep(to - from, 6);
  for (let time = 0; time <= to - from; time += every) {
    svg.append(shape("text", { x: x(from + time), y: height - 4, "text-anchor": time ? "middle" : "start" }, since(time)));
  }
  const path = points.map((point, at) => (at ? "L" : "M") + x(point[0]).toFixed(1) + " " + y(point[1]).toFixed(1)).join("");
  const closed = path + `L${x(points[points.length - 1][0]).toFixed(1)} ${y(0)}L${x(points[0][0]).toFixed(1)} ${y(0)}Z`;
  svg.append(shape("path", { class: "area " + kind, d: closed }));
  if (points.length === 1) svg.append(shape("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 3, fill: `var(--${kind})` }));
  svg.append(shape("path", { class: "curve " + kind, d: path }));
  if (limit) {
    svg.append(shape("line", { class: "limit", x1: left, x2: width - right, y1: y(limit), y2: y(limit) }));
    svg.append(shape("text", { class: "limit", x: left + 4, y: y(limit) - 4 }, "limit " + bytes(limit)));
  }
  const cursor = shape("line", { class: "cursor", y1: above, y2: height - below, visibility: "hidden" });
  svg.append(cursor);
  svg.addEventListener("mousemove", event => {
    const box = svg.getBoundingClientRect();
    const time = from + ((event.clientX - box.left) / box.width * width - left) / (width - left - right) * (to - from);
    const near = points.reduce((best, point) => Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best);
    cursor.setAttribute("x1", x(near[0])); cursor.setAttribute("x2", x(near[0])); cursor.setAttribute("visibility", "visible");
    showTip(event, unit(near[1]) + "\nafter " + since(+(near[0] - from).toFixed(1)) + "\n" + clock(near[0] * 1000));
  });
  svg.addEventListener("mouseleave", () => { cursor.setAttribute("visibility", "hidden"); hideTip(); });
  return svg;
}

// ---- summary
function card(value, name, bad) { return el("div", { class: "card" }, el("b", bad ? { class: "bad" } : {}, value), el("span", {}, name)); }
function summary() {
  const jobs = data.jobs;
  if (!jobs.length) return main.append(el("p", { class: "note" }, "No job has ended yet."));
  const failed = jobs.filter(job => job.cause !== undefined).length;
  const first = Math.min(...jobs.map(job => job.start)), last = jobs.reduce((most, job) => Math.max(most, job.end), 0);
  const cpuHours = jobs.reduce((sum, job) => sum + (job.averageCpuPercent || 0) / 100 * (job.end - job.start) / 3.6e6, 0);
  const count = new Set(jobs.map(job => job.node)).size;
  const peak = jobs.reduce((most, job) => Math.max(most, job.peakMemoryBytes || 0), 0);
  main.append(el("div", { class: "cards" },
    card(jobs.length.toLocaleString(), "attempts"), card(failed.toLocaleString(), "did not succeed", failed > 0),
    card(lasts(last - first), "from first start to last end"), card(lasts(Math.round(cpuHours * 3.6e6)), "of CPU time"),
    card(peak ? bytes(peak) : "–", "most memory of a job"), card(count.toString(), count === 1 ? "node" : "nodes")));
  const columns = [
    ["Job", label, "text"], ["Outcome", outcome, "text"], ["Node", job => job.node, "text"],
    ["Duration", job => job.end - job.start, lasts], ["CPU", job => job.averageCpuPercent, percent], ["Peak CPU", job => job.peakCpuPercent, percent],
    ["Memory", job => job.averageMemoryBytes, bytes], ["Peak memory", job => job.peakMemoryBytes, bytes], ["Of limit", share, percent],
    ["Code", job => job.code, String]];
  if (jobs.some(job => job.averageGpuPercent !== undefined)) {
    columns.push(["GPU", job => job.averageGpuPercent, percent], ["Peak GPU", job => job.peakGpuPercent, percent], ["GPU memory", job => job.peakGpuMemoryBytes, bytes]);
  }
  let shown = 100, sorted = 7, down = true;
  const search = el("input", { type: "search", placeholder: "Find a job, a node, a cause", oninput: () => { shown = 100; draw(); } });
  const tally = el("span", { class: "note" });
  const more = el("button", { onclick: () => { shown += 500; draw(); } }, "Show more");
  const head = el("tr"), body = el("tbody");
  columns.forEach(([name, , how], at) => head.append(el("th", { class: how === "text" ? "text" : "", onclick: () => { down = sorted === at ? !down : how !== "text"; sorted = at; draw(); } }, name)));
  function draw() {
    const words = search.value.toLowerCase();
    const found = jobs.filter(job => (label(job) + " " + job.node + " " + outcome(job)).toLowerCase().includes(words));
    const value = columns[sorted][1];
    found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      return (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y) * (down ? -1 : 1);
    });
    [...head.children].forEach((th, at) => at === sorted ? th.setAttribute("aria-sort", down ? "descending" : "ascending") : th.removeAttribute("aria-sort"));
    body.replaceChildren(...found.slice(0, shown).map(job => el("tr", {}, ...columns.map(([name, of, how]) => {
      const value = of(job), cell = el("td", { class: how === "text" ? "text" + (name === "Outcome" && job.cause !== undefined ? " bad" : "") : "" }, how === "text" ? value : value === undefined ? "–" : how(value));
      if (how === "text") cell.title = value;
      if (name === "Of limit" && value !== undefined) cell.append(el("span", { class: "meter" }, el("i", { class: value > 100 ? "over" : "", style: `width:${Math.min(value, 100)}%` })));
      return cell;
    }))));
    tally.textContent = found.length.toLocaleString() + " of " + jobs.length.toLocaleString();
    more.hidden = found.length <= shown;
  }
  main.append(el("div", { class: "tools" }, search, tally), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), body)), el("p", {}, more));
  draw();
}
function share(job) { return job.memoryLimit && job.peakMemoryBytes !== undefined ? job.peakMemoryBytes / job.memoryLimit * 100 : undefined; }

// ---- jobs: small plots, the biggest first
function jobs() {
  const all = data.jobs.filter(job => job.curve);
  if (!all.length) {
    return main.append(el("p", { class: "note" }, "There are no samples of jobs. They are kept with `granularity: time_series`; a job that ends before its first sample has none."));
  }
  const orders = { "peak memory": job => -(job.peakMemoryBytes || 0), "peak CPU": job => -(job.peakCpuPercent || 0), duration: job => job.start - job.end, start: job => job.start };
  let shown = 12;
  const search = el("input", { type: "search", placeholder: "Find a job", oninput: () => { shown = 12; draw(); } });
  const order = el("select", { onchange: () => draw(), "aria-label": "order" }, ...Object.keys(orders).map(name => el("option", {}, name)));
  const grid = el("div", { class: "grid" }), count = el("span", { class: "note" });
  const more = el("button", { onclick: () => { shown += 24; draw(); } }, "Show more");
  function draw() {
    const words = search.value.toLowerCase(), by = orders[order.value];
    const found = all.filter(job => label(job).toLowerCase().includes(words)).sort((a, b) => by(a) - by(b));
    grid.replaceChildren(...found.slice(0, shown).map(job => el("div", { class: "plot" },
      el("h3", { title: label(job) }, label(job)),
      el("p", job.cause === undefined ? {} : { class: "bad" }, `${outcome(job)} · ${lasts(job.end - job.start)} · ${bytes(job.peakMemoryBytes)} · ${percent(job.averageCpuPercent)} CPU · ${job.node}`),
      curve(job.curve.map(point => [point[0], point[2]]), { kind: "memory", unit: bytes, limit: job.memoryLimit, span: [job.start / 1000, job.end / 1000] }),
      curve(job.curve.map(point => [point[0], point[1]]), { kind: "cpu", unit: percent, height: 84, top: 100, span: [job.start / 1000, job.end / 1000] }),
      ...(job.gpuCurve ? [curve(job.gpuCurve, { kind: "gpu", unit: percent, height: 84, top: 100, span: [job.start / 1000, job.end / 1000] })] : []))));
    count.textContent = found.length.toLocaleString() + " jobs with samples";
    more.hidden = found.length <= shown;
  }
  main.append(el("div", { class: "tools" }, search, el("label", { class: "note" }, "by ", order), count, key("memory", "memory"), key("cpu", "CPU"), ...(all.some(job => job.gpuCurve) ? [key("gpu", "GPU")] : [])), grid, el("p", {}, more));
  draw();
}
function key(color, name) { return el("span", { class: "key" }, el("i", { style: `background:var(--${color})` }), name); }

// ---- nodes
function nodes() {
  if (!data.nodes.length) {
    return main.append(el("p", { class: "note" }, "No node was measured. Switch it on with `compute_node: {enabled: true, granularity: time_series}`."));
  }
  for (const node of data.nodes) {
    main.append(el("h2", {}, node.name), el("div", { class: "plot" },
      el("p", {}, "CPU, of all cores"), curve(node.curve.map(point => [point[0], point[1]]), { kind: "cpu", unit: percent, top: 100, width: 1280, height: 220 }),
      el("p", {}, "Memory in use, of " + bytes(node.totalMemory)), curve(node.curve.map(point => [point[0], point[2]]), { kind: "memory", unit: bytes, top: node.totalMemory, width: 1280, height: 220 }),
      ...(node.gpuCurve ? [
        el("p", {}, "GPUs, of all that the runner has"), curve(node.gpuCurve.map(point => [point[0], point[1]]), { kind: "gpu", unit: percent, top: 100, width: 1280, height: 220 }),
        el("p", {}, "Memory of the GPUs in use, of " + bytes(node.totalGpuMemory)), curve(node.gpuCurve.map(point => [point[0], point[2]]), { kind: "gpu", unit: bytes, top: node.totalGpuMemory, width: 1280, height: 220 })] : [])));
  }
}

// ---- time line: a row for each job that ran at once, and one for each GPU
function timeline() {
  const all = data.jobs;
  if (!all.length) return main.append(el("p", { class: "note" }, "No job has ended yet."));
  const rows = new Map();
  function put(node, kind, part, job) {
    const name = JSON.stringify([node, kind, part]);
    if (!rows.has(name)) rows.set(name, { node, kind, part, title: kind + " " + part, jobs: [] });
    rows.get(name).jobs.push(job);
  }
  for (const job of all) put(job.node, "slot", String(job.lane + 1), job);
  for (const job of all) for (const gpu of job.gpus || []) put(job.node, "GPU", gpu, job);
  const order = (a, b) => a.localeCompare(b, undefined, { numeric: true });
  const shown = [...rows.values()].sort((a, b) => order(a.node, b.node) || order(b.kind, a.kind) || order(a.part, b.part));
  const first = Math.min(...all.map(job => job.start)), last = all.reduce((most, job) => Math.max(most, job.end), first + 1);
  let range = [first, last], drag = null;
  const height = Math.max(8, Math.min(24, Math.floor(900 / shown.length))), gap = height > 10 ? 3 : 1, left = 150, above = 24;
  const canvas = el("canvas"), box = el("div", { class: "scroll", style: "padding:8px 0" }, canvas);
  const reset = el("button", { hidden: "", onclick: () => { range = [first, last]; draw(); } }, "Whole time");
  const busy = all.reduce((sum, job) => sum + job.end - job.start, 0), slots = shown.filter(row => row.kind === "slot").length;
  main.append(el("div", { class: "tools" }, key("good", "completed"), key("bad", "did not succeed"), key("warn", "ran out of time or memory, or was stopped"),
    el("span", { class: "note" }, `${all.length.toLocaleString()} attempts in ${slots} slots, ${percent(busy / slots / (last - first) * 100)} of their time in use. Drag over a part to see more of it.`), reset), box);
  let labelled = null;
  const style = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const color = job => job.cause === undefined ? "good" : ["Timeout", "OutOfMemory", "Stopped", "Canceled"].includes(job.cause) ? "warn" : "bad";
  function draw() {
    const width = Math.max(box.clientWidth - 2, 600), ratio = devicePixelRatio || 1, tall = above + shown.length * (height + gap) + 8;
    canvas.width = width * ratio; canvas.height = tall * ratio; canvas.style.height = tall + "px";
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    const x = time => left + (time - range[0]) / (range[1] - range[0]) * (width - left - 12);
    const every = timeStep((range[1] - range[0]) / 1000, Math.max(3, Math.floor(width / 140))) * 1000;
    pen.textAlign = "center";
    for (let time = Math.ceil((range[0] - first) / every) * every; first + time <= range[1]; time += every) {
      pen.fillStyle = style("line"); pen.fillRect(x(first + time), above, 1, tall - above);
      pen.fillStyle = style("faint"); pen.fillText(since(time / 1000), x(first + time), 14);
    }
    labelled = null;
    const colors = { good: style("good"), bad: style("bad"), warn: style("warn") };
    shown.forEach((row, at) => {
      const y = above + at * (height + gap);
      if (height >= 11) {
        pen.textAlign = "left"; pen.fillStyle = style("faint");
        if (row.node !== labelled) { pen.fillText(row.node.slice(0, 12), 10, y + height / 2 + 4); labelled = row.node; }
        pen.textAlign = "right"; pen.fillText(row.title, left - 10, y + height / 2 + 4);
      }
      pen.save(); pen.beginPath(); pen.rect(left, y, width - left - 12, height); pen.clip();
      for (const job of row.jobs) {
        if (job.end < range[0] || job.start > range[1]) continue;
        const from = x(job.start), wide = Math.max(x(job.end) - from, 1);
        pen.fillStyle = colors[color(job)]; pen.fillRect(from, y, wide > 3 ? wide - 1 : wide, height);
        if (height >= 14 && wide > 40) {
          pen.fillStyle = style("ground"); pen.textAlign = "left";
          pen.save(); pen.beginPath(); pen.rect(from, y, wide - 4, height); pen.clip(); pen.fillText(job.name, from + 5, y + height / 2 + 4); pen.restore();
        }
      }
      pen.restore();
    });
    if (drag) { pen.fillStyle = style("cpu") + "44"; pen.fillRect(Math.min(drag[0], drag[1]), above, Math.abs(drag[1] - drag[0]), tall - above); }
    reset.hidden = range[0] === first && range[1] === last;
  }
  function place(event) {
    const area = canvas.getBoundingClientRect(), x = event.clientX - area.left, wide = area.width - left - 12;
    const time = range[0] + (x - left) / wide * (range[1] - range[0]), grain = (range[1] - range[0]) / wide;
    const row = shown[Math.floor((event.clientY - area.top - above) / (height + gap))];
    return { x, time, job: row && row.jobs.find(job => job.start - grain <= time && time <= job.end + grain) };
  }
  canvas.addEventListener("mousedown", event => { const { x } = place(event); drag = [x, x]; });
  canvas.addEventListener("mousemove", event => {
    const { x, job } = place(event);
    if (drag) { drag[1] = x; draw(); }
    if (!job) return hideTip();
    showTip(event, `${label(job)}\n${outcome(job)}, ${lasts(job.end - job.start)}\n${clock(job.start)}\n${bytes(job.peakMemoryBytes)} peak, ${percent(job.averageCpuPercent)} CPU`);
  });
  addEventListener("mouseup", event => {
    if (!drag) return;
    const [a, b] = drag.slice().sort((p, q) => p - q), area = canvas.getBoundingClientRect(), wide = area.width - left - 12;
    drag = null;
    if (b - a > 6) range = [a, b].map(x => range[0] + Math.max(0, Math.min(1, (x - left) / wide)) * (range[1] - range[0]));
    draw();
  });
  canvas.addEventListener("mouseleave", hideTip);
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

({ summary, jobs, nodes, timeline })[document.body.dataset.page]();
