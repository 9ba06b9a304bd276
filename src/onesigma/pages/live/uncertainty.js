// The lane of the uncertainty, and what the pointer reads off the chart.

import { drawScale } from "./lanes.js";
import { abstains, clock, figure, gist, mostOf, percent, scoreOf } from "./rule.js";

export function drawUncertainty(sheet, lane) {
  const { pen, colours, x, left, right, first, view } = sheet;
  const { hello, rule } = view;
  const answers = view.answers.filter(({ t }) => t >= first - hello.hop);
  const y = (value, score) => lane.bottom - (value / mostOf(score, hello.most)) * lane.height;
  pen.save();
  pen.beginPath();
  pen.rect(left, lane.top - 2, right - left, lane.height + 2);
  pen.clip();
  const hop = x(hello.hop) - x(0);
  for (const answer of answers) {
    pen.fillStyle = answer.reason ? colours.rose : colours.amber;
    // Half a pixel more, or seams show between neighbours.
    if (abstains(answer, rule)) pen.fillRect(x(answer.t) - hop, lane.top, hop + 0.5, lane.height);
  }
  const curve = (score, colour, floor) => {
    for (const run of runsOf(answers, score, hello)) {
      const points = run.map((answer) => [x(answer.t), y(scoreOf(answer, score), score)]);
      drawCurve(pen, points, colour, floor);
    }
  };
  curve("epistemic", colours.orange, lane.bottom);
  curve("entropy", colours.blue);
  if (rule.score === "confidence") curve("confidence", colours.green);
  drawThreshold(sheet, y(rule.threshold, rule.score));
  pen.restore();
  drawScale(sheet, lane, 0, hello.most);
}

// Answers without a gap between them.
function runsOf(answers, score, hello) {
  const runs = [];
  let before = -Infinity;
  for (const answer of answers) {
    if (scoreOf(answer, score) === null) continue;
    if (answer.t - before > 1.5 * hello.hop) runs.push([]);
    runs.at(-1).push(answer);
    before = answer.t;
  }
  return runs;
}

function drawCurve(pen, points, colour, floor) {
  pen.beginPath();
  for (const [px, py] of points) pen.lineTo(px, py);
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 2;
  pen.stroke();
  if (floor === undefined) return;
  pen.lineTo(points.at(-1)[0], floor);
  pen.lineTo(points[0][0], floor);
  pen.globalAlpha = 0.22;
  pen.fill();
  pen.globalAlpha = 1;
}

function drawThreshold({ pen, colours, left, right }, level) {
  pen.setLineDash([6, 4]);
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(left, level);
  pen.lineTo(right, level);
  pen.stroke();
}

// A thin line at the pointer, and the answer there.
export function drawReading({ pen, colours, left, right, first, span, view }, lanes) {
  const t = first + ((view.pointer - left) / (right - left)) * span;
  const answer = view.answers.find((each) => each.t >= t && each.t - view.hello.hop < t);
  if (!answer) return;
  const top = lanes[0].top;
  pen.fillStyle = colours.faint;
  pen.fillRect(view.pointer, top, 1, lanes.at(-1).bottom - top);
  const [label, probability] = answer.top[0];
  const not = answer.reason || (abstains(answer, view.rule) ? "unsure" : "");
  const said = not && `${not}, most likely `;
  const text = [
    `${clock(answer.t)}  ${said}${view.hello.class_names[label]} ${percent(probability)}`,
    `entropy ${figure(answer.entropy)}, epistemic ${figure(answer.epistemic)}`,
  ];
  if (view.hello.guarded) text[1] += `, novelty ${figure(answer.novelty)}`;
  if (answer.odd) text.push(gist(answer.odd));
  const wide = Math.max(...text.map((line) => pen.measureText(line).width)) + 16;
  const at = Math.max(left, Math.min(view.pointer - wide / 2, right - wide));
  pen.fillStyle = colours.card;
  pen.strokeStyle = colours.bar;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.roundRect(at, top + 6, wide, 8 + 17 * text.length, 6);
  pen.fill();
  pen.stroke();
  pen.fillStyle = colours.ink;
  text.forEach((line, i) => pen.fillText(line, at + 8, top + 23 + 17 * i));
}
