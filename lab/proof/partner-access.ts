// How a partner passes the five planes: looked at from outside, as the partner, by the probes that would
// show it stopped. What is found is evidence as any operator would collect it.
import type { Clock, Random } from "../../src/domain/clock.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { CLOSING_ORDER, PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { PartnerServer } from "../../src/federation/probes/as-server.ts";
import { loadProbeConfig } from "../../src/federation/probes/config.ts";
import { observe } from "../../src/federation/probes/finding.ts";
import { probeFromOutside } from "../../src/federation/probes/outside.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { roomOf, type Seed } from "../seed/seed.ts";

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

const BUSY_ATTEMPTS_MAX = 20;
const BUSY_WAIT_MS = 100;

export type Passages = Readonly<Record<CompleteOrganisation, readonly EvidenceItem[]>>;

/** By the organisation that was looked at; who looked is its partner. */
export async function lookAsPartners(lab: Lab, seed: Seed, sources: Sources): Promise<Passages> {
  const entries = COMPLETE_ORGANISATIONS.map(
    async (at) => [at, await lookAsPartner(lab, seed, at, sources)] as const,
  );
  return Object.fromEntries(await Promise.all(entries)) as unknown as Passages;
}

async function lookAsPartner(
  lab: Lab,
  seed: Seed,
  at: CompleteOrganisation,
  sources: Sources,
): Promise<EvidenceItem[]> {
  const config = loadProbeConfig(lab.paths.organisation(at).probeFile(partnerOf(at)));
  // Of the rooms only the way in: messages are left to the questions that are asked.
  const planes = new Set(PLANE_NAMES.filter((plane) => plane !== "rooms"));
  const [items, join] = await Promise.all([
    probeFromOutside(config, sources, { planes }),
    lookIntoRoom(config, roomOf(seed, at)?.roomId as RoomId, sources),
  ]);
  return [...(await repeatTheBusy(items, config, sources)), join];
}

/**
 * A homeserver takes in one transaction of another at a time and answers 429 to a second: while people talk,
 * that may be the probe's. It says neither that the partner is let in nor that it is not.
 */
async function repeatTheBusy(
  items: readonly EvidenceItem[],
  config: ReturnType<typeof loadProbeConfig>,
  sources: Sources,
): Promise<readonly EvidenceItem[]> {
  let seen = items;
  for (let left = BUSY_ATTEMPTS_MAX; left > 0 && seen.some(({ status }) => status === 429); left--) {
    await sources.clock.sleep(BUSY_WAIT_MS);
    const again = await probeFromOutside(config, sources, { planes: new Set(["transport"]) });
    seen = [...seen.filter(({ plane }) => plane !== "transport"), ...again];
  }
  return seen;
}

async function lookIntoRoom(
  config: ReturnType<typeof loadProbeConfig>,
  room: RoomId,
  sources: Sources,
): Promise<EvidenceItem> {
  const server = PartnerServer.of(config, sources);
  if (server === undefined) throw new TypeError("the lab's probe files name a signing key");
  const { serverName } = config.as;
  const about = { plane: "rooms", partner: serverName, probe: "make_join", vantage: "partner" } as const;
  try {
    return await observe({ ...about, subject: room }, sources.clock, () =>
      server.makeJoin(config.target.serverName, room, `@probe:${serverName}`),
    );
  } finally {
    await server.close();
  }
}

/** Planes of which nothing was seen to be passed, or something was seen to be closed; in closing order. */
export function planesNotPassed(items: readonly EvidenceItem[]): readonly PlaneName[] {
  return CLOSING_ORDER.filter((plane) => {
    const own = items.filter((item) => item.plane === plane);
    return own.length === 0 || own.some(({ verdict }) => verdict !== "open");
  });
}
