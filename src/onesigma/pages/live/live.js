// What the server sends, what the reader chooses, and the words on the page.

import { draw } from "./draw.js";
import { abstains, clock, figure, mostOf, percent, scoreOf, tidy } from "./rule.js";

const KEPT_ANSWERS = 1200;
const SHOWN_CLASSES = 8;
const SPOKEN_MS = 4000; // between two messages of the status line
const SILENT_MS = 3000; // without a frame, for sensors that send several per second
const CALM_MS = 1000; // between two pictures, if the reader asks for less motion
const $ = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

let hello = null;
const nothing = () => ({ points: [], answers: [], bad: 0, drift: "", drifting: false });
let data = nothing();
let frozen = null; // the data that a paused page shows
let rule = null;
let chosen = false; // whether the reader set the rule: that outlives a reconnection
let connection = "connecting";
let heardAt = 0;
let ended = null;
let pointer = null;

function onHello(content) {
  hello = content;
  data = nothing();
  pause(false);
  ended = null;
  connection = "waiting";
  if (!chosen) rule = { score: hello.score, threshold: hello.threshold };
  document.title = `${hello.model} – onesigma live`;
  $("model").textContent = hello.model;
  const channels = hello.channels === 1 ? "1 channel" : `${hello.channels} channels`;
  const pace = `windows of ${tidy(hello.window)} s, one every ${tidy(hello.hop)} s`;
  $("about").textContent = `${hello.source} · ${channels} · ${pace}`;
  $("reset").textContent = hello.own_rule ? "The model’s own rule" : "Reset";
  $("odd-key").hidden = !hello.guarded;
  $("answer").dataset.guarded = hello.guarded;
  makeClasses();
  showRule();
  update();
}

function onFrame(frame) {
  connection = "live";
  heardAt = performance.now();
  const shown = hello.names.length;
  frame.signal.forEach((values, i) => {
    const lows = values.slice(0, shown);
    const highs = values.length > shown ? values.slice(shown) : lows;
    data.points.push({ t: (frame.from + i + 1) * hello.point, lows, highs });
  });
  data.answers.push(...frame.answers);
  data.bad = frame.bad;
  [data.drift, data.drifting] = [frame.drift ?? "", frame.drifting ?? false];
  forget(data);
  update(frame.answers.length > 0);
}

function forget({ points, answers }) {
  const old = points.findIndex(({ t }) => t >= points.at(-1).t - 1.5 * hello.span);
  if (old > 500) points.splice(0, old); // many at a time: each time moves all the others
  if (answers.length > 1.2 * KEPT_ANSWERS) answers.splice(0, answers.length - KEPT_ANSWERS);
}

let asked = false;
let drawnAt = -Infinity;
function update(atOnce = true) {
  if (asked || !hello) return;
  if (calm.matches && !atOnce && performance.now() - drawnAt < CALM_MS) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawnAt = performance.now();
    show(frozen ?? data);
  });
}

function show({ points, answers, bad, drift, drifting }) {
  const now = Math.max(points.at(-1)?.t ?? 0, answers.at(-1)?.t ?? 0);
  draw($("chart"), { hello, points, answers, rule, now, pointer, dark: dark.matches });
  showState();
  if (answers.length) {
    showAnswer(answers.at(-1));
    showShare(answers);
  } else $("answer").dataset.act = "none";
  showFacts(now, answers, bad);
  write("drift", drift && `${drift[0].toUpperCase()}${drift.slice(1)}.`);
  $("drift").className = drifting ? "warn" : "soft";
}

function showState() {
  const silence = performance.now() - heardAt - Math.max(SILENT_MS, 3000 * hello.point);
  let state = connection;
  const connected = state !== "lost" && state !== "displaced";
  if (state === "live" && silence > 0) state = "silent";
  if (connected && ended) state = "ended";
  if (connected && frozen) state = "paused";
  const words = {
    waiting: "waiting for the stream",
    live: hello.recorded ? "playing" : "live",
    silent: "the stream is silent",
    lost: "no connection",
    displaced: "too many pages",
  };
  $("state").dataset.state = state;
  write("state", words[state] ?? state);
  $("pause").disabled = ended !== null && frozen === null;
  let trouble = "";
  if (data.bad && !data.points.length) {
    trouble = `No line could be read yet: each must hold ${hello.channels} numbers, see --columns.`;
  }
  if (ended?.reason) trouble = `The stream broke off: ${ended.reason}`;
  if (state === "lost") trouble = "onesigma was stopped. The page continues when it is back.";
  if (state === "displaced") trouble = "Too many pages are open, and the newest are served. Reload to continue here.";
  write("trouble", trouble);
  $("trouble").hidden = !trouble;
}

function showAnswer(answer) {
  const [label, probability] = answer.top[0];
  const { reason, odd } = answer;
  const unsure = abstains(answer, rule);
  const name = hello.class_names[label];
  $("answer").dataset.act = reason ? "odd" : unsure ? "no" : "yes";
  write("act", unsure ? "abstains" : "acts");
  write("label", reason || (unsure ? "unsure" : name));
  const likely = `Most likely ${name}, ${percent(probability)}.`;
  // A channel within its range breaks nothing: it is only the most unusual one.
  const told = reason === "unfamiliar" ? `Unlike all known input. Most unusual: ${odd}` : odd;
  write("sure", reason ? told : unsure ? likely : `${percent(probability)} sure.`);
  const { entropy, epistemic } = answer;
  const most = figure(hello.most);
  const novelty = hello.guarded ? `; novelty ${figure(answer.novelty)}, unfamiliar below ${hello.novel}` : "";
  write("figures", `entropy ${figure(entropy)} of at most ${most} nats; its epistemic part ${figure(epistemic)}${novelty}`);
  $("gauge-entropy").style.width = `${(100 * entropy) / hello.most}%`;
  $("gauge-epistemic").style.width = `${(100 * epistemic) / hello.most}%`;
  $("gauge-threshold").style.left = `${(100 * rule.threshold) / mostOf(rule.score, hello.most)}%`;
  showClasses(answer);
  const score = figure(scoreOf(answer, rule.score));
  if (reason) speak(`Not acted on, ${reason}: ${odd}`);
  else if (unsure) speak(`Unsure: uncertainty ${score}, threshold ${figure(rule.threshold)}. Most likely ${name}.`);
  else speak(`${name}, ${percent(probability)} sure.`);
}

function makeClasses() {
  const rows = hello.class_names.slice(0, SHOWN_CLASSES).map(() => {
    const [row, name, track, bar, value] = ["li", "span", "div", "i", "b"].map(made);
    track.append(bar);
    row.append(name, track, value);
    return row;
  });
  $("classes").replaceChildren(...rows);
}

const made = (tag) => document.createElement(tag);

// All classes in their order or, if there are many, the most probable.
function showClasses({ top }) {
  const all = hello.class_names.length <= SHOWN_CLASSES;
  const shown = all ? [...top].sort(([a], [b]) => a - b) : top;
  shown.forEach(([label, probability], place) => {
    const [name, track, value] = $("classes").children[place].children;
    $("classes").children[place].className = label === top[0][0] ? "best" : "";
    name.textContent = name.dataset.name = hello.class_names[label];
    track.firstChild.style.width = `${100 * probability}%`;
    value.textContent = percent(probability);
  });
}

// How many answers so far the threshold lets pass and, where the truth is known, how many of them are right.
function showShare(answers) {
  const acted = answers.filter((answer) => !abstains(answer, rule));
  const share = percent(acted.length / answers.length);
  let words = `Acts on ${acted.length} of ${answers.length} windows (${share}).`;
  words += oddWords(answers.map(({ reason }) => reason).filter(Boolean));
  if (hello.notes.length) {
    const [some, all] = [rightOf(acted), rightOf(answers)];
    words += ` Of the windows with one known truth it acts on ${some.known}, and ${some.right} of those are right.`;
    words += ` Without abstaining, ${all.right} of ${all.known} would be right.`;
  }
  write("share", words);
}

function oddWords(reasons) {
  const counts = [...new Set(reasons)].map((each) => `${reasons.filter((r) => r === each).length} ${each}`);
  return counts.length ? ` ${counts.join(" and ")}: it never acts on these, wherever the slider is.` : "";
}

function rightOf(answers) {
  const known = answers.filter((answer) => truth(answer) !== null);
  const right = known.filter((answer) => hello.class_names[answer.top[0][0]] === truth(answer));
  return { right: right.length, known: known.length };
}

// The truth of a whole window; null if it is unknown, or changes within the window.
function truth({ t }) {
  const at = hello.notes.findLastIndex(([begin]) => begin <= t - hello.window + 1e-6);
  const next = hello.notes[at + 1]?.[0] ?? Infinity;
  return at >= 0 && next >= t - 1e-6 ? hello.notes[at][1] : null;
}

function showFacts(now, answers, bad) {
  const times = answers.slice(-21).map(({ ms }) => ms).sort((a, b) => a - b);
  const typical = times[times.length >> 1];
  const late = !hello.recorded && typical > 1000 * hello.hop;
  write("time", clock(now));
  write("took", typical === undefined ? "–" : `${tidy(typical)} ms`);
  write("bad", String(bad));
  $("late").hidden = !late;
  $("bad").className = bad > 0 ? "warn" : "";
}

// Only where something changed: a selection stays, and a screen reader is not disturbed.
function write(id, words) {
  if ($(id).textContent !== words) $(id).textContent = words;
}

let spoken = "";
let spokenAt = -Infinity;
function speak(words) {
  if (frozen) words = "Paused.";
  else if (ended) words = `The stream has ended. Last: ${words}`;
  const gist = words.replace(/[\d.]+/g, "");
  if (gist === spoken || performance.now() - spokenAt < SPOKEN_MS) return;
  [spoken, spokenAt] = [gist, performance.now()];
  write("status", words);
}

function showRule() {
  const nats = rule.score === "confidence" ? "" : " nats";
  $("score").value = rule.score;
  $("threshold").value = String(Math.round((1000 * rule.threshold) / mostOf(rule.score, hello.most)));
  $("limit").textContent = `${figure(rule.threshold)}${nats}`;
  $("threshold").setAttribute("aria-valuetext", $("limit").textContent);
  $("confidence-key").hidden = rule.score !== "confidence";
}

function choose(changed) {
  if (!hello) return;
  chosen = changed !== null;
  rule = changed ?? { score: hello.score, threshold: hello.threshold };
  showRule();
  update();
}

function pause(wanted) {
  frozen = wanted ? { ...data, points: [...data.points], answers: [...data.answers] } : null;
  write("pause", wanted ? "Resume" : "Pause");
  $("pause").setAttribute("aria-pressed", String(wanted));
  update();
}

const sliderIn = (score) => (Number($("threshold").value) / 1000) * mostOf(score, hello.most);
$("threshold").addEventListener("input", () => choose({ ...rule, threshold: sliderIn(rule.score) }));
$("score").addEventListener("change", ({ target: { value: score } }) => choose({ score, threshold: sliderIn(score) }));
$("reset").addEventListener("click", () => choose(null));
$("pause").addEventListener("click", () => pause(frozen === null));
function point(event) {
  pointer = event.type === "pointerleave" ? null : event.offsetX;
  update();
}
// By keyboard, too: a hop at a time, from the newest answer.
function step(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by || !hello) return;
  event.preventDefault();
  const width = $("chart").clientWidth;
  pointer = Math.max(0, Math.min(width, (pointer ?? width - 50) + (by * width * hello.hop) / hello.span));
  update();
}
$("chart").addEventListener("keydown", step);
$("chart").addEventListener("blur", () => point({ type: "pointerleave" }));
for (const type of ["pointermove", "pointerdown", "pointerleave"]) $("chart").addEventListener(type, point);
new ResizeObserver(() => update()).observe($("chart"));
dark.addEventListener("change", () => update());
setInterval(update, 1000); // so that silence is noticed, too

const events = new EventSource("events");
const on = (name, act) => events.addEventListener(name, ({ data: text }) => act(JSON.parse(text)));
on("hello", onHello);
on("frame", onFrame);
on("tick", ({ bad }) => {
  data.bad = bad;
  update();
});
on("end", (content) => {
  ended = content;
  update();
});
on("displaced", () => {
  events.close(); // or it would come back and displace another
  connection = "displaced";
  update();
});
events.addEventListener("error", () => {
  connection = "lost";
  update(); // it tries again by itself
});
