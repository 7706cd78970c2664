// One deployment with a card of its own and a partner's card that tests serve, for changes of one agent's identity.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { FetchedCard } from "../../src/cards/fetch.ts";
import { generateCardKey, importSigningKey, signCard } from "../../src/cards/sign.ts";
import type { AgentParts, BridgeDecision } from "../../src/federation/agents/proof.ts";
import type { RotateOptions } from "../../src/federation/agents/rotate.ts";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import type { PinnedIdentity } from "../../src/federation/registry/retired.ts";
import { bytesOf, minimalCard } from "./cards.ts";
import { commitRegistry, controlRepository, LIGHTHOUSE, openControl } from "./control-repository.ts";
import { ManualClock } from "./manual-clock.ts";
import { registryFiles } from "./registry-folder.ts";
import { AT } from "./repository.ts";
import { temporaryFolder, writeFile } from "./temporary.ts";

export const ORGANISATION = "registry/organisation.yaml";
export const WEATHER = "lighthouse-weather";
const SAMPLE = {
  own: [
    "harbour-card-2026",
    "2UNDKGmCLS_fbrtafEP3pkRTUhppoOIHI9S9Ne_WTOU",
    "LQ-WSL4W6OKCtF4C9Z_u1hCcXEebXK8pDgT1Uxy08Ls",
  ],
  weather: [
    "lighthouse-card-3",
    "7M4zw-3WL933Y1rc0Psh9yHgoiGqMvTTBeEN0B4t5Yk",
    "JXz5JKJurYNADKYvIrJ_2KD56WGOecC4g6DplvYH7Bk",
  ],
} as const;

export interface Key {
  readonly identity: PinnedIdentity;
  /** Private JWK, as its file holds it. */
  readonly text: string;
}

export async function cardKey(keyId: string): Promise<Key> {
  const { privateJwk, publicJwk } = await generateCardKey(keyId);
  return { identity: { keyId, jwk: { x: publicJwk.x, y: publicJwk.y } }, text: privateJwk };
}

/** A card that this key alone has signed. */
export async function cardBy(key: Key, name = "Weather"): Promise<Buffer> {
  const signer = { key: await importSigningKey(key.text), keyId: key.identity.keyId };
  const signed = await signCard(bytesOf({ ...minimalCard(), name, version: "1" }), signer);
  if (!signed.signed) throw new TypeError("the card was not signed");
  return signed.bytes;
}

/** A clock whose sleepers wake at once, so that a wait takes no time. */
export class HastyClock extends ManualClock {
  override async sleep(delayMs: number): Promise<void> {
    await this.advance(delayMs);
  }
}

/** The sample organisation with keys that tests hold, every plane in force. */
export async function identities(t: Pick<TestContext, "after">) {
  const directory = temporaryFolder(t);
  return identitiesIn(directory);
}

export async function identitiesIn(directory: string) {
  const own = await cardKey("harbour-card-1");
  const weather = await cardKey("lighthouse-card-1");
  const repository = await controlRepository(join(directory, "control"));
  const organisation = rekey(registryFiles().get(ORGANISATION) ?? "", SAMPLE.own, own.identity);
  const lighthouse = rekey(registryFiles().get(LIGHTHOUSE) ?? "", SAMPLE.weather, weather.identity);
  await commitRegistry(
    repository,
    new Map([
      [ORGANISATION, organisation],
      [LIGHTHOUSE, lighthouse],
    ]),
  );
  const clock = new HastyClock(AT);
  const opened = await openControl(directory, repository, clock);
  await runPass(opened.federation);

  let served: FetchedCard = { fetched: true, bytes: await cardBy(weather) };
  let decision: BridgeDecision | undefined;
  const parts: AgentParts = { fetch: async () => served, decision: async () => decision, clock };
  const keyFile = join(directory, "secrets", "docs-qa.jwk");
  const cardFile = join(directory, "docs-qa", "agent-card.json");
  writeFile(keyFile, own.text, 0o600);
  writeFile(cardFile, (await cardBy(own, "Handbook")).toString());
  const rotation: RotateOptions = {
    ...{ agent: "docs-qa", keyFile, cardFile, keyId: "harbour-card-2", isLost: false },
    cardUrl: () => undefined,
  };
  const registryText = async (path: string) =>
    (await repository.read(await repository.requireHead(), ["registry"])).get(path) ?? "";
  return {
    ...{ ...opened, repository, directory, clock, own, weather, parts, rotation, keyFile, cardFile },
    registryText,
    serve: (bytes: Uint8Array) => {
      served = { fetched: true, bytes };
    },
    serveNothing: () => {
      served = { fetched: false, failure: "unreachable", status: undefined };
    },
    decide: (one: BridgeDecision | undefined) => {
      decision = one;
    },
    card: () => readFileSync(cardFile),
  };
}

function rekey(text: string, [keyId, x, y]: readonly [string, string, string], key: PinnedIdentity): string {
  return text.replaceAll(keyId, key.keyId).replaceAll(x, key.jwk.x).replaceAll(y, key.jwk.y);
}
