// How a partner passes the five planes: probed from outside, as the partner, by the probes that would show it refused.
// The findings are evidence as any operator would collect it.
import type { RoomId } from "../../src/domain/identifiers.ts";
import { CLOSING_ORDER, PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { loadProbeConfig } from "../../src/federation/probes/config.ts";
import { probeFromOutside } from "../../src/federation/probes/from-outside.ts";
import { partnerServer } from "../../src/federation/probes/partner-server.ts";
import { observe } from "../../src/federation/probes/read-answers.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import { type Lab, pollFor, SOURCES } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { requireRoom, type Seed } from "../seed/seed-file.ts";

/** By the organisation that was probed; it was probed as its partner. */
export type PartnerAccess = Readonly<Record<CompleteOrganisation, readonly EvidenceItem[]>>;

const NOT_BUSY = { timeoutMs: 2_000, everyMs: 100 };

export async function probeAsPartners(lab: Lab, seed: Seed): Promise<PartnerAccess> {
  const entries = COMPLETE_ORGANISATIONS.map(
    async (at) => [at, await probeAsPartner(lab, seed, at)] as const,
  );
  return Object.fromEntries(await Promise.all(entries)) as unknown as PartnerAccess;
}

async function probeAsPartner(lab: Lab, seed: Seed, at: CompleteOrganisation): Promise<EvidenceItem[]> {
  const config = loadProbeConfig(lab.paths.organisation(at).probeFile(partnerOf(at)));
  const room = requireRoom(seed, at).roomId as RoomId;
  // Of the rooms plane only a join is probed: messages cross with the questions.
  const planes = new Set(PLANE_NAMES.filter((plane) => plane !== "rooms"));
  const [items, join] = await Promise.all([
    probeFromOutside(config, SOURCES, { planes }),
    probeJoin(config, room),
  ]);
  // A homeserver processes one transaction of another at a time and answers 429 to a second, which while people write
  // may be the probe's. That says neither that the partner is let in nor that it is refused.
  let found = items;
  const isBusy = () => found.some(({ status }) => status === 429);
  await pollFor(async () => {
    if (!isBusy()) return true;
    const again = await probeFromOutside(config, SOURCES, { planes: new Set(["transport"]) });
    found = [...found.filter(({ plane }) => plane !== "transport"), ...again];
    return undefined;
  }, NOT_BUSY);
  return [...found, join];
}

async function probeJoin(config: ReturnType<typeof loadProbeConfig>, room: RoomId): Promise<EvidenceItem> {
  const server = partnerServer(config, SOURCES);
  if (server === undefined) throw new TypeError("the lab's probe files name a signing key");
  const { serverName } = config.as;
  const about = { plane: "rooms", partner: serverName, probe: "make_join", vantage: "partner" } as const;
  try {
    return await observe({ ...about, subject: room }, SOURCES.clock, () =>
      server.makeJoin(config.target.serverName, room, `@probe:${serverName}`),
    );
  } finally {
    await server.close();
  }
}

/** Planes without an observation, or with one that is not open; in closing order. */
export function planesNotOpen(items: readonly EvidenceItem[]): readonly PlaneName[] {
  return CLOSING_ORDER.filter((plane) => {
    const own = items.filter((item) => item.plane === plane);
    return own.length === 0 || own.some(({ verdict }) => verdict !== "open");
  });
}
