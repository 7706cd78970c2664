// Forged and odd cards: the card's words are untouched, its signature is not what it should be.
import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import { canonicalize } from "../../../src/domain/canonical-json.ts";
import { base64url, signText } from "../../support/cards.ts";
import {
  attacker,
  CARD,
  type Forgery,
  ours,
  PAYLOAD,
  SIGNATURE,
  SIGNED,
  withSignatures,
} from "./forged-content.ts";

/** By a key that nobody has pinned: beside a right signature it is skipped. */
export const FOREIGN = signText(attacker, PAYLOAD, { alg: "ES256", kid: "other" });

const withHeader = (header: unknown, key = ours): Uint8Array =>
  withSignatures([signText(key, PAYLOAD, header)]);

export function oddHeaders(): Forgery[] {
  const { keyId } = ours;
  const header = { alg: "ES256", kid: keyId };
  const algorithms: unknown[] = [
    "none",
    "None",
    "NONE",
    "",
    "HS256",
    "HS384",
    "RS256",
    "PS256",
    "ES384",
    "ES512",
    "ES256K",
    "EdDSA",
    "es256",
    "ES256 ",
    "ES256\u200b",
    null,
    0,
    true,
    ["ES256"],
    { alg: "ES256" },
  ];
  const keyIds: unknown[] = [
    keyId.toUpperCase(),
    `${keyId} `,
    ` ${keyId}`,
    `${keyId}\u200b`,
    keyId.slice(0, -1),
    `${keyId}x`,
    "",
    "other",
    null,
    0,
    [keyId],
    { kid: keyId },
    `${keyId}\0`,
    keyId.replace("-", "\u2010"),
  ];
  const texts = [
    `{"alg":"none","alg":"ES256","kid":"${keyId}"}`,
    `{"alg":"ES256","kid":"other","kid":"${keyId}"}`,
    `{"alg":"ES256","kid":"${keyId}","kid":"${keyId}"}`,
    `{"alg":"ES256","\\u006bid":"${keyId}","kid":"${keyId}"}`,
    `{"alg":"ES256","kid":"${keyId}"}{}`,
    `{"alg":"ES256","kid":"${keyId}",}`,
    `[{"alg":"ES256","kid":"${keyId}"}]`,
    `\ufeff{"alg":"ES256","kid":"${keyId}"}`,
    '"ES256"',
    "null",
    "",
    "{}",
    "not json",
    `{"alg":"ES256"}`,
    `{"kid":"${keyId}"}`,
    `{"ALG":"ES256","KID":"${keyId}"}`,
  ];
  const extensions: object[] = [
    { crit: [] },
    { crit: ["exp"], exp: 1 },
    { crit: ["b64"], b64: false },
    { crit: ["b64"], b64: true },
    { b64: false },
    { b64: true },
    { crit: "b64" },
    { crit: null },
  ];
  return [
    ...algorithms.map((alg): Forgery => [`alg ${JSON.stringify(alg)}`, withHeader({ ...header, alg })]),
    ...keyIds.map((kid): Forgery => [`kid ${JSON.stringify(kid)}`, withHeader({ ...header, kid })]),
    ...texts.map((text): Forgery => [`header ${text}`, withHeader(text)]),
    ...extensions.map((more): Forgery => [JSON.stringify(more), withHeader({ ...header, ...more })]),
    [
      "header in UTF-16",
      withSignatures(
        [signText(ours, PAYLOAD, "")].map((one) => ({
          ...one,
          protected: base64url(Buffer.from(JSON.stringify(header), "utf16le")),
        })),
      ),
    ],
    ["attacker's key, same kid", withHeader(header, attacker)],
    ["attacker's key in jwk", withHeader({ ...header, jwk: attacker.jwk }, attacker)],
    ["attacker's jku", withHeader({ ...header, jku: "http://127.0.0.1:9/jwks.json" }, attacker)],
    ["attacker's x5u", withHeader({ ...header, x5u: "http://127.0.0.1:9/cert.pem" }, attacker)],
    [
      "attacker's key in jwk, own kid",
      withHeader({ alg: "ES256", kid: "attacker", jwk: attacker.jwk }, attacker),
    ],
  ];
}

/** The public key taken for an HMAC secret, and keys of other kinds under the pinned key ID. */
export function confusedKeys(): Forgery[] {
  const input = (header: object) => `${base64url(JSON.stringify(header))}.${base64url(PAYLOAD)}`;
  const entry = (header: object, signature: Uint8Array) =>
    withSignatures([{ protected: base64url(JSON.stringify(header)), signature: base64url(signature) }]);
  const spki = ours.publicKey.export({ type: "spki", format: "der" });
  const pem = ours.publicKey.export({ type: "spki", format: "pem" });
  const secrets = [spki, pem, JSON.stringify(ours.jwk), ours.jwk.x, Buffer.from(ours.jwk.x, "base64url")];
  const hmacs = secrets.flatMap((secret, index) =>
    ["HS256", "ES256"].map((alg): Forgery => {
      const header = { alg, kid: ours.keyId };
      return [
        `${alg}, HMAC with public key ${index}`,
        entry(header, createHmac("sha256", secret).update(input(header)).digest()),
      ];
    }),
  );
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
  const p384 = generateKeyPairSync("ec", { namedCurve: "P-384" }).privateKey;
  const ed25519 = generateKeyPairSync("ed25519").privateKey;
  const others = ["RS256", "ES384", "EdDSA", "ES256"].flatMap((alg): Forgery[] => {
    const header = { alg, kid: ours.keyId };
    const data = Buffer.from(input(header));
    return [
      [`${alg} by an RSA key`, entry(header, sign("sha256", data, rsa))],
      [
        `${alg} by a P-384 key`,
        entry(header, sign("sha384", data, { key: p384, dsaEncoding: "ieee-p1363" })),
      ],
      [`${alg} by an Ed25519 key`, entry(header, sign(null, data, ed25519))],
    ];
  });
  return [...hmacs, ...others];
}

export function oddSignatures(): Forgery[] {
  const raw = Buffer.from(SIGNATURE.signature, "base64url");
  const der = sign("sha256", Buffer.from(`${SIGNATURE.protected}.${base64url(PAYLOAD)}`), ours.privateKey);
  const order = Buffer.from("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", "hex");
  const zero = Buffer.alloc(32);
  const values: readonly (readonly [string, Uint8Array])[] = [
    ["DER", der],
    ["empty", Buffer.alloc(0)],
    ["63 bytes", raw.subarray(0, 63)],
    ["65 bytes", Buffer.concat([raw, Buffer.alloc(1)])],
    ["a leading zero", Buffer.concat([Buffer.alloc(1), raw])],
    ["96 bytes", Buffer.concat([raw, zero])],
    ["s and r swapped", Buffer.concat([raw.subarray(32), raw.subarray(0, 32)])],
    ["zeros", Buffer.alloc(64)],
    ["r zero", Buffer.concat([zero, raw.subarray(32)])],
    ["s zero", Buffer.concat([raw.subarray(0, 32), zero])],
    ["r and s the order", Buffer.concat([order, order])],
    ["ones", Buffer.alloc(64, 1)],
  ];
  const text = SIGNATURE.signature;
  const tail = text.at(-1) ?? "";
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  // The last of 86 characters carries 4 bits; these spell the same bytes.
  const respelled = [1, 2, 3]
    .map((offset) => `${text.slice(0, -1)}${alphabet[(alphabet.indexOf(tail) & ~3) + offset]}`)
    .filter((one) => one !== text);
  const standard = raw.toString("base64");
  const texts = [
    `${text}==`,
    `${text}=`,
    standard,
    `+${standard.replace(/=+$/, "").slice(1)}`,
    ` ${text}`,
    `${text}\n`,
    `${text.slice(0, 40)} ${text.slice(40)}`,
    `${text}.`,
    `${text}A`,
    `${text}AAAA`,
    raw.toString("hex"),
    "",
    "!",
    ...respelled,
  ];
  const protectedTexts = [
    `${SIGNATURE.protected}=`,
    `${SIGNATURE.protected}==`,
    ` ${SIGNATURE.protected}`,
    `${SIGNATURE.protected}\n`,
    `${SIGNATURE.protected}.`,
    `${SIGNATURE.protected}.${base64url(PAYLOAD)}`,
    "",
    Buffer.from(`{"alg":"ES256","kid":"${ours.keyId}"}`).toString("latin1"),
  ];
  return [
    ...values.map(
      ([what, value]): Forgery => [what, withSignatures([{ ...SIGNATURE, signature: base64url(value) }])],
    ),
    ...texts.map(
      (one): Forgery => [
        `signature ${JSON.stringify(one).slice(0, 24)}`,
        withSignatures([{ ...SIGNATURE, signature: one }]),
      ],
    ),
    ...protectedTexts.map(
      (one): Forgery => [
        `protected ${JSON.stringify(one).slice(0, 24)}`,
        withSignatures([{ ...SIGNATURE, protected: one }]),
      ],
    ),
  ];
}

export function oddEntries(): Forgery[] {
  const { protected: protectedHeader, signature } = SIGNATURE;
  const entries: unknown[] = [
    undefined,
    null,
    [],
    {},
    "x",
    [[]],
    [[SIGNATURE]],
    [{}],
    [null],
    [protectedHeader],
    SIGNATURE,
    { 0: SIGNATURE },
    [{ protected: protectedHeader }],
    [{ signature }],
    [{ ...SIGNATURE, payload: base64url(PAYLOAD) }],
    [{ ...SIGNATURE, extra: "" }],
    [{ ...SIGNATURE, header: "" }],
    [{ ...SIGNATURE, header: null }],
    [{ ...SIGNATURE, header: [] }],
    [{ ...SIGNATURE, header: { alg: "ES256" } }],
    [{ ...SIGNATURE, header: { kid: "other" } }],
    [{ ...SIGNATURE, header: { crit: ["x"], x: 1 } }],
    [{ ...SIGNATURE, header: { b64: false } }],
    [{ signature, protected: [protectedHeader] }],
    [{ signature: [signature], protected: protectedHeader }],
    [{ signature, protected: { alg: "ES256", kid: ours.keyId } }],
    [{ header: { alg: "ES256", kid: ours.keyId }, signature }],
    [{ header: { alg: "ES256", kid: ours.keyId }, protected: "", signature }],
    [SIGNATURE, {}],
    [SIGNATURE, null],
    [SIGNATURE, { protected: "", signature: "" }],
    [SIGNATURE, { ...FOREIGN, signature: "" }],
    [SIGNATURE, { ...FOREIGN, signature: `${FOREIGN.signature}=` }],
    [{ ...FOREIGN, protected: `${FOREIGN.protected}=` }, SIGNATURE],
    [{ protected: "e30", signature: "AA" }, SIGNATURE],
    [SIGNATURE, signText(attacker, PAYLOAD)],
    [signText(attacker, PAYLOAD), SIGNATURE],
    [SIGNATURE, { ...SIGNATURE, protected: base64url(`{"alg":"none","kid":"${ours.keyId}"}`) }],
    [`${protectedHeader}.${base64url(PAYLOAD)}.${signature}`],
    `${protectedHeader}..${signature}`,
  ];
  return entries.map(
    (one): Forgery => [`signatures ${JSON.stringify(one)?.slice(0, 40)}`, withSignatures(one)],
  );
}

/** Right signatures of something that is not this card. */
export function otherPayloads(): Forgery[] {
  const payloads: readonly (readonly [string, string])[] = [
    ["not canonical", JSON.stringify(CARD, undefined, 2)],
    ["in another order", JSON.stringify(CARD)],
    ["with its signatures", canonicalize(SIGNED)],
    ["with an empty signatures", canonicalize({ ...CARD, signatures: [] })],
    ["empty", ""],
    ["{}", "{}"],
    ["its digest", JSON.stringify("sha256")],
    ["with a line break", `${PAYLOAD}\n`],
    ["in base64url", base64url(PAYLOAD)],
  ];
  return payloads.map(
    ([what, payload]): Forgery => [
      `signature over the card ${what}`,
      withSignatures([signText(ours, payload)]),
    ],
  );
}
