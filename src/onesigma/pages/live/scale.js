// The vertical scale of a lane.

import { tidy } from "./rule.js";

export function rangeOf(points, lane) {
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

export function drawScale({ pen, colours, left, right }, lane, low, high) {
  pen.fillStyle = colours.bar;
  pen.fillRect(left, lane.bottom, right - left, 1);
  pen.fillStyle = colours.soft;
  pen.textAlign = "right";
  pen.fillText(tidy(high), left - 6, lane.top + 9);
  pen.fillText(tidy(low), left - 6, lane.bottom);
  pen.textAlign = "left";
}
