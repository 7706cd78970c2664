// Cards that our lint passes are signed alike by the SDKs: shown with the one that runs here.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type AgentCard, canonicalizeAgentCard, verifyAgentCardSignature } from "@a2a-js/sdk";
import fc from "fast-check";
import { checkCard } from "../../../src/cards/card-fields.ts";
import { lintCard } from "../../../src/cards/lint.ts";
import { CARD_BYTES_MAX } from "../../../src/cards/reject-reasons.ts";
import { generateCardKey, importSigningKey, signCard } from "../../../src/cards/sign.ts";
import { importJwkSet, verifyCard } from "../../../src/cards/verify.ts";
import { canonicalize } from "../../../src/domain/canonical-json.ts";
import type { Json } from "../../../src/domain/json.ts";
import { parseStrictJson } from "../../../src/domain/strict-json.ts";
import { anyUrl } from "../../support/arbitraries.ts";
import { bytesOf, fullCard } from "../../support/cards.ts";

const { privateJwk, publicJwk } = await generateCardKey("k1");
const signer = { key: await importSigningKey(privateJwk), keyId: "k1" };
const pinned = await importJwkSet(bytesOf({ keys: [publicJwk] }), "test");

const text = fc.string({ unit: "grapheme", minLength: 1 }).filter((value) => !value.includes("\0"));
const params = fc.dictionary(
  text,
  fc.oneof(
    text,
    fc.boolean(),
    fc.integer(),
    fc.double({ noNaN: true, min: -1e9, max: 1e9 }),
    fc.array(text, { minLength: 1 }),
  ),
  { minKeys: 1, noNullPrototype: true },
);
const cards = fc.record(
  {
    name: text,
    description: text,
    version: text,
    supportedInterfaces: fc.array(
      fc.record(
        {
          url: anyUrl,
          protocolBinding: fc.constant("JSONRPC"),
          tenant: text,
          protocolVersion: fc.constant("1.0"),
        },
        { requiredKeys: ["url", "protocolBinding", "protocolVersion"] },
      ),
      { minLength: 1, maxLength: 3 },
    ),
    provider: fc.record({ url: anyUrl, organization: text }),
    documentationUrl: anyUrl,
    capabilities: fc.record(
      {
        streaming: fc.boolean(),
        pushNotifications: fc.boolean(),
        extensions: fc.array(fc.record({ uri: anyUrl, params }), { minLength: 1, maxLength: 2 }),
      },
      { requiredKeys: ["streaming"] },
    ),
    securitySchemes: fc.constant(fullCard()["securitySchemes"] ?? null),
    defaultInputModes: fc.array(text, { minLength: 1 }),
    defaultOutputModes: fc.array(text, { minLength: 1 }),
    skills: fc.uniqueArray(
      fc.record({ id: text, name: text, description: text, tags: fc.array(text, { minLength: 1 }) }),
      { minLength: 1, maxLength: 2, selector: ({ id }) => id },
    ),
  },
  {
    requiredKeys: [
      "name",
      "description",
      "version",
      "supportedInterfaces",
      "capabilities",
      "defaultInputModes",
      "defaultOutputModes",
      "skills",
    ],
  },
);

describe("agreement with @a2a-js/sdk", () => {
  it("a card that passes lint is canonicalized alike by @a2a-js/sdk, and verifies there and here [AGT-3]", async () => {
    let checked = 0;
    await fc.assert(
      fc.asyncProperty(cards, async (card) => {
        const bytes = bytesOf(card);
        if (lintCard(bytes).length > 0) return;
        checked += 1;
        const { payload } = checkCard(parseStrictJson(bytes, CARD_BYTES_MAX));
        assert.equal(canonicalizeAgentCard(card as unknown as AgentCard), canonicalize(payload));
        const signed = await signCard(bytes, signer);
        assert.ok(signed.signed);
        assert.equal((await verifyCard(signed.bytes, pinned)).accepted, true);
        const verify = verifyAgentCardSignature(async () => ({ ...publicJwk }));
        await verify(JSON.parse(signed.bytes.toString()) as AgentCard);
      }),
      { numRuns: 150 },
    );
    assert.ok(checked > 100, `only ${checked} of 150 passed lint`);
  });

  it("the full card passes lint and has one canonical form", () => {
    const card = fullCard();
    assert.deepEqual(lintCard(bytesOf(card)), []);
    assert.equal(canonicalizeAgentCard(card as unknown as AgentCard), canonicalize(card as Json));
  });
});
