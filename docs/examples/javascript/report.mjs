// Answers one task: node report.mjs --task FILE --keys FILE --authority HEX --allow PURPOSE ANSWER
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Memory } from "./keep.mjs";
import { SYSTEM, word64 } from "./randomize.mjs";
import { sealFrame, sealReport } from "./seal.mjs";
import { deliver } from "./send.mjs";
import { expiry, trustSchedule, trustTask, windowAt } from "./trust.mjs";
import { Refusal, invalid } from "./wire.mjs";

const OPTIONS = {
  task: { type: "string" }, // a SignedTask
  keys: { type: "string" }, // its SignedKeySchedule
  authority: { type: "string", multiple: true, default: [] }, // whose tasks are believed
  allow: { type: "string", multiple: true, default: [] }, // purposes, word for word
  "most-epsilon0": { type: "string", default: "2" },
  "least-batch": { type: "string", default: "1000" },
  memory: { type: "string", default: "memory" }, // a folder; never delete it while tasks run
  patience: { type: "string", default: "60" }, // seconds of attempts to deliver
};
const QUEUED = 75; // exit status: run it again later, the same bytes are sent

/** Step 7 of section 3: what the device's owner allows. Throws REFUSED. */
function checkOwner(task, options) {
  const refuse = (why) => {
    throw new Refusal("REFUSED", why);
  };
  if (!options.allow.includes(task.purpose))
    refuse(`not allowed: --allow ${JSON.stringify(task.purpose)}`);
  const epsilon0 = task.mechanism.epsilon0;
  if (!(epsilon0 <= Number(options["most-epsilon0"])))
    refuse(`epsilon0 is ${epsilon0.toFixed(3)}`);
  if (!task.shuffler_ca.length) refuse("the task has no authority to know its shuffler by");
  if (task.min_batch < BigInt(options["least-batch"])) refuse(`min_batch is ${task.min_batch}`);
}

/** The report of this window, sealed and kept; the one that is kept, if there is one. */
async function reportOf(task, schedule, window, answer, memory) {
  const before = memory.report(task, window);
  if (before) return before;
  if (!task.domain.understands(answer))
    throw invalid("no answer to this question: nothing is sent");
  const cell = task.domain.cell(answer, word64(SYSTEM));
  const { analyzerKey, hopKey } = schedule.windows[window];
  const randomized = task.mechanism.randomize(cell, SYSTEM);
  const sealed = await sealReport(analyzerKey, task.id, window, randomized);
  const ackKey = randomBytes(32);
  const frame = await sealFrame(hopKey, analyzerKey, task.id, window, ackKey, sealed);
  const report = { window, state: "queued", doubtful: false, frame, ackKey };
  return memory.keep(task, report, true) ? report : memory.report(task, window);
}

async function main() {
  const { values: options, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true });
  if (!options.task || !options.keys || positionals.length !== 1) {
    throw invalid(
      "usage: node report.mjs --task FILE --keys FILE --authority HEX --allow PURPOSE ANSWER",
    );
  }
  const authorities = options.authority.map((hex) => Buffer.from(hex, "hex"));
  const task = trustTask(readFileSync(options.task), authorities);
  const schedule = trustSchedule(readFileSync(options.keys), task);
  const memory = new Memory(options.memory);
  memory.checkSchedule(task, schedule);
  checkOwner(task, options);
  const window = windowAt(task, Date.now() / 1000);
  const report = await reportOf(task, schedule, window, positionals[0], memory);
  const until = Math.min(
    Date.now() + Number(options.patience) * 1000,
    expiry(task, window) * 1000,
  );
  const { state, name } =
    report.state === "queued"
      ? await deliver(task, report, until, (changed) => memory.keep(task, changed))
      : { state: report.state };
  const said = {
    stored: "delivered, the shuffler has it on disk",
    queued: "not delivered yet: run this again, the same bytes are sent",
    refused: "refused for good, it is not counted",
    unknown: "refused for good after a doubtful attempt: counted once, or not at all",
  };
  console.log(`task ${task.name}, window ${window}: ${said[state]}${name ? ` (${name})` : ""}`);
  return state === "stored" ? 0 : state === "queued" ? QUEUED : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof Refusal) && !error.code) throw error;
  console.error(error instanceof Refusal ? `${error.kind}: ${error.message}` : error.message);
  process.exitCode = 1;
}
