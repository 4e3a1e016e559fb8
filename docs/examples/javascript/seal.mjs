// Ids, signatures, HPKE and receipts: docs/WIRE.md, sections 1, 2, 6, 7 and 8.
import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { XWing } from "@hpke/hybridkem-x-wing";
import * as crypto from "node:crypto";
import { Refusal, bytesField, fixed32Field, invalid } from "./wire.mjs";

export const sha256 = (...parts) => {
  const hash = crypto.createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};

export const taskId = (task) => sha256("shoal/v1/task\0", task);

const key = (curve, raw, secret) => {
  const d = secret ? { d: secret.toString("base64url") } : {};
  const jwk = { kty: "OKP", crv: curve, x: raw.toString("base64url"), ...d };
  return { key: jwk, format: "jwk" };
};

/** Returns if this is the key's signature; otherwise throws BAD_SIGNATURE. */
export function verify(publicKey, context, data, signature) {
  const input = Buffer.concat([Buffer.from(`shoal/v1/sign/${context}\0`), data]);
  let fits = false;
  try {
    fits = crypto.verify(
      null,
      input,
      crypto.createPublicKey(key("Ed25519", publicKey)),
      signature,
    );
  } catch {
    // a key or a signature of another length
  }
  if (!fits) throw new Refusal("BAD_SIGNATURE", `the ${context} signature does not verify`);
}

// Lengths in bytes. A ``kem`` is made anew each time: it keeps what belongs to one key.
const X25519 = { kem: 0x0020, key: 32, enc: 32, make: () => new DhkemX25519HkdfSha256() };
const HYBRID = { kem: 0x647a, key: 1216, enc: 1120, make: () => new XWing() };
export const SUITES = {
  1: { ...X25519, aead: 0x0001, cipher: () => new Aes128Gcm() },
  2: { ...X25519, aead: 0x0003, cipher: () => new Chacha20Poly1305() },
  3: { ...HYBRID, aead: 0x0001, cipher: () => new Aes128Gcm() },
};
const TAG = 16;
const PRIME = 2n ** 255n - 19n;
const MODULUS = 3329; // of ML-KEM

export const hpke = (suite) =>
  new CipherSuite({
    kem: SUITES[suite].make(),
    kdf: new HkdfSha256(),
    aead: SUITES[suite].cipher(),
  });

/** A public key configuration: ``suite``, ``publicKey``, ``id``. Throws INVALID. */
export function parseConfiguration(raw) {
  const ids = raw.length >= 6 ? [0, 2, 4].map((at) => raw.readUInt16BE(at)) : [];
  const fits = ([, { kem, aead }]) => kem === ids[0] && ids[1] === 0x0001 && aead === ids[2];
  const found = Object.entries(SUITES).find(fits);
  if (!found) throw invalid("a key of no known suite");
  const publicKey = raw.subarray(6);
  const [suite, { key: length }] = found;
  if (publicKey.length !== length) throw invalid("a key of another length");
  checkPoint(publicKey.subarray(-32));
  if (length > 32 && !latticeFits(publicKey.subarray(0, 1152))) throw invalid("no ML-KEM key");
  return { suite: Number(suite), publicKey, id: sha256(raw).subarray(0, 8) };
}

/** An X25519 public key must be canonical, and of no small order. */
function checkPoint(raw) {
  const number = BigInt(`0x${Buffer.from(raw).reverse().toString("hex")}`);
  if (number >= PRIME) throw invalid("an X25519 key that is not canonical");
  try {
    const publicKey = crypto.createPublicKey(key("X25519", raw));
    const { privateKey } = crypto.generateKeyPairSync("x25519");
    crypto.diffieHellman({ privateKey, publicKey }); // throws where the result would be zero
  } catch {
    throw invalid("an X25519 key of small order");
  }
}

/** The modulus check of FIPS 203, section 7.2: all coefficients, of 12 bits each, are below it. */
function latticeFits(raw) {
  for (let at = 0; at < raw.length; at += 3) {
    const both = raw.readUIntLE(at, 3);
    if ((both & 0xfff) >= MODULUS || both >> 12 >= MODULUS) return false;
  }
  return true;
}

async function seal(configuration, info, plaintext) {
  const suite = hpke(configuration.suite);
  const recipientPublicKey = await suite.kem.importKey(
    "raw",
    bytes(configuration.publicKey),
    true,
  );
  const { enc, ct } = await suite.seal(
    { recipientPublicKey, info: bytes(info) },
    bytes(plaintext),
  );
  return Buffer.concat([Buffer.from(enc), Buffer.from(ct)]);
}

/** An ArrayBuffer of exactly these bytes: a Buffer may be a view of a larger one. */
export const bytes = (data) => Uint8Array.from(data).buffer;

const u32be = (value) => {
  const field = Buffer.alloc(4);
  field.writeUInt32BE(value);
  return field;
};

export const reportInfo = (id, window, keyId) =>
  Buffer.concat([Buffer.from("shoal/v1/report\0"), id, u32be(window), keyId]);

export const hopInfo = (keyId) => Buffer.concat([Buffer.from("shoal/v1/hop\0\0"), keyId]);

/** The inner layer: for the analyzer. */
export const sealReport = (analyzerKey, id, window, report) =>
  seal(
    analyzerKey,
    reportInfo(id, window, analyzerKey.id),
    Buffer.concat([crypto.randomBytes(16), report]),
  );

/** The outer layer: for the shuffler. A frame's length follows from the task alone. */
export async function sealFrame(hopKey, analyzerKey, id, window, ackKey, sealed) {
  const number = fixed32Field(2, window);
  const payload = Buffer.concat([
    bytesField(1, id),
    window === 0 ? Buffer.alloc(0) : number, // proto3 leaves zeros out
    bytesField(3, ackKey),
    bytesField(4, analyzerKey.id),
    bytesField(6, sealed),
  ]);
  const header = Buffer.concat([Buffer.from([1, hopKey.suite, 0]), hopKey.id]);
  const around = header.length + SUITES[hopKey.suite].enc + TAG;
  // As if the window were not 0: a frame's size must tell nothing but the task.
  const room = around + 4 + payload.length + (window === 0 ? number.length : 0);
  const size = [512, 4096, 32_768].find((one) => one >= room);
  if (size === undefined) throw invalid("reports of this task fit into no frame");
  const plaintext = Buffer.alloc(size - around);
  Buffer.concat([u32be(payload.length), payload]).copy(plaintext);
  return Buffer.concat([header, await seal(hopKey, hopInfo(hopKey.id), plaintext)]);
}

export const receiptOf = (ackKey, status, frame) =>
  crypto
    .createHmac("sha256", ackKey)
    .update(Buffer.from([status]))
    .update(sha256(frame))
    .digest();

/** Returns if the shuffler that opened the frame said this status of it; else BAD_SIGNATURE. */
export function verifyReceipt(ackKey, status, frame, mac) {
  const made = receiptOf(ackKey, status, frame);
  if (mac.length !== made.length || !crypto.timingSafeEqual(mac, made)) {
    throw new Refusal(
      "BAD_SIGNATURE",
      "the receipt does not verify: nothing is known, send again",
    );
  }
}
