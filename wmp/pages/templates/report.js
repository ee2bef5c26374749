// Plotly reads tags in some texts, so the figures have escaped names.
const font = {color: getComputedStyle(document.body).color, family: "inherit"};
for (const [id, {data, layout}] of Object.entries(JSON.parse(document.getElementById("figures").textContent)))
  Plotly.newPlot(id, data, {...layout, font}, {responsive: true, displaylogo: false});
