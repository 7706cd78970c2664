// The agent's card, signed once and stored. The stored bytes are served, so that signature and ETag stay the
// same until the card or its key changes.
import { createPrivateKey, createPublicKey } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { MESSAGE_ID_IDEMPOTENCY } from "../../src/cards/card-fields.ts";
import { lintCard } from "../../src/cards/lint.ts";
import { importSigningKey, signCard } from "../../src/cards/sign.ts";
import { importPinnedKey, type PinnedKey, readCard, verifyCard } from "../../src/cards/verify.ts";
import { sha256 } from "../../src/domain/digest.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { readSecret } from "../../src/runtime/secrets.ts";
import type { DocsQaConfig } from "./config.ts";
import { ANSWER_MEDIA_TYPE } from "./search/answer.ts";
import { cardSkills } from "./skills/catalogue.ts";

const PROTOCOL_VERSION = "1.0";
const AGENT_VERSION = "1.1.0";
const CARD_FILE = "agent-card.json";

/** The card without its signature (A2A 1.0, section 4.4). */
export function describeAgent(config: DocsQaConfig): object {
  const at = (protocolBinding: string) => ({
    url: config.publicUrl,
    protocolBinding,
    protocolVersion: PROTOCOL_VERSION,
  });
  const tokens = config.tokenEndpoint === undefined ? "" : ` from ${config.tokenEndpoint}`;
  return {
    name: config.name,
    description: config.description,
    version: AGENT_VERSION,
    supportedInterfaces: config.httpJson ? [at("JSONRPC"), at("HTTP+JSON")] : [at("JSONRPC")],
    ...(config.icon !== undefined && {
      iconUrl: `data:image/png;base64,${readFileSync(config.icon).toString("base64")}`,
    }),
    provider: { organization: config.organisation, url: new URL(config.publicUrl).origin },
    capabilities: {
      streaming: true,
      pushNotifications: false,
      extendedAgentCard: false,
      extensions: [
        {
          uri: MESSAGE_ID_IDEMPOTENCY,
          description: "A repeated messageId of a caller returns the first task.",
        },
      ],
    },
    securitySchemes: {
      bearer: {
        httpAuthSecurityScheme: {
          scheme: "Bearer",
          bearerFormat: "JWT",
          description: `OAuth 2.0 access token by client credentials${tokens}.`,
        },
      },
    },
    defaultInputModes: ["text/plain", "text/markdown"],
    defaultOutputModes: [ANSWER_MEDIA_TYPE],
    skills: cardSkills(config.organisation),
  };
}

export interface StoredCard {
  readonly bytes: Buffer;
  /** Over the bytes, the signature included. */
  readonly etag: string;
}

function stored(bytes: Buffer): StoredCard {
  return { bytes, etag: `"${sha256(bytes).toString("base64url")}"` };
}

/**
 * The signed card: the stored one while it says the same and its signature is by the present key, else a
 * new one, which is then stored.
 * @throws DrawbridgeError `config_invalid` when the configuration makes no good card
 */
export async function prepareCard(config: DocsQaConfig): Promise<StoredCard> {
  const plain = Buffer.from(JSON.stringify(describeAgent(config)));
  const read = readCard(plain);
  const [finding] = lintCard(plain);
  if (finding !== undefined || "reason" in read) {
    throw new DrawbridgeError(
      "config_invalid",
      `the agent's card is not sound: ${finding?.at} ${finding?.message}`,
      {
        hint: "Correct the values in the configuration that the card is made of.",
      },
    );
  }
  const secret = readSecret(config.signing.key, config.directory);
  const key = await importSigningKey(secret);
  const path = join(config.store, CARD_FILE);
  const kept = readIfPresent(path);
  if (kept !== undefined) {
    const verdict = await verifyCard(kept, [await publicHalf(config.signing.keyId, secret)]);
    if (verdict.accepted && verdict.digest === read.digest) return stored(kept);
  }
  const result = await signCard(plain, { key, keyId: config.signing.keyId });
  if (!result.signed) throw new DrawbridgeError("internal", "a sound card could not be signed");
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeFileSync(`${path}.part`, result.bytes);
  renameSync(`${path}.part`, path);
  return stored(result.bytes);
}

function publicHalf(keyId: string, secret: string): Promise<PinnedKey> {
  const pem = secret.trimStart().startsWith("-----BEGIN");
  const privateKey = pem
    ? createPrivateKey(secret)
    : createPrivateKey({ key: JSON.parse(secret), format: "jwk" });
  const { x = "", y = "" } = createPublicKey(privateKey).export({ format: "jwk" });
  return importPinnedKey(keyId, { x, y });
}

function readIfPresent(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}
