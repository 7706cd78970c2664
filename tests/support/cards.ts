// Agent Cards for tests. Signed with node:crypto rather than with the code under test, so that a mistake
// in signing cannot hide the same mistake in verifying.
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { importPinnedKey, type PinnedKey } from "../../src/cards/verify.ts";
import { canonicalize } from "../../src/domain/canonical-json.ts";
import type { Json, JsonObject } from "../../src/domain/json.ts";

export interface TestKey {
  readonly keyId: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  readonly jwk: { readonly kty: "EC"; readonly crv: "P-256"; readonly x: string; readonly y: string };
  readonly pinned: PinnedKey;
}

export async function testKey(keyId: string): Promise<TestKey> {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const { x = "", y = "" } = publicKey.export({ format: "jwk" });
  const jwk = { kty: "EC", crv: "P-256", x, y } as const;
  return { keyId, privateKey, publicKey, jwk, pinned: await importPinnedKey(keyId, jwk) };
}

export const base64url = (data: string | Uint8Array): string => Buffer.from(data).toString("base64url");
export const bytesOf = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
export const fixture = (name: string): Buffer =>
  readFileSync(new URL(`../fixtures/cards/${name}`, import.meta.url));

/** ES256 over exactly this payload text, under exactly this header. */
export function signText(key: TestKey, payload: string, header: unknown = { alg: "ES256", kid: key.keyId }) {
  const protectedHeader = base64url(typeof header === "string" ? header : JSON.stringify(header));
  const input = Buffer.from(`${protectedHeader}.${base64url(payload)}`);
  const signature = sign("sha256", input, { key: key.privateKey, dsaEncoding: "ieee-p1363" });
  return { protected: protectedHeader, signature: base64url(signature) };
}

/** A card with a signature over RFC 8785 of the card as it is given, however odd that is. */
export function signedCard(key: TestKey, card: object, header?: unknown): JsonObject {
  const { signatures: _, ...signed } = card as Record<string, Json>;
  return { ...signed, signatures: [signText(key, canonicalize(signed), header)] };
}

/** The smallest card: every REQUIRED field, all of them at their defaults but one. */
export function minimalCard() {
  return {
    name: "Minimal",
    description: "",
    supportedInterfaces: [],
    version: "",
    capabilities: {},
    defaultInputModes: [],
    defaultOutputModes: [],
    skills: [],
  };
}

/** A card that sets every field there is, in values that every canonicalizer signs alike. */
export function fullCard(): Record<string, Json> {
  const scopes = { ask: "Ask", größe: "大きさ 🚦" };
  const authorizationUrl = "https://id.example.org/authorize";
  const tokenUrl = "https://id.example.org/token";
  const refreshUrl = "https://id.example.org/refresh";
  const deviceAuthorizationUrl = "https://id.example.org/device";
  const oauth2 = (flows: Json) => ({ oauth2SecurityScheme: { description: "OAuth", flows } });
  return {
    name: "Straßen-Auskunft 🚦",
    description: 'Answers "where?"\n— in Zürich and 東京',
    supportedInterfaces: [
      {
        url: "https://a.example.org/rpc",
        protocolBinding: "JSONRPC",
        tenant: "org-a",
        protocolVersion: "1.0",
      },
      { url: "https://a.example.org/rest", protocolBinding: "HTTP+JSON", protocolVersion: "1.0" },
    ],
    provider: { url: "https://a.example.org", organization: "Org A" },
    version: "2.1.0",
    documentationUrl: "https://a.example.org/docs",
    iconUrl: "https://a.example.org/icon.png",
    capabilities: {
      streaming: true,
      pushNotifications: false,
      extendedAgentCard: false,
      extensions: [
        {
          uri: "https://a.example.org/ext/dedup",
          description: "Deduplicates",
          required: true,
          params: { window: 3600, ratio: 0.1, small: 1e-7, off: false, deep: [1, { x: ["y", 2.5] }] },
        },
      ],
    },
    securitySchemes: {
      key: { apiKeySecurityScheme: { description: "Key", location: "header", name: "X-Key" } },
      bearer: { httpAuthSecurityScheme: { description: "Bearer", scheme: "Bearer", bearerFormat: "JWT" } },
      code: {
        oauth2SecurityScheme: {
          description: "By code",
          flows: {
            authorizationCode: { authorizationUrl, tokenUrl, refreshUrl, scopes, pkceRequired: true },
          },
          oauth2MetadataUrl: "https://id.example.org/.well-known/oauth-authorization-server",
        },
      },
      credentials: oauth2({ clientCredentials: { tokenUrl, refreshUrl, scopes } }),
      implicit: oauth2({ implicit: { authorizationUrl, refreshUrl, scopes } }),
      password: oauth2({ password: { tokenUrl, refreshUrl, scopes } }),
      device: oauth2({ deviceCode: { deviceAuthorizationUrl, tokenUrl, refreshUrl, scopes } }),
      oidc: {
        openIdConnectSecurityScheme: { description: "OIDC", openIdConnectUrl: "https://id.example.org/oidc" },
      },
      mtls: { mtlsSecurityScheme: { description: "Client certificate" } },
    },
    securityRequirements: [{ schemes: { code: { list: ["ask"] }, key: { list: ["read"] } } }],
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain", "text/markdown"],
    skills: [
      {
        id: "find",
        name: "Find",
        description: "Finds a street",
        tags: ["streets"],
        examples: ["Where is Bahnhofstrasse?"],
        inputModes: ["text/plain"],
        outputModes: ["text/markdown"],
        securityRequirements: [{ schemes: { bearer: { list: ["read"] } } }],
      },
    ],
  };
}
