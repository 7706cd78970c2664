// What a neutral third server still relays of a partner, measured after each measure on three real homeservers: A,
// which closes planes on its partner B, and D, the third. Every kind of measure has rooms of its own, made by each of
// the three in room versions 10 and 12. The end states are brought about by the rooms plane itself; what shows why
// its order matters is done by hand. Invariants: bans come before what would keep them from arriving; a measure is
// observed only when the servers that must know of it do, and when messages between A and D pass.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type LeakCells, leakCells } from "../../../lab/observe/leak-rows.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import type { RoomId } from "../../../src/domain/identifiers.ts";
import { aclAllow } from "../../../src/federation/planes/rooms/acl.ts";
import { type ProbeConfig, ProbeFile } from "../../../src/federation/probes/config.ts";
import { probeFromOutside } from "../../../src/federation/probes/from-outside.ts";
import type { EvidenceItem } from "../../../src/records/format/evidence-item.ts";
import { writeWhole } from "../../../src/runtime/write-file.ts";
import {
  type FederatedServer,
  type FederatedUser,
  type Federation,
  startFederation,
  until,
} from "../../support/federation.ts";
import { type RoomsDeployment, roomsDeployment } from "../../support/rooms-deployment.ts";

/** What was done: planes alone as federation control closes them, parts of the rooms plane done by hand, end states. */
export const MEASURES = {
  none: "nothing",
  transport: "plane 1 (whitelist) alone",
  border: "plane 3 (border) alone",
  acl: "by hand: ACL, B's member still joined",
  ban_acl: "by hand: ban, then ACL",
  no_acl: "by hand: ban, no ACL; planes 1 and 3",
  rooms: "plane 2 (rooms) alone",
  contained: "planes 2 and 3: contained",
  all: "planes 2, 3 and 1: removed",
} as const;
export type Measure = keyof typeof MEASURES;

export const CREATORS = { target: "A", witness: "D", partner: "B" } as const;
export type Creator = keyof typeof CREATORS;
const CREATED_BY = Object.keys(CREATORS) as readonly Creator[];

export interface Row {
  readonly measure: Measure;
  readonly createdBy: Creator;
  readonly version: string;
  readonly cells: LeakCells;
}

const VERSIONS = ["10", "12"] as const;
/** Each of these has rooms of its own; the planes alone are observed in the rooms of `none`. */
const ROOM_SETS = ["none", "acl", "ban_acl", "no_acl", "rooms"] as const;
type RoomSet = (typeof ROOM_SETS)[number];
const ATTEMPTS_MAX = 3;
const PROBE_STATE = "drawbridge.federation.probe";

interface Room {
  readonly createdBy: Creator;
  readonly version: string;
  readonly roomId: RoomId;
  /** Takes its place when it cannot be closed. */
  readonly replacement?: RoomId;
}

/** Set where the third server had not received in time what it was to be asked for. */
const LATE = "not_applicable:witness_lacks_event";

const isKnown = (cell: string) => cell !== "unknown";
const path = (room: RoomId, rest: string) => `/rooms/${encodeURIComponent(room)}/${rest}`;

export class Measurement {
  readonly #servers: Federation<"a" | "b" | "d">["servers"];
  readonly #people: Readonly<Record<Creator, FederatedUser>>;
  readonly #other: FederatedUser;
  readonly #plane: RoomsDeployment;
  readonly #rows: Row[] = [];

  private constructor(
    servers: Federation<"a" | "b" | "d">["servers"],
    people: Record<Creator, FederatedUser>,
    other: FederatedUser,
    plane: RoomsDeployment,
  ) {
    this.#servers = servers;
    this.#people = people;
    this.#other = other;
    this.#plane = plane;
  }

  static async run(): Promise<readonly Row[]> {
    const federation = await startFederation(["a", "b", "d"], {
      border: { a: (names) => JSON.stringify({ allowed_servers: Object.values(names) }) },
    });
    try {
      const { a, b, d } = federation.servers;
      const people = {
        target: await a.user("alice"),
        // An administrator reads what B's server holds, whoever is in the room.
        partner: await b.user("bob", true),
        witness: await d.user("dora"),
      };
      const operator = await a.user("operator", true);
      const plane = roomsDeployment(a, operator.accessToken, join(a.directory, "control"));
      const measurement = new Measurement(federation.servers, people, await b.user("bea"), plane);
      await measurement.#all();
      return measurement.#rows;
    } finally {
      await federation.dispose();
    }
  }

  async #all(): Promise<void> {
    const sets = new Map<RoomSet, readonly Room[]>();
    for (const set of ROOM_SETS) sets.set(set, await this.#rooms());
    const roomsOf = (set: RoomSet) => sets.get(set) ?? [];
    await this.#observe("none", roomsOf("none"));

    await Promise.all(roomsOf("acl").map((room) => this.#setAcl(room)));
    await this.#observe("acl", roomsOf("acl"));
    await Promise.all(roomsOf("ban_acl").map((room) => this.#ban(room)));
    await Promise.all(roomsOf("ban_acl").map((room) => this.#setAcl(room)));
    await this.#observe("ban_acl", roomsOf("ban_acl"));
    // Over an open transport, or B would never learn of it.
    await Promise.all(roomsOf("no_acl").map((room) => this.#ban(room)));

    this.#setBorder("closed");
    await this.#observe("border", roomsOf("none"));
    this.#setBorder("open");
    await this.#setTransport("closed", roomsOf("none")[0]);
    await this.#observe("transport", roomsOf("none"));
    this.#setBorder("closed");
    await this.#observe("no_acl", roomsOf("no_acl"));

    this.#setBorder("open");
    await this.#setTransport("open", roomsOf("none")[0]);
    await this.#federatesAgain();
    const closed = await this.#closeByPlane(roomsOf("rooms"));
    await this.#observe("rooms", closed);
    this.#setBorder("closed");
    await this.#observe("contained", closed);
    await this.#setTransport("closed", closed[0]);
    await this.#observe("all", closed);
  }

  #rooms(): Promise<readonly Room[]> {
    const wanted = CREATED_BY.flatMap((createdBy) => VERSIONS.map((version) => ({ createdBy, version })));
    return Promise.all(
      wanted.map(async ({ createdBy, version }) => {
        const creator = this.#people[createdBy];
        const users = version === "12" ? {} : { [creator.userId]: 100 };
        const closer = createdBy === "target" ? {} : { [this.#people.target.userId]: 100 };
        const roomId = await creator.createRoom({
          room_version: version,
          power_level_content_override: { users: { ...users, ...closer }, events: { [PROBE_STATE]: 0 } },
        });
        const others = Object.values(this.#people).filter((user) => user !== creator);
        for (const user of others) {
          await until(
            "a join",
            () => user.join(roomId, this.#serverOf(createdBy).name),
            ({ status }) => status === 200,
          );
        }
        return { createdBy, version, roomId };
      }),
    );
  }

  #serverOf(who: Creator): FederatedServer {
    const { a, b, d } = this.#servers;
    return { target: a, partner: b, witness: d }[who];
  }

  /** As A's person sets it; done when D has it too. */
  async #setAcl({ roomId }: Room): Promise<void> {
    const { a, d } = this.#servers;
    const { target, witness } = this.#people;
    const acl = { allow: aclAllow([a.name, d.name]), deny: [], allow_ip_literals: false };
    const sent = await target.call("PUT", path(roomId, "state/m.room.server_acl/"), acl);
    await this.#whenVisibleTo(witness, roomId, String(sent["event_id"]));
  }

  /** As A's person bans; done when D has it too, and B has lost the room. */
  async #ban(room: Room): Promise<void> {
    const { target, partner } = this.#people;
    const ban = await target.request("POST", path(room.roomId, "ban"), { user_id: partner.userId });
    // The creator of a room cannot be banned by anybody else.
    assert.ok(ban.status === 200 || room.createdBy === "partner", `${ban.status}`);
    if (ban.status !== 200) return;
    await this.#memberAtWitness(room, partner, "ban");
    await until(
      "the ban's arrival at B",
      () => partner.request("GET", path(room.roomId, "joined_members")),
      ({ status }) => status === 403,
    );
  }

  async #memberAtWitness({ roomId }: Room, { userId }: FederatedUser, wanted: string): Promise<void> {
    await until(
      `${userId} as ${wanted} at D`,
      () =>
        this.#people.witness.call("GET", path(roomId, `state/m.room.member/${encodeURIComponent(userId)}`)),
      ({ membership }) => membership === wanted,
    );
  }

  /** The rooms plane, as containment has it applied: every room of A's is closed, or replaced by a new one. */
  async #closeByPlane(rooms: readonly Room[]): Promise<readonly Room[]> {
    await this.#applyPlane();
    const { target, witness } = this.#people;
    const replacements = await this.#replacements();
    const closed = await Promise.all(
      rooms.map(async (room) => {
        const replacement = replacements.get(room.roomId);
        assert.equal(replacement === undefined, room.createdBy !== "partner", "only B's rooms are replaced");
        if (replacement === undefined) return room;
        assert.equal((await witness.join(replacement, this.#servers.a.name)).status, 200);
        await this.#memberAtWitness(room, target, "leave");
        return { ...room, replacement };
      }),
    );
    // Servers that came into a new room after its ACL are found by the next pass, as the drift check starts one.
    await this.#applyPlane();
    return closed;
  }

  async #applyPlane(): Promise<void> {
    const { a, b, d } = this.#servers;
    const outcome = await this.#plane.apply({
      ...{ version: 1, own: a.name, allow: aclAllow([a.name, d.name]), retained: [d.name], ghosts: [] },
      closing: [
        { serverName: b.name, name: "org-b", mode: "contained", after: "keep", unclosable: "replace" },
      ],
    });
    assert.deepEqual(outcome, { state: "in_force", changed: true });
  }

  /** A's rooms that were made to replace others, by the room that was replaced. */
  async #replacements(): Promise<ReadonlyMap<unknown, RoomId>> {
    const { target } = this.#people;
    const { joined_rooms: joined } = (await target.call("GET", "/joined_rooms")) as {
      joined_rooms: RoomId[];
    };
    const found = new Map<unknown, RoomId>();
    for (const room of joined) {
      const { predecessor } = (await target.call("GET", path(room, "state/m.room.create"))) as {
        predecessor?: { room_id?: string };
      };
      if (predecessor?.room_id !== undefined) found.set(predecessor.room_id, room);
    }
    return found;
  }

  /** At the next event. */
  #setBorder(state: "open" | "closed"): void {
    const { a, b, d } = this.#servers;
    const servers = [a.name, ...(state === "open" ? [b.name] : []), d.name];
    writeWhole(a.border.policyFile, JSON.stringify({ allowed_servers: servers }), 0o644);
  }

  /** A restarts with another whitelist; then messages between A and D pass again. */
  async #setTransport(state: "open" | "closed", shared: Room | undefined): Promise<void> {
    assert.ok(shared !== undefined);
    const { a, b, d } = this.#servers;
    const { target, witness } = this.#people;
    const servers = [a.name, ...(state === "open" ? [b.name] : []), d.name];
    writeWhole(a.includeFile, `federation_domain_whitelist: ${JSON.stringify(servers)}\n`, 0o644);
    await a.stop();
    await a.start();
    for (const [from, to] of [
      [witness, target],
      [target, witness],
    ] as const) {
      await this.#whenVisibleTo(to, shared.roomId, await from.say(shared.roomId, "still there?"));
    }
  }

  /** B's server was refused for a while and asks again by itself; bans must reach it. */
  async #federatesAgain(): Promise<void> {
    const { target, partner } = this.#people;
    const room = await target.createRoom();
    await until(
      "a join of B's",
      () => partner.join(room, this.#servers.a.name),
      ({ status }) => status === 200,
      60_000,
    );
    await this.#whenVisibleTo(partner, room, await target.say(room, "there again?"));
    await this.#whenVisibleTo(target, room, await partner.say(room, "there again."));
  }

  async #whenVisibleTo(user: FederatedUser, room: RoomId, eventId: string): Promise<void> {
    const read = () => user.request("GET", path(room, `event/${encodeURIComponent(eventId)}`));
    await until(`${eventId} for ${user.userId}`, read, ({ status }) => status === 200, 60_000);
  }

  /** Probes every room, and again where something stayed unknown: on a busy machine events are late. */
  async #observe(measure: Measure, rooms: readonly Room[]): Promise<void> {
    const found = new Map<Room, LeakCells>();
    const late = new Set<Room>();
    const isClear = (room: Room) =>
      !late.has(room) && Object.values(found.get(room) ?? { none: "unknown" }).every(isKnown);
    for (let attempts = 0; attempts < ATTEMPTS_MAX && !rooms.every(isClear); attempts++) {
      const unclear = rooms.filter((room) => !isClear(room));
      const tried = unclear.flatMap(({ roomId, replacement }) => [roomId, replacement ?? []].flat());
      const items = await probeFromOutside(
        this.#probeConfig(tried),
        { clock: systemClock, random: systemRandom },
        { planes: new Set(["transport", "rooms"]), withState: true },
      );
      for (const room of unclear) {
        const { roomId, replacement } = room;
        const own = ({ subject }: EvidenceItem) => subject === roomId || subject === replacement;
        const observed = items.filter(own);
        found.set(room, leakCells(observed));
        if (observed.some(({ reason }) => reason === LATE)) late.add(room);
        else late.delete(room);
      }
    }
    for (const [{ createdBy, version }, cells] of found) {
      this.#rows.push({ measure, createdBy, version, cells });
    }
  }

  #probeConfig(rooms: readonly RoomId[]): ProbeConfig {
    const { a, b, d } = this.#servers;
    const user = (server: FederatedServer, { userId, accessToken }: FederatedUser) => {
      const file = join(server.directory, `${userId.slice(1, userId.indexOf(":"))}.token`);
      writeFileSync(file, accessToken, { mode: 0o600 });
      return { serverName: server.name, homeserverUrl: server.url, userId, accessToken: { file } };
    };
    const config = ProbeFile.parse({
      version: 1,
      target: { serverName: a.name, rooms },
      as: {
        serverName: b.name,
        signingKeyFile: join(b.directory, "signing.key"),
        federationProxy: b.proxyUrl,
        federationCaFile: b.caFile,
        user: user(b, this.#people.partner),
        otherUser: user(b, this.#other),
      },
      witness: user(d, this.#people.witness),
      observer: user(a, this.#people.target),
      arrivalTimeout: "10s",
    });
    return { ...config, directory: dirname(a.directory) };
  }
}
