// Draws the charts of a report with uPlot. What is drawn is in the element #data; what it means, in the tables.
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const colour = name => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const HEIGHT = 190;
  const DASHES = [[], [7, 4], [2, 3]];
  const LINE_COLOURS = 8;

  const UNITS = ["", "k", "M", "G", "T", "P"];
  const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  function digits(number) {
    const size = Math.abs(number);
    return number === 0 ? "0" : number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace(/\.0+$|(\.\d*[1-9])0+$/, "$1");
  }
  function scaled(number, step, units) {
    let place = 0;
    while (Math.abs(number) >= step && place + 1 < units.length) {
      number /= step;
      place += 1;
    }
    return digits(number) + units[place];
  }
  const WORDS = {
    share: number => (number === 0 ? "0" : Math.abs(number) < 0.0001 ? (100 * number).toPrecision(1) : digits(100 * number)) + "%",
    seconds: number => number === 0 ? "0" : number < 1e-3 ? digits(number * 1e6) + "µs" : number < 1 ? digits(number * 1e3) + "ms" : number < 120 ? digits(number) + "s" : digits(number / 60) + "m",
    bytes: number => scaled(number, 1024, BYTES),
    rate: number => (number !== 0 && Math.abs(number) < 0.01 ? number.toPrecision(1) : scaled(number, 1000, UNITS)) + "/s",
    count: number => scaled(number, 1000, UNITS),
  };
  const words = scale => number => (number == null ? "–" : WORDS[scale](number));

  // Distances between lines of the grid, where tens do not fit.
  const STEPS = {
    bytes: Array.from({ length: 60 }, (_, power) => 2 ** power),
    count: Array.from({ length: 13 }, (_, power) => [1, 2, 5].map(step => step * 10 ** power)).flat(),
  };

  const clock = time => uPlot.tzDate(new Date(time * 1e3), data.zone);
  const moment = uPlot.fmtDate("{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}");

  function axes(y) {
    const common = { stroke: () => colour("quiet"), grid: { stroke: () => colour("rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const hour = "{HH}:{mm}", day = "\n{YYYY}-{MM}-{DD}";
    const values = [
      [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
      [60, hour, day, null, day, null, null, null, 1],
      [1, "{HH}:{mm}:{ss}", day, null, day, null, null, null, 1],
      [0.001, ":{ss}.{fff}", null, null, null, null, null, null, 1],
    ];
    return [{ ...common, values, space: 70 }, { ...common, size: 62, ...y }];
  }

  // Gaps and missing ranks as bands, resets as lines.
  function notes(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const note of data.notes) {
      const from = u.valToPos(note.from, "x", true), to = u.valToPos(note.to, "x", true);
      if (note.kind === "gap") {
        ctx.fillStyle = colour("gap");
        ctx.fillRect(from, bbox.top, Math.max(to - from, 2), bbox.height);
      } else if (note.kind === "reset") {
        ctx.strokeStyle = colour("bad");
        ctx.lineWidth = uPlot.pxRatio;
        ctx.setLineDash([4 * uPlot.pxRatio, 3 * uPlot.pxRatio]);
        ctx.beginPath();
        ctx.moveTo(from, bbox.top);
        ctx.lineTo(from, bbox.top + bbox.height);
        ctx.stroke();
      }
    }
    ctx.restore();
  }

  const plots = [];
  const times = Array.from({ length: data.count }, (_, slot) => data.start + data.width * (slot + 0.5));
  const end = data.start + data.width * data.count;

  for (const chart of data.charts) {
    const element = document.getElementById("chart-" + chart.id);
    if (!element) continue;
    const name = line => "c" + line.colour % LINE_COLOURS;
    const dash = line => DASHES[Math.floor(line.colour / LINE_COLOURS) % DASHES.length];
    const say = words(chart.scale);
    const markers = { width: 2, dash: (u, at) => ["solid", "dashed", "dotted"][Math.floor(chart.lines[at - 1].colour / LINE_COLOURS) % 3], stroke: (u, at) => `var(--${name(chart.lines[at - 1])})`, fill: () => "transparent" };
    plots.push({ element, height: HEIGHT, plot: new uPlot({
      width: element.clientWidth || 320,
      height: HEIGHT,
      tzDate: clock,
      cursor: { sync: { key: "time" }, points: { size: 6 }, y: false },
      legend: { markers },
      scales: { x: { range: (u, from, to) => from === times[0] && to === times[times.length - 1] ? [data.start, end] : [from, to] }, y: { range: (u, from, to) => [Math.min(0, from ?? 0), to > 0 ? to * 1.06 : 1] } },
      axes: axes({ values: (u, ticks) => ticks.map(say), ...(STEPS[chart.scale] && { incrs: STEPS[chart.scale] }) }),
      series: [
        { label: "time", value: (u, time) => time == null ? "–" : moment(clock(time)) },
        ...chart.lines.map(line => ({ label: line.label, stroke: () => colour(name(line)), width: 1.6, dash: dash(line), spanGaps: false, points: { show: data.count < 30, size: 4 }, value: (u, number) => say(number) })),
      ],
      hooks: { drawClear: [notes] },
    }, [times, ...chart.lines.map(line => line.data)], element) });
  }

  if (data.heat) plots.push(map(data.heat));

  // Work by rank: uPlot's axes, zoom and cursor, with cells instead of lines.
  function map(heat) {
    const element = document.getElementById("chart-heat");
    const choice = document.getElementById("heat-layer");
    const here = document.getElementById("heat-here");
    const most = document.getElementById("heat-most");
    const cells = heat.layers.map(layer => Uint8Array.from(atob(layer.cells), letter => letter.charCodeAt(0)));
    const columns = Array.from({ length: heat.columns }, (_, column) => heat.start + heat.width * (column + 0.5));
    const height = Math.min(460, Math.max(HEIGHT, 60 + heat.rows.length * 14));
    const finish = heat.start + heat.width * heat.columns;
    let layer = 0;

    function ramp() {
      const stops = [0, 1, 2, 3, 4].map(stop => colour("h" + stop)).map(text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16)));
      return Array.from({ length: 251 }, (_, step) => {
        const place = Math.min(step / 250 * 4, 3.9999), low = Math.floor(place);
        return "rgb(" + stops[low].map((from, at) => Math.round(from + (stops[low + 1][at] - from) * (place - low))).join(",") + ")";
      });
    }
    function draw(u) {
      const { ctx, bbox } = u;
      const colours = ramp();
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const x = Array.from({ length: heat.columns + 1 }, (_, column) => Math.round(u.valToPos(heat.start + heat.width * column, "x", true)));
      const y = Array.from({ length: heat.rows.length + 1 }, (_, row) => Math.round(u.valToPos(row, "y", true)));
      for (let row = 0; row < heat.rows.length; row++) {
        for (let column = 0; column < heat.columns; column++) {
          const cell = cells[layer][row * heat.columns + column];
          if (cell === 255) continue;
          ctx.fillStyle = colours[cell];
          ctx.fillRect(x[column], y[row], x[column + 1] - x[column], Math.max(y[row + 1] - y[row], 1));
        }
      }
      ctx.restore();
    }
    function tell(u) {
      const { left, top } = u.cursor;
      if (left == null || left < 0 || top < 0) {
        here.textContent = "\u00a0";
        return;
      }
      const column = Math.floor((u.posToVal(left, "x") - heat.start) / heat.width), row = Math.floor(u.posToVal(top, "y"));
      const cell = column < heat.columns && row < heat.rows.length ? cells[layer][row * heat.columns + column] : undefined;
      if (cell === undefined) return;
      const share = cell === 255 ? "not known" : WORDS.share(cell / 250 * heat.layers[layer].most) + " of a core";
      here.textContent = `${heat.rows[row]}, ${moment(clock(columns[column]))}: ${share}`;
    }
    const step = Math.max(1, Math.ceil(heat.rows.length / 12));
    const plot = new uPlot({
      width: element.clientWidth || 320,
      height,
      tzDate: clock,
      cursor: { sync: { key: "time", scales: ["x", null] }, points: { show: false }, drag: { x: true, y: false } },
      legend: { show: false },
      scales: { x: { range: (u, from, to) => from === columns[0] && to === columns[columns.length - 1] ? [heat.start, finish] : [from, to] }, y: { dir: -1, range: [0, heat.rows.length] } },
      axes: axes({ grid: { show: false }, splits: () => heat.rows.map((_, row) => row + 0.5).filter((_, row) => row % step === 0), values: (u, ticks) => ticks.map(tick => "rank " + Math.floor(tick) * heat.ranks) }),
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [draw], setCursor: [tell] },
    }, [columns, columns.map(() => null)], element);
    function show() {
      most.textContent = WORDS.share(heat.layers[layer].most);
    }
    choice.addEventListener("change", () => {
      layer = choice.selectedIndex;
      show();
      plot.redraw(false);
    });
    show();
    return { element, height, plot };
  }

  const redraw = () => plots.forEach(({ plot }) => plot.batch(() => plot.redraw(false)));
  // At once: paper does not wait for uPlot's next task.
  const fit = (column, page) => plots.forEach(({ element, height, plot }) => {
    const wanted = (element.closest(".wide") ? page : column) || element.clientWidth;
    if (wanted > 0 && wanted !== plot.width) plot.batch(() => plot.setSize({ width: wanted, height }));
  });
  new ResizeObserver(() => { if (!root.classList.contains("print")) fit(); }).observe(document.body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // On paper: light, as wide as a column of it or all of it, and without a cursor.
  addEventListener("beforeprint", () => {
    root.classList.add("print");
    fit(330, 680);
    plots.forEach(({ plot }) => plot.setCursor({ left: -10, top: -10 }));
    redraw();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("print");
    fit();
    redraw();
  });
})();
