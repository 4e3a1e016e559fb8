// From an answer to a cell: docs/WIRE.md, section 4. An answer is nothing (null), a truth value, a
// whole number (BigInt), a double (Number) or a text. The text of a double is ECMAScript's.
import { createHash } from "node:crypto";
import { invalid } from "./wire.mjs";

const BLANKS = "\t\n\v\f\r ";
const NUMBER = /^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;
const MOST_CHARS = 1000;
const MOST_BITS = 3300;

/** Not trim(), which takes away the blanks of all of Unicode. */
function stripped(text) {
  let [from, to] = [0, text.length];
  while (from < to && BLANKS.includes(text[from])) from += 1;
  while (to > from && BLANKS.includes(text[to - 1])) to -= 1;
  return text.slice(from, to);
}

/** A BigInt, exactly, or the nearest double; null for what is no number. */
export function numberOf(value) {
  if (typeof value === "bigint") return value;
  if (typeof value === "boolean") return value ? 1n : 0n;
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value !== "string") return null;
  const text = stripped(value);
  const match = text.length <= MOST_CHARS ? NUMBER.exec(text) : null;
  if (match === null) return null;
  if (match[1] === undefined && match[2] === undefined) {
    return text[0] === "-" ? -BigInt(text.slice(1)) : BigInt(text.replace("+", ""));
  }
  const number = Number(text);
  return Number.isFinite(number) ? number : null;
}

/** The text of a value, without the blanks around it; null for what has none. */
export function textOf(value) {
  if (typeof value === "string") return stripped(value);
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value === "bigint") {
    return (value < 0n ? -value : value).toString(2).length <= MOST_BITS ? value.toString() : null;
  }
  return typeof value === "number" && Number.isFinite(value) ? String(value) : null;
}

const lower = (text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase()); // ASCII's alone

function yesOrNo(value) {
  const text = lower(textOf(value) ?? "");
  if (["yes", "true", "1"].includes(text)) return true;
  return ["no", "false", "0"].includes(text) ? false : null;
}

function firstBits(label, text) {
  const digest = createHash("sha256").update(label).update(text).digest();
  return digest.readBigUInt64BE() >> 2n;
}

const NO_WORD = firstBits("shoal no word 1", "");

/** The domain of a decoded task, with its labels and its cells. Throws INVALID. */
export function domainOf(message) {
  const kinds = Object.entries(message ?? {}).filter(([, value]) => value !== null);
  if (kinds.length !== 1) throw invalid("a task has one domain");
  const [kind, value] = kinds[0];
  return { yes_no: yesNo, categories, numeric, words }[kind](value);
}

// A domain: ``size`` (BigInt), ``labels``, ``cell(answer, word)`` (BigInt) with one random 64-bit
// word, of which numbers between two levels are rounded, and ``understands(answer)``.

const yesNo = () => ({
  kind: "yes_no",
  size: 2n,
  labels: ["no", "yes"],
  cell: (answer) => (yesOrNo(answer) ? 1n : 0n),
  understands: (answer) => yesOrNo(answer) !== null,
});

function checkLabels(labels, least) {
  const fine = (label) => label !== "" && [...label].length <= 64 && label === stripped(label);
  const distinct = new Set(labels).size === labels.length;
  if (labels.length < least || labels.length > 65_535 || !distinct || !labels.every(fine)) {
    throw invalid("labels are distinct, not too many, not too long, and without blanks around");
  }
  if (labels.includes("no answer")) throw invalid('"no answer" is a cell by itself');
}

function categories({ labels, lower_bounds: bounds }) {
  checkLabels(labels, 2);
  const rising = bounds.every((bound, i) => i === 0 || bound > bounds[i - 1]);
  if (bounds.length && (bounds.length !== labels.length || !rising)) {
    throw invalid("lower bounds rise, one for each label");
  }
  const noAnswer = BigInt(labels.length);
  const cell = (answer) => {
    if (bounds.length) {
      const number = numberOf(answer); // BigInt and Number are compared exactly
      if (number === null || number < bounds[0]) return noAnswer;
      return BigInt(bounds.findLastIndex((bound) => bound <= number));
    }
    const place = labels.indexOf(textOf(answer));
    return place < 0 ? noAnswer : BigInt(place);
  };
  const understands = (answer) => cell(answer) !== noAnswer;
  return {
    kind: "categories",
    size: noAnswer + 1n,
    labels: [...labels, "no answer"],
    cell,
    understands,
  };
}

function numeric({ low, high, levels, clip, unit }) {
  const step = (high - low) / (levels - 1);
  const finite = [low, high, step].every(Number.isFinite);
  if (!finite || low >= high || levels < 2 || levels > 65_535 || [...unit].length > 64) {
    throw invalid("a numeric domain wants low < high and 2 to 65,535 levels");
  }
  const noAnswer = BigInt(levels);
  const understands = (answer) => {
    const number = numberOf(answer);
    return number !== null && (clip || (number >= low && number <= high));
  };
  const cell = (answer, word) => {
    const number = numberOf(answer);
    if (!understands(answer)) return noAnswer;
    const clipped = number < low ? low : number > high ? high : Number(number);
    const place = (clipped - low) / step;
    const below = Math.min(Math.floor(place), levels - 1);
    const up = word < BigInt(Math.floor((place - below) * 2 ** 64));
    return BigInt(Math.min(below + (up ? 1 : 0), levels - 1));
  };
  // The labels of levels are for people, and no part of the protocol.
  return { kind: "numeric", size: noAnswer + 1n, labels: null, cell, understands };
}

function words({ labels }) {
  checkLabels(labels, 1);
  if (labels.some((label) => label.normalize("NFC") !== label)) throw invalid("words are in NFC");
  const cell = (answer) => {
    const text = textOf(answer);
    if (text === null || text === "" || !text.isWellFormed()) return NO_WORD;
    return firstBits("shoal word 1", text.normalize("NFC"));
  };
  const understands = (answer) => cell(answer) !== NO_WORD;
  return { kind: "words", size: 1n << 62n, labels: [...labels, "no answer"], cell, understands };
}
