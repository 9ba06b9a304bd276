// Two strips of the chart: what was answered, and what it was in truth where that is known.

import { abstains } from "./rule.js";

export function drawTruth(sheet, lane) {
  const { hello, now } = sheet.view;
  const notes = hello.notes.filter(([t]) => t <= now);
  notes.forEach(([from, text], i) => {
    drawStretch(sheet, lane, from, notes[i + 1]?.[0] ?? now, text, styleOf(sheet, text, "grey"));
  });
}

export function drawAnswers(sheet, lane) {
  for (const { from, to, text } of stretches(sheet.view)) {
    drawStretch(sheet, lane, from, to, text ?? "unsure", styleOf(sheet, text, "amber"));
  }
}

// Answers in a row that say the same; text is null where it abstains.
function stretches({ hello, answers, rule }) {
  const found = [];
  for (const answer of answers) {
    const text = abstains(answer, rule) ? null : hello.labels[answer.top[0][0]];
    const from = answer.t - hello.hop;
    const last = found.at(-1);
    if (last && last.text === text && from - last.to < hello.hop / 2) last.to = answer.t;
    else found.push({ from, to: answer.t, text });
  }
  return found;
}

// A class has a colour of its own; what is none of them is hatched.
function styleOf({ colours, view }, text, otherwise) {
  const label = view.hello.labels.indexOf(text);
  if (label >= 0) {
    const hue = (205 + 137.5 * label) % 360; // neighbours far apart
    return { fill: view.dark ? `hsl(${hue} 34% 32%)` : `hsl(${hue} 60% 84%)`, ink: colours.ink };
  }
  if (otherwise === "grey") return { fill: colours.line, hatch: colours.faint, ink: colours.ink };
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
