// What a device must remember: the key schedule that it saw first for a task, and the sealed report
// of each window, from before its first byte leaves. A folder of small files, readable by its user
// alone. The true answer is not among them.
import * as fs from "node:fs";
import * as path from "node:path";
import { Refusal } from "./wire.mjs";

export class Memory {
  constructor(folder) {
    fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.folder = folder;
  }

  /** The text that is kept under this name; null if there is none. */
  #read(name) {
    try {
      return fs.readFileSync(path.join(this.folder, name), "utf8");
    } catch (error) {
      if (error.code === "ENOENT") return null;
      throw error;
    }
  }

  /** Durable, and all or nothing. ``fresh``: only if there is none; whether it was written. */
  #write(name, text, fresh = false) {
    const staged = path.join(this.folder, `.${name}.${process.pid}`);
    fs.writeFileSync(staged, text, { mode: 0o600, flush: true });
    try {
      const place = path.join(this.folder, name);
      if (fresh) fs.linkSync(staged, place);
      else fs.renameSync(staged, place);
    } catch (error) {
      if (fresh && error.code === "EEXIST") return false;
      throw error;
    } finally {
      fs.rmSync(staged, { force: true });
    }
    const folder = fs.openSync(this.folder, "r");
    fs.fsyncSync(folder);
    fs.closeSync(folder);
    return true;
  }

  /**
   * Throws CONFLICT if another schedule was ever seen: one of the two was made to tell devices
   * apart, and nothing of this task is sent any more.
   */
  checkSchedule(task, schedule) {
    const name = `${task.id.toString("hex")}.schedule`;
    const hash = schedule.hash.toString("hex");
    if (this.#write(name, hash, true) || this.#read(name) === hash) return;
    this.#write(name, "two schedules");
    throw new Refusal("CONFLICT", "a second key schedule for this task: answer it no more");
  }

  /** {window, state, frame, ackKey, doubtful}; null if nothing was answered in this window. */
  report(task, window) {
    const text = this.#read(`${task.id.toString("hex")}-${window}.json`);
    if (text === null) return null;
    const kept = JSON.parse(text);
    const [frame, ackKey] = [kept.frame, kept.ackKey].map((hex) => Buffer.from(hex, "hex"));
    return { ...kept, frame, ackKey };
  }

  /** Writes it. ``fresh``: the first one of its window; false if there is one already. */
  keep(task, report, fresh = false) {
    const { window, state, doubtful } = report;
    const [frame, ackKey] = [report.frame, report.ackKey].map((data) => data.toString("hex"));
    const text = JSON.stringify({ window, state, doubtful, frame, ackKey });
    return this.#write(`${task.id.toString("hex")}-${window}.json`, text, fresh);
  }
}
