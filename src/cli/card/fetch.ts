// drawbridge card fetch: fetches a card and shows what pinning it would mean.
// Invariant: a key to pin is never taken from the card, nor from anything the card points to.
import { exportJWK } from "jose";
import { stringify } from "yaml";
import { fetchCard } from "../../cards/fetch.ts";
import type { CardVerdict, ReadCard } from "../../cards/verify.ts";
import { importJwkSet, readCard, readSignatureEntry, verifyCard } from "../../cards/verify.ts";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { quoted } from "../../domain/printable.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand, print } from "../lib/command.ts";

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

type Signatures = ReturnType<typeof readSignatures>;

/** An agents.yaml to start from, in which no server and no sender is allowed yet. */
function renderEntry(url: string, read: ReadCard, keyId: string, point: { x: string; y: string }) {
  const slug = read.card.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const agentId = slug.replace(/^-+/, "").slice(0, 64).replace(/-+$/, "") || "agent";
  const cardIdentity = { keyId, jwk: { kty: "EC", crv: "P-256", ...point } };
  const entry = { cardUrl: url, cardIdentity, allowedServers: [], allowedSenders: [] };
  return stringify({ version: 1, agents: { [agentId]: entry } }, { lineWidth: 0 });
}

function renderFacts(url: string, { card, digest }: ReadCard, signatures: Signatures, verdict?: CardVerdict) {
  const lines = [
    `card        ${url}`,
    `name        ${quoted(card.name)}`,
    `version     ${quoted(card.version)}`,
    `digest      ${digest}`,
    ...card.supportedInterfaces.map(
      ({ protocolBinding, protocolVersion, url: address }) =>
        `interface   ${quoted(protocolBinding)} ${quoted(protocolVersion)} ${quoted(address)}`,
    ),
    ...signatures.map((one) => `signature   kid ${quoted(one.keyId ?? "")} alg ${quoted(one.algorithm)}`),
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
    const es256 = signatures.find(({ algorithm }) => algorithm === "ES256");
    const keyId = verdict?.accepted ? verdict.keyId : es256?.keyId;
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
    return verdict?.accepted === false ? "failed" : "ok";
  },
});
