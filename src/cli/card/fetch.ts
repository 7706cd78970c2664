// drawbridge card fetch: gets a card and shows what pinning it would mean.
// Invariant: the key to pin is never taken from the card, nor from anything the card points to.
import { exportJWK } from "jose";
import { fetchCard } from "../../cards/fetch.ts";
import type { PinnedKey } from "../../cards/pinned-keys.ts";
import { type ReadCard, readCard, readSignatureEntry, verifyCard } from "../../cards/verify.ts";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { quoted } from "../../domain/printable.ts";
import { readJwkSet } from "../lib/card-input.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { print } from "../lib/output.ts";

interface Signature {
  readonly keyId: string | undefined;
  readonly algorithm: string;
}

type Verdict =
  | { readonly accepted: true; readonly keyId: string }
  | { readonly accepted: false; readonly reason: string };

interface Jwk {
  readonly x: string;
  readonly y: string;
}

async function fetchBytes(url: string): Promise<Uint8Array> {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new DrawbridgeError("usage", "not an http or https URL", { hint: "Give the card's full address." });
  }
  const result = await fetchCard(url, { clock: systemClock });
  if (result.fetched) return result.bytes;
  const status = result.status === undefined ? "" : ` (status ${result.status})`;
  throw new DrawbridgeError("agent_unavailable", `no card: ${result.failure}${status}`, {
    hint: "Check the address; it must answer 200 with application/json itself, without a redirect.",
  });
}

function readSignatures(read: ReadCard): Signature[] {
  try {
    return read.signatures.map(readSignatureEntry).map(({ keyId, algorithm }) => ({ keyId, algorithm }));
  } catch {
    return [];
  }
}

async function verify(bytes: Uint8Array, pinned: readonly PinnedKey[]): Promise<Verdict> {
  const verdict = await verifyCard(bytes, pinned);
  return verdict.accepted
    ? { accepted: true, keyId: verdict.keyId }
    : { accepted: false, reason: verdict.reason };
}

async function publicJwk(pinned: readonly PinnedKey[], keyId: string): Promise<Jwk | undefined> {
  const found = pinned.find((candidate) => candidate.keyId === keyId);
  if (found === undefined) return undefined;
  const { x = "", y = "" } = await exportJWK(found.key);
  return { x, y };
}

/** An agents.yaml to start from. Texts from the card are quoted; no server and no sender is allowed yet. */
function renderEntry(url: string, read: ReadCard, keyId: string, jwk: Jwk | undefined): string {
  const slug = read.card.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const agentId = slug.replace(/^-+/, "").slice(0, 64).replace(/-+$/, "") || "agent";
  const point = jwk ?? { x: "FILL IN", y: "FILL IN" };
  const origin = jwk === undefined ? " # from the agent's operator, by another way than this card" : "";
  return [
    "version: 1",
    "agents:",
    `  ${agentId}:`,
    `    cardUrl: ${quoted(url)}`,
    "    cardIdentity:",
    `      keyId: ${quoted(keyId)}`,
    `      jwk:${origin}`,
    "        kty: EC",
    "        crv: P-256",
    `        x: ${quoted(point.x)}`,
    `        y: ${quoted(point.y)}`,
    "    allowedServers: [] # whose users may ask, such as [example.org]",
    '    allowedSenders: [] # and which of them, such as ["*:example.org"]',
    "",
  ].join("\n");
}

function renderFacts(
  url: string,
  read: ReadCard,
  signatures: readonly Signature[],
  verdict?: Verdict,
): string {
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

export const command = defineCommand({
  arguments: [["<url>", "the card's address"]],
  options: [
    ["--jwks <file>", "the agent operator's public keys, received by another way: verify the card with them"],
    ["--json", "print the facts as JSON, without the agents.yaml entry"],
  ],
  async run([url], options) {
    const pinned = options.jwks === undefined ? undefined : await readJwkSet(options.jwks);
    const bytes = await fetchBytes(url);
    const read = readCard(bytes);
    if ("reason" in read) {
      const { reason, at } = read;
      throw new DrawbridgeError("card_rejected", `the card is rejected: ${reason} at ${quoted(at)}`, {
        hint: "Ask the agent's operator for a card that follows A2A 1.0.",
      });
    }
    const signatures = readSignatures(read);
    const verdict = pinned === undefined ? undefined : await verify(bytes, pinned);
    const keyId = verdict?.accepted
      ? verdict.keyId
      : signatures.find((one) => one.algorithm === "ES256")?.keyId;
    const jwk = pinned === undefined || keyId === undefined ? undefined : await publicJwk(pinned, keyId);
    const { name, version, supportedInterfaces } = read.card;
    const { digest } = read;
    print(options, { url, name, version, digest, supportedInterfaces, signatures, verdict }, () => {
      const facts = renderFacts(url, read, signatures, verdict);
      const isPinnable = keyId !== undefined && verdict?.accepted !== false;
      return isPinnable ? `${facts}\n${renderEntry(url, read, keyId, jwk)}` : facts;
    });
    return verdict?.accepted === false ? ExitCode.failed : ExitCode.ok;
  },
});
