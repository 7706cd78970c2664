// Measures the leak table on three real homeservers: A, which closes planes on its partner B, and D, a neutral
// third. Every measure has rooms of its own, made by each of the three in room versions 10 and 12.
// Invariants: bans come before what would keep them from arriving; a measure is looked at only when the servers
// that must know of it do, and when messages between A and D pass.
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { leakCells } from "../../src/federation/evidence/leak-rows.ts";
import { type ProbeConfig, ProbeFile } from "../../src/federation/probes/config.ts";
import type { Creator, LeakRow, LeakTable, Measure } from "../../src/federation/probes/leaks.ts";
import { probeFromOutside } from "../../src/federation/probes/outside.ts";
import { serverHost } from "../../src/federation/registry/server-host.ts";
import { findPrograms } from "../../src/lab/programs.ts";
import type { EvidenceItem } from "../../src/records/evidence-item.ts";
import { writeWhole } from "../../src/runtime/write-file.ts";
import {
  type FederatedServer,
  type FederatedUser,
  type Federation,
  startFederation,
  until,
} from "./federation.ts";

const VERSIONS = ["10", "12"] as const;
const CREATORS: readonly Creator[] = ["target", "witness", "partner"];
const MEMBERS: readonly Measure[] = ["none", "acl", "ban_acl", "no_acl", "all"];
const PROBE_STATE = "drawbridge.federation.probe";

interface Room {
  readonly createdBy: Creator;
  readonly version: string;
  readonly roomId: RoomId;
  /** Takes its place when it cannot be closed. */
  readonly replacement?: RoomId;
}

const path = (room: RoomId, rest: string) => `/rooms/${encodeURIComponent(room)}/${rest}`;

class Leaks {
  readonly #servers: Federation<"a" | "b" | "d">["servers"];
  readonly #people: Readonly<Record<Creator, FederatedUser>>;
  readonly #other: FederatedUser;
  readonly #rows: LeakRow[] = [];

  private constructor(
    servers: Federation<"a" | "b" | "d">["servers"],
    people: Record<Creator, FederatedUser>,
    other: FederatedUser,
  ) {
    this.#servers = servers;
    this.#people = people;
    this.#other = other;
  }

  static async measure(note: (text: string) => void): Promise<LeakTable> {
    const federation = await startFederation(["a", "b", "d"], {
      border: { a: (names) => JSON.stringify({ allowed_servers: Object.values(names) }) },
    });
    try {
      const { a, b, d } = federation.servers;
      const people = {
        target: await a.user("alice"),
        // An administrator, who is told what B's server holds whoever is in the room.
        partner: await b.user("bob", true),
        witness: await d.user("dora"),
      };
      const leaks = new Leaks(federation.servers, people, await b.user("bea"));
      await leaks.#all(note);
      return {
        schema: "svc.federation.leak_table.v1",
        measured_at: new Date(systemClock.now()).toISOString(),
        homeserver: `matrix-synapse/${synapseVersion()}`,
        rows: leaks.#rows,
      };
    } finally {
      await federation.dispose();
    }
  }

  async #all(note: (text: string) => void): Promise<void> {
    const { a, b, d } = this.#servers;
    const sets = new Map<Measure, readonly Room[]>();
    for (const measure of MEMBERS) sets.set(measure, await this.#rooms());
    const roomsOf = (measure: Measure) => sets.get(measure) ?? [];
    const all = [a.name, b.name, d.name];
    note("rooms are made and shared");
    await this.#look("none", roomsOf("none"), note);

    await Promise.all(roomsOf("acl").map((room) => this.#setAcl(room)));
    await this.#look("acl", roomsOf("acl"), note);
    await Promise.all(roomsOf("ban_acl").map((room) => this.#close(room, { acl: true })));
    await this.#look("ban_acl", roomsOf("ban_acl"), note);

    await Promise.all(roomsOf("no_acl").map((room) => this.#close(room, { acl: false })));
    const closed = await Promise.all(roomsOf("all").map((room) => this.#close(room, { acl: true })));
    const ended = await Promise.all(closed.map((room) => this.#replaceIfTheirs(room)));

    this.#setPolicy(all.filter((name) => name !== b.name));
    await this.#look("border", roomsOf("none"), note);
    this.#setPolicy(all);
    await this.#cutTransport(roomsOf("none")[0]);
    await this.#look("transport", roomsOf("none"), note);
    this.#setPolicy(all.filter((name) => name !== b.name));
    await this.#look("no_acl", roomsOf("no_acl"), note);
    await this.#look("all", ended, note);
  }

  #rooms(): Promise<readonly Room[]> {
    const wanted = CREATORS.flatMap((createdBy) => VERSIONS.map((version) => ({ createdBy, version })));
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

  #acl() {
    const { a, d } = this.#servers;
    const allow = [a.name, d.name].flatMap((name) => [serverHost(name), name]);
    return { allow, deny: [], allow_ip_literals: false };
  }

  /** As A's person sets it; done when D has it too. */
  async #setAcl({ roomId }: Room): Promise<void> {
    const { target, witness } = this.#people;
    const sent = await target.call("PUT", path(roomId, "state/m.room.server_acl/"), this.#acl());
    await this.#seenBy(witness, roomId, String(sent["event_id"]));
  }

  async #close(room: Room, { acl }: { acl: boolean }): Promise<Room> {
    const { target, partner, witness } = this.#people;
    const ban = await target.request("POST", path(room.roomId, "ban"), { user_id: partner.userId });
    // The creator of a room cannot be banned by anybody else.
    assert.ok(ban.status === 200 || room.createdBy === "partner", `${ban.status}`);
    if (ban.status === 200) {
      await until(
        "the ban's arrival at D",
        () =>
          witness.call("GET", path(room.roomId, `state/m.room.member/${encodeURIComponent(partner.userId)}`)),
        ({ membership }) => membership === "ban",
      );
      await until(
        "the ban's arrival at B",
        () => partner.request("GET", path(room.roomId, "joined_members")),
        ({ status }) => status === 403,
      );
    }
    if (acl) await this.#setAcl(room);
    return room;
  }

  /** What B's person has made cannot be closed: a new room of A's takes its place, and A leaves the old one. */
  async #replaceIfTheirs(room: Room): Promise<Room> {
    if (room.createdBy !== "partner") return room;
    const { target, witness } = this.#people;
    const replacement = await target.createRoom({
      room_version: room.version,
      initial_state: [{ type: "m.room.server_acl", state_key: "", content: this.#acl() }],
    });
    const joined = await witness.join(replacement, this.#servers.a.name);
    assert.equal(joined.status, 200);
    await target.call("POST", path(room.roomId, "leave"), {});
    await until(
      "A's leaving, as D sees it",
      () =>
        witness.call("GET", path(room.roomId, `state/m.room.member/${encodeURIComponent(target.userId)}`)),
      ({ membership }) => membership === "leave",
    );
    return { ...room, replacement };
  }

  #setPolicy(servers: readonly string[]): void {
    const text = JSON.stringify({ allowed_servers: servers });
    writeWhole(this.#servers.a.border.policyFile, text, 0o644);
  }

  /** A restarts with a whitelist; then messages between A and D pass again. */
  async #cutTransport(shared: Room | undefined): Promise<void> {
    assert.ok(shared !== undefined);
    const { a, d } = this.#servers;
    const { target, witness } = this.#people;
    const include = `federation_domain_whitelist: ${JSON.stringify([a.name, d.name])}\n`;
    writeWhole(a.includeFile, include, 0o644);
    await a.stop();
    await a.start();
    for (const [from, to] of [
      [witness, target],
      [target, witness],
    ] as const) {
      await this.#seenBy(to, shared.roomId, await from.say(shared.roomId, "still there?"));
    }
  }

  async #seenBy(user: FederatedUser, room: RoomId, eventId: string): Promise<void> {
    const look = () => user.request("GET", path(room, `event/${encodeURIComponent(eventId)}`));
    await until(`${eventId} for ${user.userId}`, look, ({ status }) => status === 200, 60_000);
  }

  async #look(measure: Measure, rooms: readonly Room[], note: (text: string) => void): Promise<void> {
    const tried = rooms.flatMap(({ roomId, replacement }) => [roomId, ...(replacement ? [replacement] : [])]);
    const items = await probeFromOutside(
      this.#probeConfig(tried),
      { clock: systemClock, random: systemRandom },
      { planes: new Set(["transport", "rooms"]), withState: true },
    );
    for (const { createdBy, version, roomId, replacement } of rooms) {
      const own = (item: EvidenceItem) => item.subject === roomId || item.subject === replacement;
      const cells = leakCells(items.filter(own));
      this.#rows.push({ measure, created_by: createdBy, room_version: version, cells });
    }
    note(`looked at: ${measure}`);
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
      arrivalTimeout: "4s",
    });
    return { ...config, directory: dirname(a.directory) };
  }
}

function synapseVersion(): string {
  const libraries = join(dirname(dirname(findPrograms().python)), "lib");
  const packages = readdirSync(libraries).flatMap((python) =>
    readdirSync(join(libraries, python, "site-packages")),
  );
  return (
    /^matrix_synapse-(.+)\.dist-info$/.exec(
      packages.find((name) => name.startsWith("matrix_synapse-")) ?? "",
    )?.[1] ?? "unknown"
  );
}

/** Starts the servers, measures, and ends them. @param note one line of progress */
export function measureLeaks(note: (text: string) => void = () => undefined): Promise<LeakTable> {
  return Leaks.measure(note);
}
