// Submitting a frame over gRPC: docs/WIRE.md, section 8. A report is sealed once; failures are
// answered by sending the identical bytes again, later.
import * as grpc from "@grpc/grpc-js";
import { randomInt } from "node:crypto";
import { verifyReceipt } from "./seal.mjs";
import { Refusal, SubmitReply, bytesField, decode } from "./wire.mjs";

const KINDS = (
  "INVALID UNKNOWN_TASK UNKNOWN_KEY TOO_EARLY WINDOW_CLOSED WINDOW_FULL OVERLOADED OVERSIZE " +
  "UNAVAILABLE DEADLINE UNAUTHENTICATED FORBIDDEN BAD_SIGNATURE CONFLICT"
).split(" ");
const DROP = new Set([1, 5, 6, 8, 11, 12, 14]); // never send this frame again; all others: later
const NOT_STORED = new Set([...DROP, 2, 3, 4, 7]); // says that this attempt left nothing behind
const DEADLINE_S = 60;

/** What one attempt came to: "stored", "drop" or "retry"; and whether it may have been stored. */
async function attempt(client, report) {
  const { answer, error } = await new Promise((done) => {
    client.makeUnaryRequest(
      "/shoal.v1.Ingress/Submit",
      (request) => request,
      (reply) => reply,
      bytesField(1, report.frame),
      new grpc.Metadata(),
      { deadline: Date.now() + DEADLINE_S * 1000 },
      (error, answer) => done({ answer, error }),
    );
  });
  if (error) {
    // Without the kind's number the shuffler has not spoken: a proxy, or gRPC itself.
    const kind = Number(error.metadata?.get("shoal-kind")[0] ?? 0);
    const wait = Number(error.metadata?.get("grpc-retry-pushback-ms")[0] ?? 0) / 1000;
    const name = KINDS[kind - 1] ?? grpc.status[error.code];
    const verdict = DROP.has(kind) ? "drop" : "retry";
    return { verdict, name, wait: wait > 0 ? wait : 0, open: !NOT_STORED.has(kind) };
  }
  try {
    verifyReceipt(report.ackKey, 0, report.frame, decode(SubmitReply, answer).mac);
    return { verdict: "stored" };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { verdict: "retry", name: error.kind, wait: 0, open: true };
  }
}

/**
 * Sends until the shuffler has it on disk, refuses it for good, or ``until`` (in ms) is over.
 * ``keep(report)`` is told of every change, before the next attempt. Returns the report's state:
 * "stored", "queued", "refused" (it is not counted) or "unknown" (counted once, or not at all).
 */
export async function deliver(task, report, until, keep) {
  const client = new grpc.Client(
    `dns:///${task.shuffler_address}`,
    grpc.credentials.createSsl(task.shuffler_ca), // PEM; the name in the certificate is checked
    { "grpc.enable_retries": 0, "grpc.max_receive_message_length": 64 * 1024 },
  );
  try {
    for (let attempts = 1; ; attempts += 1) {
      const { verdict, name, wait, open } = await attempt(client, report);
      report.doubtful ||= open ?? false;
      if (verdict === "stored") report.state = "stored";
      else if (verdict === "drop") report.state = report.doubtful ? "unknown" : "refused";
      keep(report);
      if (verdict !== "retry") return { state: report.state, name };
      const most = Math.min(3600, 2 ** (attempts - 1));
      const asked = Math.min(3600, wait) * (1 + randomInt(250) / 1000);
      const pause = Math.max(asked, (most * randomInt(1000)) / 1000) * 1000;
      if (Date.now() + pause >= until) return { state: "queued", name };
      await new Promise((done) => setTimeout(done, pause));
    }
  } finally {
    client.close();
  }
}
