// Inflates plotly, draws the figures in the colours of the theme, and draws them again when the theme changes.
"use strict";
(() => {
  const root = document.documentElement;
  let figures = {};
  // plotly.js 4 by default offers a button that uploads the chart to a server: it must never be here.
  const options = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtons: [["toImage"]],
    showSendToCloud: false, plotlyServerURL: "", typesetMath: false };

  const inflated = (id) => {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };

  const inflate = async () => {
    figures = JSON.parse(await inflated("figures"));
    const script = document.createElement("script");
    script.textContent = await inflated("plotly");
    document.head.append(script);
  };

  const coloured = (value, style) => {
    if (typeof value === "string" && value.startsWith("var(--")) {
      return style.getPropertyValue(value.slice(4, -1)).trim();
    }
    if (Array.isArray(value)) return value.map((entry) => coloured(entry, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, coloured(entry, style)]));
    }
    return value;
  };

  // Paper is told its width here: its layout is made after the last moment at which a script can measure it.
  const paperWidth = 690;

  const selects = (id) => [...document.querySelectorAll("select[data-plot]")].filter((one) => one.dataset.plot === id);

  // Of several figures in one place the one that is chosen; undefined where those options do not go together.
  const chosen = (id, figure) => (figure.choices ? figure.choices[selects(id).map((one) => one.value).join("|")] : figure);

  const drawOne = async (id) => {
    const style = getComputedStyle(root);
    const paper = matchMedia("print").matches;
    const plot = document.getElementById(id);
    const figure = chosen(id, figures[id]);
    if (!figure) {
      window.Plotly.purge(plot);
      plot.textContent = "Not measured for this metric: choose another pair.";
      return;
    }
    if (!plot.classList.contains("js-plotly-plot")) plot.textContent = "";
    const { data, layout } = coloured(figure, style);
    plot.style.minHeight = `${layout.height}px`;
    await window.Plotly.react(plot, data, paper ? { ...layout, width: paperWidth } : layout, options);
  };

  const draw = () => Promise.all(Object.keys(figures).map(drawOne));

  const failed = (error) => {
    root.dataset.pictures = `failed: ${error}`;
    document.getElementById("no-picture").hidden = false;
    document.querySelectorAll(".choice").forEach((picture) => { picture.hidden = true; });
  };

  inflate().then(draw).then(() => {
    root.dataset.pictures = "drawn";
    // The picture's label and the tables tell it better than its loose axis texts would.
    document.querySelectorAll(".plot svg.main-svg").forEach((svg) => { svg.setAttribute("aria-hidden", "true"); });
    document.querySelectorAll("select[data-plot]").forEach((one) => {
      one.addEventListener("change", () => { drawOne(one.dataset.plot).catch(failed); });
    });
    // What is folded has no width: it is drawn again when it is unfolded.
    document.querySelectorAll("details").forEach((one) => {
      if (one.querySelector(".plot")) one.addEventListener("toggle", () => { if (one.open) draw().catch(failed); });
    });
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      matchMedia(query).addEventListener("change", () => { draw().catch(failed); });
    }
  }).catch(failed);
})();
