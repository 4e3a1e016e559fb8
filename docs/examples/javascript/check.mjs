// Replays Shoal's own test vectors (docs/WIRE.md, section 16): node check.mjs [FOLDER]
import { deepStrictEqual as same } from "node:assert";
import * as crypto from "node:crypto";
import { readFileSync } from "node:fs";
import * as path from "node:path";
import { domainOf } from "./answers.mjs";
import { mechanismOf, replay } from "./randomize.mjs";
import * as seal from "./seal.mjs";
import { trustSchedule, trustTask } from "./trust.mjs";
import { Domain, Refusal, decode } from "./wire.mjs";

const folder = process.argv[2] ?? path.join(import.meta.dirname, "../../../tests/vectors");
const read = (name) => JSON.parse(readFileSync(path.join(folder, name), "utf8"));
const hex = (text) => Buffer.from(text, "hex");
const vectors = read("shoal_wire_v1.json");
const MECHANISMS = ["binary_rr", "krr", "kmean"];

const domain = (entry) => domainOf(decode(Domain, hex(entry.domain)));

/** What our decoder would have made of a mechanism with these parameters (decimal text). */
const mechanism = (entry, of) => {
  const parameters = Object.entries(entry.parameters).map(([name, value]) => [
    name,
    BigInt(value),
  ]);
  const sorted = parameters.sort().map(([name, value]) => ({ name, value }));
  return mechanismOf({ name: entry.name, parameters: sorted }, of);
};

const CHECKS = {
  async keys() {
    for (const entry of vectors.keys) {
      same((await publicOf(entry)).toString("hex"), entry.public_key);
      const parsed = seal.parseConfiguration(hex(entry.configuration));
      same([parsed.suite, parsed.publicKey.toString("hex")], [entry.suite, entry.public_key]);
      same(parsed.id.toString("hex"), entry.key_id);
    }
    return vectors.keys.length;
  },

  // What others sealed opens with our library's keys, and so does what we seal.
  async reports() {
    for (const entry of vectors.reports) {
      const keys = vectors.keys.find(
        (one) => one.suite === entry.suite && one.role === "analyzer",
      );
      const key = seal.parseConfiguration(hex(keys.configuration));
      const [id, report] = [hex(entry.task_id), hex(entry.report)];
      const info = seal.reportInfo(id, entry.window, key.id);
      same(info.toString("hex"), entry.info);
      for (const sealed of [
        hex(entry.sealed),
        await seal.sealReport(key, id, entry.window, report),
      ]) {
        const opened = await open(keys, info, sealed);
        same(opened.subarray(16), report);
        same(sealed.length, entry.sealed.length / 2);
      }
    }
    return vectors.reports.length;
  },

  async frames() {
    const alone = [...vectors.frames, ...vectors.borders].filter(
      ({ hop, sealed, admission }) => !hop && sealed.length === 1 && !admission,
    );
    for (const entry of alone) {
      const keys = vectors.keys.find((one) => one.suite === entry.suite && one.role === "hop");
      const hop = seal.parseConfiguration(hex(keys.configuration));
      const analyzer = { id: hex(entry.analyzer_key_id) };
      const fields = [hex(entry.task_id), entry.window, hex(entry.ack_key), hex(entry.sealed[0])];
      const made = await seal.sealFrame(hop, analyzer, ...fields);
      same(seal.hopInfo(hop.id).toString("hex"), entry.info);
      same(made.length, entry.frame.length / 2);
      const header = 11;
      same(made.subarray(0, header), hex(entry.frame).subarray(0, header));
      const [ours, theirs] = [made, hex(entry.frame)].map((one) =>
        open(keys, hex(entry.info), one.subarray(header)),
      );
      same(await ours, await theirs); // the same payload, byte for byte
    }
    return alone.length;
  },

  receipts() {
    for (const { ack_key: key, frame, receipts } of vectors.frames) {
      for (const { status, mac } of receipts) {
        same(seal.receiptOf(hex(key), status, hex(frame)).toString("hex"), mac);
        seal.verifyReceipt(hex(key), status, hex(frame), hex(mac));
      }
    }
    return vectors.frames.length;
  },

  signatures() {
    for (const { public_key: key, context, data, signature } of vectors.signatures) {
      seal.verify(hex(key), context, hex(data), hex(signature));
    }
    return vectors.signatures.length;
  },

  documents() {
    const entry = vectors.documents;
    const task = trustTask(hex(entry.signed_task), [hex(entry.authority)]);
    const schedule = trustSchedule(hex(entry.signed_schedule), task);
    same(task.id.toString("hex"), entry.task_id);
    same(schedule.hash.toString("hex"), entry.schedule_hash);
    const ids = (role) => schedule.windows.map((window) => window[role].id.toString("hex"));
    same(ids("analyzerKey"), entry.analyzer_key_ids);
    same(ids("hopKey"), entry.hop_key_ids);
    return 1;
  },

  domains() {
    let cases = 0;
    for (const entry of vectors.domains) {
      const one = domain(entry);
      if (one.labels) same(one.labels, entry.labels);
      for (const said of entry.cells) {
        same(one.cell(valueOf(said), 0n).toString(), said.cell, JSON.stringify(said));
        cases += 1;
      }
    }
    return cases;
  },

  // The law in whole numbers, and the report's bytes for the cells 0, 1 and k - 1.
  laws() {
    const known = vectors.mechanisms.filter(({ name }) => MECHANISMS.includes(name));
    for (const entry of known) {
      const of = domain(entry);
      const { reportSize, weights, reportOf } = mechanism(entry, of);
      same(reportSize, entry.report_size);
      const cells = [0n, 1n, of.size - 1n];
      same(
        cells.map((cell) => reportOf(cell).toString("hex")),
        entry.reports,
      );
      const { rows, same: own, other } = entry.weights;
      for (const [at, cell] of [0n, 1n].entries()) {
        const wanted = rows?.[at] ?? weights(cell).map((_, i) => (i === at ? own : other));
        same(weights(cell).map(String), wanted);
      }
    }
    return known.length;
  },

  // From random bytes that are written down to the report that is written down.
  mechanisms() {
    let cases = 0;
    for (const name of MECHANISMS) {
      for (const entry of read(`mechanisms/${name}.json`).cases) {
        const kind = name === "binary_rr" ? "yes_no" : "numeric";
        const one = mechanism({ ...entry, name }, { kind, size: BigInt(entry.cells) });
        for (const { cell, entropy, report } of entry.reports) {
          const source = replay(hex(entropy));
          same([one.randomize(BigInt(cell), source).toString("hex")], report);
          same(source.done(), true);
          cases += 1;
        }
      }
    }
    return cases;
  },

  refused() {
    const refuse = vectors.refuse;
    const tries = [
      [refuse.configurations, (one) => seal.parseConfiguration(hex(one.configuration))],
      [
        refuse.signatures,
        (one) => seal.verify(hex(one.public_key), one.context, hex(one.data), hex(one.signature)),
      ],
      [
        refuse.receipts,
        (one) => seal.verifyReceipt(hex(one.ack_key), one.status, hex(one.frame), hex(one.mac)),
      ],
      [
        refuse.documents,
        (one) =>
          trustSchedule(
            hex(one.signed_schedule),
            trustTask(hex(one.signed_task), [hex(one.authority)]),
          ),
      ],
    ];
    for (const [entries, attempt] of tries) {
      for (const entry of entries)
        same(
          kindOf(() => attempt(entry)),
          entry.kind,
          entry.name,
        );
    }
    return tries.reduce((count, [entries]) => count + entries.length, 0);
  },
};

function kindOf(attempt) {
  try {
    attempt();
  } catch (error) {
    if (error instanceof Refusal) return error.kind;
    throw error;
  }
  return "accepted";
}

/** Whole numbers are decimal text, doubles their eight bytes: JSON has one kind of number. */
function valueOf({ value, text, integer, double }) {
  if (integer !== undefined) return BigInt(integer);
  if (double !== undefined) return hex(double).readDoubleBE();
  return text ?? value ?? null;
}

/** The public key of a private one: a hybrid's is a seed, an X25519 key wants DER around it. */
async function publicOf({ suite, private_key: secret }) {
  if (suite === 3) {
    const kem = seal.hpke(suite).kem;
    const { publicKey } = await kem.generateKeyPairDerand(Uint8Array.from(hex(secret)));
    return Buffer.from(await kem.serializePublicKey(publicKey));
  }
  const der = hex(`302e020100300506032b656e04220420${secret}`);
  const key = crypto.createPublicKey(
    crypto.createPrivateKey({ key: der, format: "der", type: "pkcs8" }),
  );
  return Buffer.from(key.export({ format: "jwk" }).x, "base64url");
}

async function open(keys, info, sealed) {
  const suite = seal.hpke(keys.suite);
  const recipientKey = await suite.kem.deserializePrivateKey(seal.bytes(hex(keys.private_key)));
  const { enc: length } = seal.SUITES[keys.suite];
  const [enc, ct] = [sealed.subarray(0, length), sealed.subarray(length)].map(seal.bytes);
  return Buffer.from(await suite.open({ recipientKey, enc, info: seal.bytes(info) }, ct));
}

for (const [name, check] of Object.entries(CHECKS)) console.log(`${name}: ${await check()} agree`);
