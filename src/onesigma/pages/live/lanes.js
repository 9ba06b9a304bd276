// The lanes of the chart: the signal, the answers, and the truth where it is known.

import { abstains, tidy } from "./rule.js";

export function drawSignal(sheet, lane) {
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

function rangeOf(points, lane) {
  let [low, high] = [Infinity, -Infinity];
  for (const { lows, highs } of points) {
    for (const { at } of lane.channels) {
      low = Math.min(low, lows[at]);
      high = Math.max(high, highs[at]);
    }
  }
  if (!(high > low)) return Number.isFinite(low) ? [low - 1, low + 1] : [-1, 1];
  // Whole steps, so that the scale does not tremble with every instant.
  const step = 10 ** Math.floor(Math.log10(high - low)) / 2;
  return [Math.floor(low / step) * step, Math.ceil(high / step) * step];
}

// The vertical scale of a lane.
export function drawScale({ pen, colours, left, right }, lane, low, high) {
  pen.fillStyle = colours.bar;
  pen.fillRect(left, lane.bottom, right - left, 1);
  pen.fillStyle = colours.soft;
  pen.textAlign = "right";
  pen.fillText(tidy(high), left - 6, lane.top + 9);
  pen.fillText(tidy(low), left - 6, lane.bottom);
  pen.textAlign = "left";
}

export function drawTruth(sheet, lane) {
  const { hello, now } = sheet.view;
  const notes = hello.notes.filter(([t]) => t <= now);
  notes.forEach(([from, text], i) => {
    drawStretch(sheet, lane, from, notes[i + 1]?.[0] ?? now, text, styleOf(sheet, text, "grey"));
  });
}

export function drawAnswers(sheet, lane) {
  for (const { from, to, text, odd } of stretches(sheet.view)) {
    drawStretch(sheet, lane, from, to, text ?? "unsure", styleOf(sheet, text, odd ? "rose" : "amber"));
  }
}

// Answers in a row that say the same; text is null where it is unsure, and the reason where the input is odd.
function stretches({ hello, answers, rule }) {
  const found = [];
  for (const answer of answers) {
    const odd = answer.reason;
    const text = odd || (abstains(answer, rule) ? null : hello.class_names[answer.top[0][0]]);
    const from = answer.t - hello.hop;
    const last = found.at(-1);
    if (last && last.text === text && last.odd === odd && from - last.to < hello.hop / 2) last.to = answer.t;
    else found.push({ from, to: answer.t, text, odd });
  }
  return found;
}

// A class has a colour of its own; what is none of them is hatched.
function styleOf({ colours, view }, text, otherwise) {
  const label = otherwise === "rose" ? -1 : view.hello.class_names.indexOf(text);
  if (label >= 0) {
    const hue = (205 + 137.5 * label) % 360; // neighbours far apart
    return { fill: view.dark ? `hsl(${hue} 34% 32%)` : `hsl(${hue} 60% 84%)`, ink: colours.ink };
  }
  if (otherwise === "grey") return { fill: colours.line, hatch: colours.faint, ink: colours.ink };
  if (otherwise === "rose") return { fill: colours.rose, hatch: colours.pink, ink: colours["rose-ink"] };
  return { fill: colours.amber, hatch: colours.orange, ink: colours["amber-ink"] };
}

function drawStretch({ pen, x, first }, lane, from, to, text, { fill, hatch, ink }) {
  if (to <= first) return;
  const [begin, end] = [x(Math.max(from, first)), x(to) - 1];
  pen.fillStyle = fill;
  pen.fillRect(begin, lane.top, end - begin, lane.height);
  if (hatch) drawHatch(pen, hatch, begin, end, lane);
  const wide = pen.measureText(text).width;
  if (wide > end - begin - 10) return;
  if (hatch) pen.fillRect(begin + 2, lane.top + 4, wide + 6, lane.height - 8);
  pen.fillStyle = ink;
  pen.fillText(text, begin + 5, lane.top + 16);
}

function drawHatch(pen, colour, begin, end, lane) {
  pen.save();
  pen.beginPath();
  pen.rect(begin, lane.top, end - begin, lane.height);
  pen.clip();
  pen.globalAlpha = 0.45;
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = begin - lane.height; at < end; at += 7) {
    pen.moveTo(at, lane.bottom);
    pen.lineTo(at + lane.height, lane.top);
  }
  pen.stroke();
  pen.restore();
}
