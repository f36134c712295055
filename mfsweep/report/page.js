const shard = document.getElementById("w2-shard"), slider = document.getElementById("w2-beta");
const betas = JSON.parse(slider.dataset.values);
function showCurves() {
  const plot = document.getElementById("w2"), beta = betas[slider.value], k = Number(shard.value);
  const visible = plot.data.map(({ meta }) => meta[0] === k && [null, beta].includes(meta[1]));
  const known = plot.data.some(({ meta }) => meta[0] === k && meta[1] === beta);
  slider.setAttribute("aria-valuetext", `beta = ${beta}`);
  document.getElementById("w2-value").value = `beta = ${beta}` + (known ? "" : ": not in this shard");
  Plotly.restyle(plot, { visible });
}
shard.oninput = slider.oninput = showCurves;

const draw = plot => plot.drawn ??= (async () => {
  const held = document.getElementById(`${plot.id}-figure`).textContent;
  const { data, layout, frames, config } = JSON.parse(held);
  await Plotly.newPlot(plot, data, layout, config);
  await Plotly.addFrames(plot, frames);
})();
const near = new IntersectionObserver(
  seen => seen.filter(one => one.isIntersecting).forEach(one => draw(one.target)),
  { rootMargin: "300px" },
);
document.querySelectorAll(".later").forEach(plot => near.observe(plot));

for (const form of document.querySelectorAll("form.tokens")) {
  const [button, time] = form.elements, output = form.querySelector("output");
  const plot = document.getElementById(form.dataset.plot);
  const times = JSON.parse(time.dataset.values);
  let timer = 0;
  const show = async () => {
    output.value = `t = ${times[time.value]}`;
    time.setAttribute("aria-valuetext", output.value);
    const now = { mode: "immediate", frame: { duration: 0 }, transition: { duration: 0 } };
    await draw(plot);
    Plotly.animate(plot, [times[time.value]], now).catch(() => {}); // a later time came first
  };
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; };
  const step = () => { if (time.value === time.max) stop(); else { time.stepUp(); show(); } };
  button.onclick = () => {
    if (timer) return stop();
    if (time.value === time.max) time.value = 0;
    button.textContent = "Pause"; timer = setInterval(step, 150);
  };
  time.oninput = () => { stop(); show(); };
}
