// All probes from outside that a probe.yaml allows, over the planes that are asked about.
// Invariants: a probe whose section is missing is listed as left out, with what it lacks; no probe is reported
// closed without an answer that refused, or an absence that is explained.
import type { RoomId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import type { ProbeConfig, ProbeUser } from "./config.ts";
import { probeCards, probeInvocation } from "./partner-at-gateway.ts";
import { probeRoom } from "./partner-in-rooms.ts";
import { PartnerServer } from "./partner-server.ts";
import { type Explanation, ProbedRoom, type RoomPeople, type RoomProbeOptions } from "./probed-room.ts";
import { notConfigured, type OutsideProbe, observe, type ProbeSubject } from "./read-answers.ts";
import { Person, type ProbeSources } from "./user.ts";

export interface OutsideOptions {
  readonly planes?: ReadonlySet<PlaneName>;
  readonly violationOf?: RoomProbeOptions["violationOf"];
  /** Also sends state, which stays for ever: for rooms that are thrown away. */
  readonly withState?: boolean;
  /** Rooms that are tried besides those of probe.yaml, such as replacements. */
  readonly rooms?: readonly RoomId[];
}

export async function probeFromOutside(
  config: ProbeConfig,
  sources: ProbeSources,
  options: OutsideOptions = {},
): Promise<EvidenceItem[]> {
  const planes = options.planes ?? new Set(PLANE_NAMES);
  const server = PartnerServer.of(config, sources);
  const person = (user: ProbeUser | undefined) =>
    user === undefined ? undefined : new Person(user, config.directory, sources);
  const people: RoomPeople = {
    partnerName: config.as.serverName,
    targetName: config.target.serverName,
    server,
    partner: person(config.as.user),
    other: person(config.as.otherUser),
    witness: person(config.witness),
    observer: person(config.observer),
  };
  const items: EvidenceItem[] = [];
  try {
    if (planes.has("gateway")) items.push(...(await probeInvocation(config, sources)));
    if (planes.has("card")) items.push(...(await probeCards(config, sources)));
    // Whether the server itself is let in explains what does not arrive in rooms.
    const reach = await probeServer(config, people, sources);
    items.push(...reach.filter((item) => planes.has(item.plane)));
    if (planes.has("rooms")) items.push(...(await probeRooms(config, people, reach, sources, options)));
    return items;
  } finally {
    await server?.close();
  }
}

async function probeServer(
  config: ProbeConfig,
  people: RoomPeople,
  sources: ProbeSources,
): Promise<EvidenceItem[]> {
  const { clock } = sources;
  const { server, partner, observer, partnerName, targetName } = people;
  const { invitee } = config.target;
  const about = (plane: PlaneName, probe: OutsideProbe, subject: string): ProbeSubject => {
    return { plane, partner: partnerName, vantage: "partner", probe, subject };
  };
  return [
    await observe(about("transport", "federation_send", targetName), clock, () =>
      server === undefined ? PartnerServer.sendWithoutKey(config, sources) : server.send(),
    ),
    await observe(about("border", "invite", invitee ?? targetName), clock, () => {
      if (server === undefined) return notConfigured("signing_key");
      if (invitee === undefined) return notConfigured("invitee");
      return server.invite(partner?.userId ?? `@probe:${partnerName}`, invitee, observer);
    }),
  ];
}

async function probeRooms(
  config: ProbeConfig,
  people: RoomPeople,
  reach: readonly EvidenceItem[],
  sources: ProbeSources,
  options: OutsideOptions,
): Promise<EvidenceItem[]> {
  const partner = people.partnerName;
  const about = { plane: "rooms", partner, vantage: "partner", probe: "message_to_target" } as const;
  if (config.target.rooms.length === 0 && (options.rooms ?? []).length === 0) {
    return [await observe({ ...about, subject: null }, sources.clock, () => notConfigured("rooms"))];
  }
  const isRefused = reach.some(({ probe, verdict }) => probe === "federation_send" && verdict === "closed");
  const transport: Explanation | undefined = isRefused
    ? { layer: "transport", reason: "federation_denied" }
    : undefined;
  const { violationOf, withState = false } = options;
  const roomOptions = { arrivalTimeoutMs: config.arrivalTimeout, transport, violationOf, withState };
  const rooms = new Set<RoomId>();
  const items: EvidenceItem[] = [];
  for (const named of config.target.rooms) {
    const room = await resolveRoom(named, people);
    if (room !== undefined) rooms.add(room);
    else
      items.push(
        await observe({ ...about, subject: named }, sources.clock, () => notConfigured("known_room")),
      );
  }
  for (const room of options.rooms ?? []) rooms.add(room);
  // All at once and to their end, also where one fails: whoever came into a room is to have left it.
  const found = await mapConcurrent([...rooms], rooms.size, (room) =>
    probeRoom(new ProbedRoom(room, people, roomOptions, sources)),
  );
  return [...items, ...found.flat()];
}

async function resolveRoom(named: string, people: RoomPeople): Promise<RoomId | undefined> {
  for (const person of [people.observer, people.witness, people.partner]) {
    const room = await person?.resolve(named).catch(() => undefined);
    if (room !== undefined) return room;
  }
  return undefined;
}
