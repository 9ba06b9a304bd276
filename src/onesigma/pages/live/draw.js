// The chart: where its lanes lie, and the time below them. It does not know where its data come from.

import { drawAnswers, drawSignal, drawTruth } from "./lanes.js";
import { clock } from "./rule.js";
import { drawReading, drawUncertainty } from "./uncertainty.js";

const FONT = '12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const INKS = ["blue", "green", "pink", "ink", "soft", "red"];
const COLOURS = ["ink", "soft", "faint", "line", "bar", "tint", "amber", "amber-ink", "rose", "rose-ink", "card"];
const GUTTER = 40; // left of the lanes, for numbers
const MARGIN = 8; // right of them
const NARROW = 500;

export function draw(canvas, view) {
  const width = canvas.clientWidth;
  const lanes = lanesOf(view.hello);
  const pen = fit(canvas, lanes.at(-1).bottom + 22);
  const span = view.hello.span * (width < NARROW ? 0.5 : 1);
  const first = Math.max(view.now, span) - span; // the time at the left edge
  const [left, right] = [GUTTER, width - MARGIN];
  const x = (t) => left + ((t - first) / span) * (right - left);
  const sheet = { pen, left, right, first, span, x, view, colours: coloursOf(canvas) };
  drawTime(sheet, lanes);
  for (const lane of lanes) lane.draw(sheet, lane);
  if (view.pointer !== null) drawReading(sheet, lanes);
}

// As many dots as the screen has, so that lines are sharp; one unit stays one CSS pixel.
function fit(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const [dotsAcross, dotsDown] = [canvas.clientWidth, height].map((size) => Math.round(size * scale));
  if (canvas.width !== dotsAcross || canvas.height !== dotsDown) {
    [canvas.width, canvas.height] = [dotsAcross, dotsDown];
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, height);
  pen.font = FONT;
  pen.lineJoin = "round";
  return pen;
}

function coloursOf(canvas) {
  const style = getComputedStyle(canvas);
  const names = [...COLOURS, ...INKS, "orange"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function lanesOf({ names, notes }) {
  const lanes = [];
  let top = 20;
  const add = (title, height, drawLane, channels = []) => {
    lanes.push({ title, top, height, bottom: top + height, draw: drawLane, channels });
    top += height + 26;
  };
  const size = names.length % 3 === 0 ? 3 : names.length; // sensors of three axes have a lane each
  for (let first = 0; first < names.length; first += size) {
    const own = names.slice(first, first + size);
    const channels = own.map((name, i) => ({ name, at: first + i, ink: INKS[i % INKS.length] }));
    add(first === 0 ? "signal" : "", names.length > 6 ? 60 : 86, drawSignal, channels);
  }
  if (notes.length) add("truth", 24, drawTruth);
  add("answer", 24, drawAnswers);
  add("uncertainty, nats", 130, drawUncertainty);
  return lanes;
}

function drawTime({ pen, colours, x, left, right, first, span }, lanes) {
  const wide = (step) => (step / span) * (right - left) > 60;
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].find(wide) ?? 7200;
  pen.textAlign = "center";
  for (let t = Math.ceil(first / step) * step; t <= first + span; t += step) {
    pen.fillStyle = colours.line;
    for (const lane of lanes) pen.fillRect(Math.round(x(t)), lane.top, 1, lane.height);
    pen.fillStyle = colours.soft;
    if (x(t) < right - 10) pen.fillText(clock(t), x(t), lanes.at(-1).bottom + 16);
  }
  pen.textAlign = "left";
  pen.fillStyle = colours.soft;
  for (const lane of lanes) pen.fillText(lane.title, left, lane.top - 6);
}
