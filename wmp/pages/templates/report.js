// Plotly reads tags in some texts, so the figures have escaped names.
const axis = {gridcolor: "rgba(128,128,128,0.25)", zeroline: false, automargin: true};
const clear = "rgba(0,0,0,0)";
const template = {
  layout: {
    font: {color: getComputedStyle(document.body).color, family: "inherit"},
    margin: {l: 10, r: 10, t: 30, b: 30}, paper_bgcolor: clear, plot_bgcolor: clear,
    modebar: {bgcolor: clear}, hovermode: "closest", showlegend: false,
    legend: {orientation: "h", yref: "container", y: 0, yanchor: "bottom"},
    xaxis: axis, yaxis: axis,
  },
  data: {
    heatmap: [{zmin: 0, hoverinfo: "text", colorbar: {thickness: 12}}],
    scatter: [{hoverinfo: "text"}],
  },
};
for (const [id, {data, layout}] of Object.entries(JSON.parse(document.getElementById("figures").textContent)))
  Plotly.newPlot(id, data, {template, ...layout}, {responsive: true, displaylogo: false});
