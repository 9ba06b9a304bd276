// The chart: its lanes, the time below them, and the signal. Knows not where its data come from.

import { drawDoubt, drawReading } from "./doubt.js";
import { clock } from "./rule.js";
import { drawScale, rangeOf } from "./scale.js";
import { drawAnswers, drawTruth } from "./strips.js";

const FONT = '12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const INKS = ["blue", "green", "pink", "ink", "soft", "red"];
const COLOURS = ["ink", "soft", "faint", "line", "bar", "tint", "amber", "amber-ink", "card"];
const GUTTER = 40; // left of the lanes, for numbers
const MARGIN = 8; // right of them
const NARROW = 500;

export function draw(canvas, view) {
  const width = canvas.clientWidth;
  const lanes = lanesOf(view.hello);
  const pen = fitted(canvas, lanes.at(-1).bottom + 22);
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
function fitted(canvas, height) {
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
  if (notes.length) add("in truth", 24, drawTruth);
  add("answer", 24, drawAnswers);
  add("doubt, nats", 130, drawDoubt);
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

function drawSignal(sheet, lane) {
  const { pen, colours, x, left, right, first, view } = sheet;
  const points = view.points.filter(({ t }) => t >= first);
  const [low, high] = rangeOf(points, lane);
  const y = (value) => lane.bottom - ((value - low) / (high - low)) * lane.height;
  drawWindow(sheet, lane);
  pen.lineWidth = 1.4;
  for (const { at, ink } of lane.channels) {
    pen.strokeStyle = colours[ink];
    pen.beginPath();
    let before = -Infinity;
    for (const { t, lows, highs } of points) {
      // What was missed is a gap, not a line across.
      pen[t - before > 1.5 * view.hello.point ? "moveTo" : "lineTo"](x(t), y(lows[at]));
      if (highs !== lows) pen.lineTo(x(t), y(highs[at]));
      before = t;
    }
    pen.stroke();
  }
  drawScale(sheet, lane, low, high);
  let end = right;
  for (const { name, ink } of lane.channels.toReversed()) {
    end -= pen.measureText(name).width;
    if (end < left + 60) break;
    pen.fillStyle = colours[ink];
    pen.fillText(name, end, lane.top - 6);
    end -= 12;
  }
}

function drawWindow({ pen, colours, x, first, view }, lane) {
  const last = view.answers.at(-1);
  if (!last || last.t < first) return;
  const from = x(Math.max(first, last.t - view.hello.window));
  pen.fillStyle = colours.tint;
  pen.fillRect(from, lane.top, x(last.t) - from, lane.height);
}
