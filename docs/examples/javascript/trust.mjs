// What a device checks before it answers: docs/WIRE.md, section 3, steps 1 to 6 and 8. Step 7, what
// the owner allows, is in report.mjs.
import { domainOf } from "./answers.mjs";
import { mechanismOf } from "./randomize.mjs";
import { parseConfiguration, sha256, taskId, verify } from "./seal.mjs";
import * as wire from "./wire.mjs";

const { Refusal, invalid } = wire;
const KIB = 1024;
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
const HOST =
  /^([A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}$/;

function signed(message, data, most, field, context, authorities) {
  if (data.length > most + KIB) throw new Refusal("OVERSIZE", `the ${context} is too large`);
  const envelope = wire.decode(message, data);
  if (!authorities.some((one) => one.equals(envelope.authority))) {
    throw new Refusal("FORBIDDEN", `the ${context} is by nobody who is trusted here`);
  }
  verify(envelope.authority, context, envelope[field], envelope.signature);
  if (envelope[field].length > most) throw new Refusal("OVERSIZE", `the ${context} is too large`);
  return envelope[field]; // as received: ids and signatures are over these bytes
}

/** A task that ``authorities`` signed. Throws FORBIDDEN, BAD_SIGNATURE, INVALID, OVERSIZE. */
export function trustTask(data, authorities) {
  const raw = signed(wire.SignedTask, data, 256 * KIB, "task", "task", authorities);
  const task = wire.decode(wire.Task, raw);
  const domain = domainOf(task.domain);
  checkRanges(task, domain);
  const mechanism = mechanismOf(task.mechanism, domain);
  if (task.report_size !== mechanism.reportSize || task.messages !== 1) {
    throw invalid("report_size and messages are not those of the mechanism");
  }
  return { ...task, id: taskId(raw), domain, mechanism };
}

function checkRanges(task, domain) {
  const fail = (what) => {
    throw invalid(`the task's ${what}`);
  };
  const within = (what, number, least, most) => {
    if (!(number >= least && number <= most)) fail(what);
  };
  if (task.version !== 1) fail("version is not 1");
  if (task.salt.length !== 16) fail("salt");
  if (!/^[a-z0-9][a-z0-9-]{0,63}$/.test(task.name)) fail("name");
  for (const text of [task.purpose, task.question]) {
    if (text.trim() === "" || [...text].length > 2000) fail("purpose or question");
  }
  const shown = [task.purpose, task.question, ...(domain.labels ?? []), domain.unit ?? ""];
  if (shown.some((text) => UNSAFE.test(text))) fail("texts have control characters");
  within("min_batch", task.min_batch, 2n, 200_000_000n);
  if (task.max_batch !== 0n) within("max_batch", task.max_batch, task.min_batch, 200_000_000n);
  within("honest_fraction_ppm", task.honest_fraction_ppm, 1, 1_000_000);
  if (!(task.delta > 0 && task.delta < 1)) fail("delta");
  if (!(task.target_epsilon > 0 && task.target_epsilon < Infinity)) fail("target_epsilon");
  if (task.reports_per_device !== 1) fail("reports_per_device");
  if (task.admission !== 1 || task.enrolment_key.length) fail("admission: this client is open's");
  within("suite", task.suite, 1, 3);
  if (task.aggregator !== 1) fail("aggregator: this client makes no sums");
  if (task.memoized) fail("answers are memoized, which this small client does not do");
  for (const name of ["key_authority", "shuffler_key", "analyzer_key"]) {
    if (task[name].length !== 32) fail(name);
  }
  const port = Number(task.shuffler_address.split(":").at(-1));
  if (!HOST.test(task.shuffler_address) || port < 1 || port > 65_535) fail("shuffler_address");
  if (task.shuffler_ca.length > 64 * KIB) fail("shuffler_ca");
  const { start_s, length_s, count, grace_s, skew_s } = task.windows ?? fail("windows");
  within("windows.start_s", start_s, 0n, (1n << 40n) - 1n);
  within("windows.length_s", length_s, 1n, 10n * 366n * 86_400n);
  within("windows.count", count, 1, 10_000);
  within("windows.grace_s", grace_s, 0n, 366n * 86_400n);
  within("windows.skew_s", skew_s, 0n, length_s);
  if (task.retention_s < length_s + grace_s + 3600n) fail("retention_s");
}

/** The key schedule of a trusted task. Throws as ``trustTask`` does, and MISMATCH. */
export function trustSchedule(data, task) {
  const authorities = [task.key_authority];
  const kinds = ["schedule", "key-schedule", authorities];
  const raw = signed(wire.SignedKeySchedule, data, 4096 * KIB, ...kinds);
  const schedule = wire.decode(wire.KeySchedule, raw);
  if (schedule.version !== 1) throw invalid("the key schedule's version is not 1");
  if (schedule.task_id.length !== 32 || schedule.windows.some(({ window }, i) => window !== i)) {
    throw invalid("a key schedule names its task, and lists every window once, in order");
  }
  if (!schedule.task_id.equals(task.id)) throw mismatch("is another task's");
  if (schedule.windows.length !== task.windows.count) throw mismatch("has not the task's windows");
  const parsed = new Map();
  const keyOf = (configuration) => {
    const name = configuration.toString("hex");
    if (!parsed.has(name)) parsed.set(name, parseConfiguration(configuration));
    if (parsed.get(name).suite !== task.suite) throw mismatch("has a key of another suite");
    return parsed.get(name);
  };
  const windows = schedule.windows.map((one) => ({
    analyzerKey: keyOf(one.analyzer_key),
    hopKey: keyOf(one.hop_key),
  }));
  const hops = new Set(windows.map(({ hopKey }) => hopKey));
  if (windows.some(({ analyzerKey }) => hops.has(analyzerKey))) {
    throw invalid("one key is for shuffler and analyzer both: the shuffler could open reports");
  }
  const rows = schedule.windows;
  const analyzerKeys = listed(rows.map((one) => one.analyzer_key));
  const hopKeys = listed(rows.map((one) => one.hop_key));
  verify(task.analyzer_key, "analyzer-keys", analyzerKeys, schedule.analyzer_signature);
  verify(task.shuffler_key, "hop-keys", hopKeys, schedule.hop_signature);
  return { hash: sha256(raw), windows };
}

/** What a role signs of its keys: all of them, of equal ones in a row the first. */
const listed = (keys) =>
  Buffer.concat(keys.filter((one, i) => i === 0 || !one.equals(keys[i - 1])));

const mismatch = (what) => new Refusal("MISMATCH", `the key schedule ${what}`);

/** The window of this time (Unix seconds). Throws TOO_EARLY, WINDOW_CLOSED. */
export function windowAt(task, now) {
  const { start_s, length_s, count } = task.windows;
  const window = Math.floor((now - Number(start_s)) / Number(length_s));
  if (window < 0) throw new Refusal("TOO_EARLY", "the task's first window has not begun");
  if (window >= count) throw new Refusal("WINDOW_CLOSED", "the task is over");
  return window;
}

/** When a report of this window is worth nothing any more, in Unix seconds. */
export function expiry(task, window) {
  const { start_s, length_s, grace_s, skew_s } = task.windows;
  const start = start_s + BigInt(window) * length_s;
  const kept = start + task.retention_s;
  const open = start + length_s + grace_s;
  return Number((kept > open ? kept : open) + skew_s);
}
