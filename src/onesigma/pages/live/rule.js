// When an answer is acted on, and how its figures are written.

export const scoreOf = (answer, score) => {
  if (score !== "confidence") return answer[score];
  const confidence = answer.top[0][1];
  return confidence === null ? null : 1 - confidence;
};

export const mostOf = (score, most) => (score === "confidence" ? 1 : most);

// Without a number it does not act, nor on input that the model's guard finds odd.
export const abstains = (answer, rule) => {
  if (answer.reason) return true;
  const score = scoreOf(answer, rule.score);
  return score === null || !(score < rule.threshold);
};

// What is odd, without the figures: "channel az: flat line?"
export const gist = (odd) => odd.replace(/: .*: /, ": ");

export const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
export const figure = (value) => (value === null ? "–" : value.toFixed(2));
export const tidy = (value) => String(Number(value.toPrecision(3))).replace("-", "−");
export const clock = (seconds) =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
