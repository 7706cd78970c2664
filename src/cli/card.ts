// drawbridge card: signed Agent Cards: verify, lint, sign, fetch; and the keys that sign them.
// Invariants: a key to pin is never taken from the card, nor from anything the card points to; no key file is overwritten.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { exportJWK } from "jose";
import { stringify } from "yaml";
import { fetchCard } from "../cards/fetch.ts";
import { lintCard } from "../cards/lint.ts";
import { CARD_BYTES_MAX, REJECT_REASONS } from "../cards/reject-reasons.ts";
import { generateCardKey, importSigningKey, signCard } from "../cards/sign.ts";
import {
  type CardVerdict,
  importJwkSet,
  type PinnedKey,
  type ReadCard,
  readCard,
  readSignatureEntry,
  verifyCard,
} from "../cards/verify.ts";
import { systemClock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { jsonText, membersOf, parseJson } from "../domain/json.ts";
import { quoted } from "../domain/printable.ts";
import { readInput } from "../runtime/read-input.ts";
import { createFile, PUBLIC } from "../runtime/write-file.ts";
import { defineCommand, parser, required } from "./lib/command.ts";
import { ExitCode } from "./lib/exit-codes.ts";
import { print, printData, printText, say } from "./lib/output.ts";

/** A card's bytes, or undefined when it cannot be read. A file too large to be a card is cut behind the limit. */
function readCardFile(path: string): Uint8Array | undefined {
  try {
    if (statSync(path).size > CARD_BYTES_MAX) return new Uint8Array(CARD_BYTES_MAX + 1);
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

async function verifyFile(card: string, pinned: readonly PinnedKey[]) {
  const bytes = readCardFile(card);
  if (bytes === undefined) return { card, accepted: false, reason: "unreadable" } as const;
  const verdict = await verifyCard(bytes, pinned);
  if (!verdict.accepted) return { card, ...verdict };
  return { card, accepted: true, keyId: verdict.keyId, digest: verdict.digest } as const;
}

export const verifyCommand = defineCommand({
  arguments: [["<card...>", "files, each an Agent Card as it is served"]],
  options: [
    required("--jwks <file>", "the trusted public keys, a JWK set; only EC P-256 keys with a kid are used"),
    ["--json", "print one JSON array instead, with key ID, digest and place"],
  ],
  help: `
Prints one line a card, in the order given: "NAME accept" or "NAME reject REASON". Exit code 1 when a card
is rejected. Reasons: ${["unreadable", ...REJECT_REASONS].join(", ")}.`,
  async run([cards], options) {
    const pinned = await importJwkSet(readInput(options.jwks), options.jwks);
    const results: Awaited<ReturnType<typeof verifyFile>>[] = [];
    for (const card of cards) results.push(await verifyFile(card, pinned));
    print(options, results, () =>
      results.map((one) => `${one.card} ${one.accepted ? "accept" : `reject ${one.reason}`}\n`).join(""),
    );
    return results.every(({ accepted }) => accepted) ? ExitCode.ok : ExitCode.failed;
  },
});

function findingLine(card: string, { at, rule, message }: Record<"at" | "rule" | "message", string>): string {
  return `${card}: ${at || "/"}: ${rule}: ${message}`;
}

const UNREADABLE = { at: "", rule: "unreadable", message: "the file cannot be read" } as const;

export const lintCommand = defineCommand({
  arguments: [["<card...>", "files, each an Agent Card, signed or not"]],
  options: [["--json", "print one JSON array instead"]],
  help: `
Prints "NAME ok", or a line a finding: "NAME: PLACE: RULE: what to do". Signatures are not verified.`,
  run([cards], options) {
    const results = cards.map((card) => {
      const bytes = readCardFile(card);
      return { card, findings: bytes === undefined ? [UNREADABLE] : lintCard(bytes) };
    });
    const lines = results.flatMap(({ card, findings }) =>
      findings.length === 0 ? [`${card} ok`] : findings.map((one) => findingLine(card, one)),
    );
    print(options, results, () => lines.map((line) => `${line}\n`).join(""));
    return results.some(({ findings }) => findings.length > 0) ? ExitCode.failed : ExitCode.ok;
  },
});

export const signCommand = defineCommand({
  arguments: [["<card>", "the card's JSON file"]],
  options: [
    required("--key <file>", "the private key: a JWK, or PKCS #8 PEM"),
    required("--key-id <id>", "the kid that verifiers have pinned; a JWK that names another is refused"),
    ["-o, --output <file>", "where to write the signed card; standard output when absent"],
  ],
  help: `
A signature under the same key ID is replaced, others are kept. Serve the result byte for byte: an SDK or
proxy that writes the card anew may break the signature. What \`card lint\` finds is printed on standard error.`,
  async run([card], options) {
    const bytes = readInput(card);
    const text = readInput(options.key).toString("utf8");
    const key = await importSigningKey(text);
    const { kid = options.keyId } = membersOf(parseJson(text));
    if (kid !== options.keyId) {
      throw new DrawbridgeError("usage", `the key in ${options.key} has another kid than --key-id`, {
        hint: "Give the kid that verifiers have pinned for this key.",
      });
    }
    const result = await signCard(bytes, { key, keyId: options.keyId });
    if (!result.signed) {
      const places = result.problems.map(({ reason, at }) => `${card}: ${at || "/"}: ${reason}`);
      throw new DrawbridgeError("card_rejected", `not an A2A 1.0 card\n${places.join("\n")}`, {
        hint: "Correct the card; `drawbridge card lint` lists everything.",
      });
    }
    for (const finding of lintCard(bytes)) say(`warning: ${findingLine(card, finding)}`);
    if (options.output === undefined) printData(result.bytes);
    else writeFileSync(options.output, result.bytes);
  },
});

// The key ID names the files too.
const keyIdOption = parser("usable key ID", (text) =>
  /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(text) ? text : undefined,
);

export const keygenCommand = defineCommand({
  options: [
    [
      "--key-id <id>",
      "the kid: letters, digits and . _ -, at most 128",
      { required: true, parse: keyIdOption },
    ],
    required("-o, --output <directory>", "where to write ID.private.jwk and ID.jwks.json"),
  ],
  help: "\nPartners pin the public key set ID.jwks.json, received by another way than the card.",
  async run(_, { keyId, output }) {
    const { privateJwk, publicJwk } = await generateCardKey(keyId);
    const privateFile = join(output, `${keyId}.private.jwk`);
    const publicFile = join(output, `${keyId}.jwks.json`);
    createFile(privateFile, privateJwk);
    createFile(publicFile, jsonText({ keys: [publicJwk] }), PUBLIC);
    printText(`${privateFile}\n${publicFile}\n`);
  },
});

async function fetchBytes(url: string): Promise<Uint8Array> {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new DrawbridgeError("usage", "not an http or https URL", { hint: "Give the card's full address." });
  }
  const result = await fetchCard(url, { clock: systemClock });
  if (result.fetched) return result.bytes;
  const status = result.status === undefined ? "" : ` (status ${result.status})`;
  throw new DrawbridgeError("agent_unavailable", `no card: ${result.failure}${status}`, {
    hint: "Check the address; it must answer 200 with application/json itself, without a redirect. For a certificate of an authority of your own, set NODE_EXTRA_CA_CERTS.",
  });
}

function readSignatures(read: ReadCard) {
  try {
    return read.signatures.map(readSignatureEntry).map(({ keyId, algorithm }) => ({ keyId, algorithm }));
  } catch {
    return [];
  }
}

/** An agents.yaml to start from, in which no server and no sender is allowed yet. */
function renderEntry(url: string, read: ReadCard, keyId: string, point: { x: string; y: string }) {
  const slug = read.card.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const agentId = slug.replace(/^-+/, "").slice(0, 64).replace(/-+$/, "") || "agent";
  const cardIdentity = { keyId, jwk: { kty: "EC", crv: "P-256", ...point } };
  const entry = { cardUrl: url, cardIdentity, allowedServers: [], allowedSenders: [] };
  return stringify({ version: 1, agents: { [agentId]: entry } }, { lineWidth: 0 });
}

function renderFacts(
  url: string,
  read: ReadCard,
  signatures: ReturnType<typeof readSignatures>,
  verdict?: CardVerdict,
) {
  const { card } = read;
  const lines = [
    `card        ${url}`,
    `name        ${quoted(card.name)}`,
    `version     ${quoted(card.version)}`,
    `digest      ${read.digest}`,
    ...card.supportedInterfaces.map(
      ({ protocolBinding, protocolVersion, url: address }) =>
        `interface   ${quoted(protocolBinding)} ${quoted(protocolVersion)} ${quoted(address)}`,
    ),
    ...signatures.map(
      ({ keyId, algorithm }) => `signature   kid ${quoted(keyId ?? "")} alg ${quoted(algorithm)}`,
    ),
    ...(signatures.length === 0 ? ["signature   none that can be read"] : []),
  ];
  if (verdict === undefined) lines.push("verified    no: give the operator's keys with --jwks");
  else if (verdict.accepted) lines.push(`verified    yes, by ${quoted(verdict.keyId)}`);
  else lines.push(`verified    no: ${verdict.reason}`);
  return `${lines.join("\n")}\n`;
}

export const fetchCommand = defineCommand({
  arguments: [["<url>", "the card's address"]],
  options: [
    ["--jwks <file>", "the agent operator's public keys, received by another way: verify the card with them"],
    ["--json", "print the facts as JSON, without the agents.yaml entry"],
  ],
  async run([url], options) {
    const { jwks } = options;
    const pinned = jwks === undefined ? undefined : await importJwkSet(readInput(jwks), jwks);
    const bytes = await fetchBytes(url);
    const read = readCard(bytes);
    if ("reason" in read) {
      const { reason, at } = read;
      throw new DrawbridgeError("card_rejected", `the card is rejected: ${reason} at ${quoted(at)}`, {
        hint: "Ask the agent's operator for a card that follows A2A 1.0.",
      });
    }
    const signatures = readSignatures(read);
    const verdict = pinned === undefined ? undefined : await verifyCard(bytes, pinned);
    const keyId = verdict?.accepted
      ? verdict.keyId
      : signatures.find((one) => one.algorithm === "ES256")?.keyId;
    const key = pinned?.find((candidate) => candidate.keyId === keyId)?.key;
    const { x = "FILL IN", y = "FILL IN" } = key === undefined ? {} : await exportJWK(key);
    const { name, version, supportedInterfaces } = read.card;
    const about = { url, name, version, digest: read.digest, supportedInterfaces, signatures };
    const verified = verdict?.accepted
      ? { accepted: true, keyId }
      : verdict && { accepted: false, reason: verdict.reason };
    print(options, { ...about, verdict: verified }, () => {
      const facts = renderFacts(url, read, signatures, verdict);
      const isPinnable = keyId !== undefined && verdict?.accepted !== false;
      return isPinnable ? `${facts}\n${renderEntry(url, read, keyId, { x, y })}` : facts;
    });
    return verdict?.accepted === false ? ExitCode.failed : ExitCode.ok;
  },
});
