// A deployment whose identities change: a card of its own and a partner's card that tests serve; and a
// partner that was removed, with everything for its re-admission over planes and rooms that tests script.
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { Fetched } from "../../src/cards/fetch.ts";
import { generateCardKey, importSigningKey, signCard } from "../../src/cards/sign.ts";
import { type Clock, systemRandom } from "../../src/domain/clock.ts";
import type { AgentParts } from "../../src/federation/agents/commit-and-prove.ts";
import type { RotateOptions } from "../../src/federation/agents/rotate.ts";
import { type Run, writeRun, writeStage } from "../../src/federation/offboarding/run/run-file.ts";
import { NewIdentities, type TouchedRoom } from "../../src/federation/readmission/readmission.ts";
import type { ReadmissionRooms, WorkflowContext } from "../../src/federation/readmission/rooms.ts";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import type { PinnedIdentity } from "../../src/federation/registry/retired-identities.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import type { StateFolder } from "../../src/federation/state/folder.ts";
import { targetFingerprint } from "../../src/rendered-files/agents-file.ts";
import { editYaml } from "../../src/runtime/edit-yaml.ts";
import { bytesOf, minimalCard } from "./cards.ts";
import {
  AT,
  commitRegistry,
  controlRepository,
  copyOfTemplate,
  LIGHTHOUSE,
  openControl,
} from "./control-repository.ts";
import { ManualClock } from "./manual-clock.ts";
import { NO_SCOPE } from "./removal.ts";
import { registryFiles } from "./sample-files.ts";
import { temporaryFolder, writeFile } from "./temporary.ts";

export const ORGANISATION = "registry/organisation.yaml";
export const WEATHER = "lighthouse-weather";
const WEATHER_CARD = "https://agents.lighthouse.example/weather/.well-known/agent-card.json";

/** What the bridge knows that agent by, when this key is pinned. */
export function fingerprintOf({ keyId, jwk }: { keyId: string; jwk: { x: string; y: string } }): string {
  const cardIdentity = { keyId, jwk: { kty: "EC", crv: "P-256", ...jwk } } as const;
  return targetFingerprint(WEATHER, { cardUrl: WEATHER_CARD, cardIdentity });
}
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

let keys: Promise<readonly [Key, Key]> | undefined;

export async function identitiesIn(directory: string) {
  keys ??= Promise.all([cardKey("harbour-card-1"), cardKey("lighthouse-card-1")]);
  const [own, weather] = await keys;
  await copyOfTemplate("identities", directory, async (template) => {
    const repository = await controlRepository(join(template, "control"));
    const organisation = rekey(registryFiles().get(ORGANISATION) ?? "", SAMPLE.own, own.identity);
    const lighthouse = rekey(registryFiles().get(LIGHTHOUSE) ?? "", SAMPLE.weather, weather.identity);
    await commitRegistry(
      repository,
      new Map([
        [ORGANISATION, organisation],
        [LIGHTHOUSE, lighthouse],
      ]),
    );
    await passOnce(template, repository, new HastyClock(AT));
  });
  const repository = await Repository.open(join(directory, "control"), "main");
  const clock = new HastyClock(AT);
  const opened = await openControl(directory, repository, clock);

  let served: Fetched = { fetched: true, bytes: await cardBy(weather) };
  let decision: Awaited<ReturnType<NonNullable<AgentParts["decision"]>>>;
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
    decide: (one: typeof decision) => {
      decision = one;
    },
    card: () => readFileSync(cardFile),
  };
}

function rekey(text: string, [keyId, x, y]: readonly [string, string, string], key: PinnedIdentity): string {
  return text.replaceAll(keyId, key.keyId).replaceAll(x, key.jwk.x).replaceAll(y, key.jwk.y);
}

export const SERVER = "matrix.lighthouse.example:8448";
export const APPROVAL = "CHG-2041";
const ALL_CLOSED = {
  transport: "closed",
  rooms: "closed",
  border: "closed",
  card: "closed",
  gateway: "closed",
};

/** What the sample partner brings anew. */
export const FRESH: NewIdentities = NewIdentities.parse({
  version: 1,
  azp: "lighthouse-bridge-2",
  clientSecret: { file: "client-secrets/lighthouse-bridge-2" },
  serverKeys: ["ed25519:a_New1"],
  agents: {
    "lighthouse-weather": {
      cardIdentity: {
        keyId: "lighthouse-card-4",
        jwk: {
          kty: "EC",
          crv: "P-256",
          x: "zjvmdgmjf8N-7es89cvuKS2STP1mNugyRlOv34M37is",
          y: "jaLs0WzS1Ga_4WaIRQZEVZ_o-r8YTDV5r11WTgMN2Pc",
        },
      },
    },
  },
});

/** Brings a repository in force, as a reconciler that is ended then; another one takes locks of its own. */
async function passOnce(directory: string, repository: Repository, clock: Clock): Promise<void> {
  const { federation } = await openControl(directory, repository, clock);
  await runPass(federation);
  rmSync(join(directory, "state", "lock-id"));
}

/** A repository in which the sample partner is removed; a reconciler had it in force. */
export async function removedPartner(directory: string, clock: Clock): Promise<Repository> {
  const repository = await controlRepository(join(directory, "control"));
  await passOnce(directory, repository, clock);
  const text = editYaml(registryFiles().get(LIGHTHOUSE) ?? "", [{ path: ["planes"], value: ALL_CLOSED }]);
  await commitRegistry(repository, new Map([[LIGHTHOUSE, text]]));
  await passOnce(directory, repository, clock);
  return repository;
}

/** Of what the sample partner brings, everything exchanged for something that was never used. */
export const FRESHER: NewIdentities = NewIdentities.parse({
  version: 1,
  azp: "lighthouse-bridge-3",
  clientSecret: { file: "client-secrets/lighthouse-bridge-3" },
  serverKeys: ["ed25519:a_New2"],
});

/** A removal of the sample partner that has begun its first stage. */
export function begunRemoval(state: StateFolder, opened_at: string): Run {
  const run = writeRun(state, {
    ...{ version: 1, run: "5".repeat(32), kind: "full", trigger: "contract_end" },
    ...{ remover: "harbour.example", partner: SERVER, self: "harbour.example" },
    ...{ private_record_file: "/nowhere", opened_at, contained_at: null, waivers: [], ended: null },
    baseline: { revision: "0".repeat(40), scope: NO_SCOPE },
  });
  writeStage(run, {
    ...{
      version: 1,
      stage: "a2a_stop",
      opened_at,
      countersignature_skipped: null,
      scope: NO_SCOPE,
    },
    ...{ commit: null, proof: null },
  });
  return run;
}

export function kept(room: string, repairable: TouchedRoom["repairable"] = "yes"): TouchedRoom {
  return { room, state: "kept", replacement: null, repairable };
}

export interface ScriptedRooms extends ReadmissionRooms {
  /** As they are now; a replacement changes them. */
  touched: TouchedRoom[];
  /** Every room that was replaced, in order. */
  readonly replaced: string[];
}

export function scriptedRooms(...touched: readonly TouchedRoom[]): ScriptedRooms {
  const replaced: string[] = [];
  const rooms: ScriptedRooms = {
    touched: [...touched],
    replaced,
    observe: async () => rooms.touched,
    replace: async (_desired, _partner, names) => {
      replaced.push(...names);
      rooms.touched = rooms.touched.map((one) =>
        names.includes(one.room)
          ? { room: one.room, state: "replaced", replacement: `${one.room}-new`, repairable: "yes" }
          : one,
      );
      return rooms.touched.filter(({ room }) => names.includes(room));
    },
  };
  return rooms;
}

/** The workflow's context over a repository, with planes of files. */
export async function workflowIn(
  directory: string,
  repository: Repository,
  clock: Clock,
  rooms: ReadmissionRooms = scriptedRooms(),
) {
  const opened = await openControl(directory, repository, clock);
  const said: string[] = [];
  const context: WorkflowContext = {
    ...opened.federation,
    random: systemRandom,
    rooms,
    say: (text) => said.push(text),
  };
  return { ...opened, context, said, repository };
}

export async function readmission(t: Pick<TestContext, "after">, rooms?: ReadmissionRooms) {
  const directory = temporaryFolder(t);
  const clock = new HastyClock(AT);
  await copyOfTemplate("removed partner", directory, (template) =>
    removedPartner(template, new HastyClock(AT)),
  );
  const repository = await Repository.open(join(directory, "control"), "main");
  return { ...(await workflowIn(directory, repository, clock, rooms)), directory, clock };
}
