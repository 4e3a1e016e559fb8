// From a cell to a report: docs/WIRE.md, section 5, for binary_rr, krr and kmean. All probabilities
// are integers out of 2^64, so there is no floating point here but in epsilon0, which only a person
// or a policy looks at.
import { randomBytes } from "node:crypto";
import { invalid } from "./wire.mjs";

const WORDS = 1n << 64n;

/** Uniform bytes of the operating system; ``replay`` (below) takes its place in the vectors. */
export const SYSTEM = { bytes: (count) => randomBytes(count) };

/** A source that gives bytes that were written down, in order. */
export function replay(data) {
  let at = 0;
  return {
    bytes: (count) => data.subarray(at, (at += count)),
    done: () => at === data.length,
  };
}

export const word64 = (entropy) => entropy.bytes(8).readBigUInt64LE();

/** Uniform on 0 .. bound - 1, without bias: words that would favour some cells are drawn again. */
function below(bound, entropy) {
  for (;;) {
    const product = BigInt(entropy.bytes(4).readUInt32LE()) * bound;
    if (BigInt.asUintN(32, product) >= (1n << 32n) % bound) return product >> 32n;
  }
}

function reportOf(cell, cells) {
  const report = Buffer.alloc(cells <= 256n ? 1 : cells <= 65_536n ? 2 : 4);
  report.writeUIntBE(Number(cell), 0, report.length);
  return report;
}

/** ln(a / b) for a > b > 0, a hair too large rather than too small. */
function logRatio(a, b) {
  const scaled = Number((a << 128n) / b) / 2 ** 128;
  return Math.log(scaled) * (1 + 1e-12) + 1e-12;
}

/**
 * The randomizer that a task names, for a domain: ``reportSize``, ``epsilon0`` (what
 * one report tells about its answer at most, whoever works together), ``randomize(cell, entropy)``.
 * ``weights(value)``: the probability of each report, as integers. Throws INVALID.
 */
export function mechanismOf(message, domain) {
  const names = message.parameters.map(({ name }) => name);
  if (names.some((name, i) => i > 0 && name <= names[i - 1]))
    throw invalid("parameters are sorted");
  const given = Object.fromEntries(message.parameters.map(({ name, value }) => [name, value]));
  const make = {
    binary_rr: domain.kind === "yes_no" ? binary : null,
    krr: domain.kind === "words" ? null : kary,
    kmean: domain.kind === "numeric" ? kary : null,
  }[message.name];
  if (!make) throw invalid("this client knows binary_rr, krr and kmean, each for its domains");
  return make(given, names.join(), domain.size);
}

function binary({ yes_if_no: no, yes_if_yes: yes }, names) {
  if (names !== "yes_if_no,yes_if_yes" || !(0n < no && no < yes && yes < WORDS)) {
    throw invalid("binary_rr wants 0 < yes_if_no < yes_if_yes < 2^64");
  }
  return {
    reportSize: 1,
    epsilon0: Math.max(logRatio(yes, no), logRatio(WORDS - no, WORDS - yes)),
    randomize: (cell, entropy) => {
      const word = word64(entropy);
      const chance = cell === 1n ? yes : no;
      return reportOf(word < chance ? 1n : 0n, 2n);
    },
    weights: (cell) => (cell === 1n ? [WORDS - yes, yes] : [WORDS - no, no]),
    reportOf: (cell) => reportOf(cell, 2n),
  };
}

function kary({ k, uniform }, names, cells) {
  if (names !== "k,uniform" || k !== cells || !(1n <= uniform && uniform < WORDS)) {
    throw invalid("krr wants k = the number of cells, and 1 <= uniform < 2^64");
  }
  const same = k * (WORDS - uniform) + uniform; // out of k * 2^64
  return {
    reportSize: reportOf(0n, k).length,
    epsilon0: logRatio(same, uniform),
    randomize: (cell, entropy) => {
      const coin = word64(entropy) < uniform;
      const other = below(k, entropy); // drawn for every answer: the time tells nothing
      return reportOf(coin ? other : cell, k);
    },
    weights: (cell) =>
      Array.from({ length: Number(k) }, (_, i) => (BigInt(i) === cell ? same : uniform)),
    reportOf: (cell) => reportOf(cell, k),
  };
}
