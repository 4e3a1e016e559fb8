// Protocol Buffers, as much of it as Shoal's messages need. Libraries skip fields that they do not
// know; a device must refuse them (docs/WIRE.md, section 3), so the few lines are written out here.

/** What is refused, and as which kind of section 8: "INVALID", "BAD_SIGNATURE", ... */
export class Refusal extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

export const invalid = (message) => new Refusal("INVALID", message);

// A message is {number: [name, type]}. A type is a scalar's name, another message, or [type] for a
// repeated field. Whole numbers of 64 bits are BigInt, those of 32 bits are Number.
const YesNo = {};
const Categories = { 1: ["labels", ["string"]], 2: ["lower_bounds", ["sint64"]] };
const Numeric = {
  1: ["low", "double"],
  2: ["high", "double"],
  3: ["levels", "uint32"],
  4: ["clip", "bool"],
  5: ["unit", "string"],
};
const Words = { 1: ["labels", ["string"]] };
export const Domain = {
  1: ["yes_no", YesNo],
  2: ["categories", Categories],
  3: ["numeric", Numeric],
  5: ["words", Words],
};
const Parameter = { 1: ["name", "string"], 2: ["value", "uint64"] };
const Mechanism = { 1: ["name", "string"], 2: ["parameters", [Parameter]] };
const Windows = {
  1: ["start_s", "int64"],
  2: ["length_s", "uint64"],
  3: ["count", "uint32"],
  4: ["grace_s", "uint64"],
  5: ["skew_s", "uint64"],
};
// Without ``pairwise`` and the domain ``vector``: sums by secure aggregation are another matter
// (sections 12, 13), and a task that has them is refused here like any that is not understood.
export const Task = {
  1: ["version", "uint32"],
  2: ["salt", "bytes"],
  3: ["name", "string"],
  4: ["purpose", "string"],
  5: ["question", "string"],
  6: ["domain", Domain],
  7: ["mechanism", Mechanism],
  8: ["windows", Windows],
  9: ["min_batch", "uint64"],
  10: ["max_batch", "uint64"],
  11: ["honest_fraction_ppm", "uint32"],
  12: ["delta", "double"],
  13: ["target_epsilon", "double"],
  14: ["reports_per_device", "uint32"],
  15: ["admission", "uint32"],
  16: ["suite", "uint32"],
  17: ["aggregator", "uint32"],
  18: ["key_authority", "bytes"],
  19: ["shuffler_key", "bytes"],
  20: ["analyzer_key", "bytes"],
  21: ["shuffler_address", "string"],
  22: ["shuffler_ca", "bytes"],
  23: ["retention_s", "uint64"],
  24: ["report_size", "uint32"],
  25: ["messages", "uint32"],
  27: ["enrolment_key", "bytes"],
  28: ["memoized", "bool"],
};
export const SignedTask = {
  1: ["task", "bytes"],
  2: ["authority", "bytes"],
  3: ["signature", "bytes"],
};
const WindowKeys = {
  1: ["window", "uint32"],
  2: ["analyzer_key", "bytes"],
  3: ["hop_key", "bytes"],
};
export const SignedKeySchedule = {
  1: ["schedule", "bytes"],
  2: ["authority", "bytes"],
  3: ["signature", "bytes"],
};
export const KeySchedule = {
  1: ["version", "uint32"],
  2: ["task_id", "bytes"],
  3: ["windows", [WindowKeys]],
  4: ["analyzer_signature", "bytes"],
  5: ["hop_signature", "bytes"],
};
export const SubmitReply = { 1: ["mac", "bytes"] };

const WIRE_TYPE = { double: 1, fixed32: 5, bytes: 2, string: 2 }; // messages: 2, all others: 0
const ABSENT = {
  ...{ uint32: 0, fixed32: 0, double: 0, uint64: 0n, int64: 0n, sint64: 0n },
  ...{ bool: false, string: "", bytes: Buffer.alloc(0) },
};

/** A message as an object; every field is there, repeated ones as arrays. Throws INVALID. */
export function decode(message, data) {
  const found = {};
  for (const [name, type] of Object.values(message)) {
    found[name] = Array.isArray(type) ? [] : typeof type === "object" ? null : ABSENT[type];
  }
  const seen = new Set();
  const reader = new Reader(data);
  while (!reader.done) {
    const key = reader.varint();
    const [number, wire] = [Number(key >> 3n), Number(key & 7n)];
    if (!(number in message))
      throw invalid("a field that version 1 does not know: update this client");
    const [name, type] = message[number];
    const [repeated, one] = Array.isArray(type) ? [true, type[0]] : [false, type];
    const wanted = typeof one === "object" ? 2 : (WIRE_TYPE[one] ?? 0);
    if (repeated) {
      if (wanted !== 2 && wire === 2) {
        const packed = new Reader(reader.bytes()); // numbers, one after the other
        while (!packed.done) found[name].push(packed.value(one));
        continue;
      }
    } else if (seen.has(number)) throw invalid("a field stands there twice");
    if (wire !== wanted) throw invalid("a field of another type");
    seen.add(number);
    const value = typeof one === "object" ? decode(one, reader.bytes()) : reader.value(one);
    if (repeated) found[name].push(value);
    else found[name] = value;
  }
  return found;
}

class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  get done() {
    return this.at === this.data.length;
  }

  take(count) {
    if (count > this.data.length - this.at) throw invalid("a message that is cut");
    this.at += count;
    return this.data.subarray(this.at - count, this.at);
  }

  /** BigInt below 2^64. */
  varint() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = BigInt(this.take(1)[0]);
      value |= (byte & 127n) << shift;
      if (byte < 128n) {
        if (value >> 64n) break;
        return value;
      }
    }
    throw invalid("a number of more than 64 bits");
  }

  bytes() {
    return this.take(Number(this.varint()));
  }

  value(type) {
    if (type === "double") return this.take(8).readDoubleLE();
    if (type === "fixed32") return this.take(4).readUInt32LE();
    if (type === "bytes") return this.bytes();
    if (type === "string") {
      try {
        return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes());
      } catch (error) {
        throw error instanceof Refusal ? error : invalid("a text that is no UTF-8");
      }
    }
    const number = this.varint();
    if (type === "uint64") return number;
    if (type === "int64") return BigInt.asIntN(64, number);
    if (type === "sint64") return (number >> 1n) ^ -(number & 1n);
    if (type === "bool") return number !== 0n;
    if (number >> 32n) throw invalid("a number of more than 32 bits");
    return Number(number);
  }
}

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push(number % 128 | 128);
  return Buffer.from([...bytes, number]);
}

/** One field of bytes, with its tag and its length. */
export const bytesField = (number, data) =>
  Buffer.concat([varint(number * 8 + 2), varint(data.length), data]);

/** One field of type fixed32. */
export function fixed32Field(number, value) {
  const field = Buffer.alloc(5, number * 8 + 5);
  field.writeUInt32LE(value, 1);
  return field;
}
