// The rooms plane of one federated test server, configured as a deployment would be, and a scene of three real
// homeservers with one user each and rooms that they share: A removes B, C is a neutral third.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { RoomId, ServerName, UserId } from "../../src/domain/identifiers.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import { borderStatus } from "../../src/federation/planes/border/runtime.ts";
import type { DesiredPlane, Drift, PlaneOutcome } from "../../src/federation/planes/plane.ts";
import { aclAllow } from "../../src/federation/planes/rooms/acl.ts";
import { type ClosingPartner, ROOMS_INTENT } from "../../src/federation/planes/rooms/render.ts";
import { roomsRuntime } from "../../src/federation/planes/rooms/runtime.ts";
import type { PartnerEntry } from "../../src/federation/registry/partner.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import {
  type FederatedServer,
  type FederatedUser,
  type FederationOptions,
  personAt,
  startFederation,
} from "./federation.ts";

export interface RoomsDeployment {
  /** What the passes told. */
  readonly notes: readonly string[];
  apply(intent: unknown): Promise<PlaneOutcome>;
  drift(intent: unknown): Promise<readonly Drift[]>;
  probe(intent: unknown, partner: string): Promise<readonly EvidenceItem[]>;
  readonly enforcement: ReturnType<typeof borderStatus>["enforcement"];
}

export function roomsDeployment(
  server: FederatedServer,
  operatorToken: string,
  folder: string,
): RoomsDeployment {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "operator-token"), operatorToken, { mode: 0o600 });
  const config = {
    directory: folder,
    state: "state",
    homeserver: {
      url: server.url,
      operatorToken: { file: "operator-token" },
      signingKeyFile: join(server.directory, "signing.key"),
      federationProxy: server.proxyUrl,
      federationCaFile: server.caFile,
    },
    border: { statusToken: { file: server.border.statusTokenFile } },
  } as unknown as FederationConfig;
  const runtime = roomsRuntime(config, systemClock);
  const notes: string[] = [];
  const desired = (intent: unknown) =>
    ({
      revision: "test",
      files: new Map([[ROOMS_INTENT, JSON.stringify(intent)]]),
    }) as unknown as DesiredPlane;
  return {
    notes,
    apply: (intent) => runtime.apply(desired(intent), (text) => notes.push(text)),
    drift: (intent) => runtime.drift(desired(intent)),
    probe: (intent, partner) =>
      runtime.probe(desired(intent), { partner: { serverName: partner } } as unknown as PartnerEntry),
    enforcement: (room, name) => borderStatus(config).enforcement(room, name),
  };
}

export interface RoomsScene {
  readonly servers: Readonly<Record<"a" | "b" | "c", FederatedServer>>;
  readonly alice: FederatedUser;
  readonly bob: FederatedUser;
  readonly carol: FederatedUser;
  /** A's operator. */
  readonly root: FederatedUser;
  /** A's rooms plane. */
  readonly plane: RoomsDeployment;
  /** Its folder: journals are in `state/rooms`. */
  readonly folder: string;
  /** B as a partner that closes. */
  closingB(more?: Partial<ClosingPartner>): ClosingPartner;
  /** What is in force with these partners closing, of B and C. */
  intent(...closing: readonly ClosingPartner[]): unknown;
  /** A public room of `creator`, joined by the others. */
  sharedRoom(creator: FederatedUser, others: readonly FederatedUser[], version?: string): Promise<RoomId>;
  /** Rooms of alice's, with everybody in them. */
  sharedRooms(count: number): Promise<RoomId[]>;
  /** A user of A's application service; its localpart begins with `agent_`. */
  ghost(localpart: string): Promise<FederatedUser>;
  dispose(): Promise<void>;
}

/** Of an application service that does not run. */
function registration(asToken: string): string {
  return JSON.stringify({
    id: "agents",
    url: null,
    as_token: asToken,
    hs_token: systemRandom.bytes(16).toString("hex"),
    sender_localpart: "agents",
    namespaces: { users: [{ exclusive: true, regex: "^@agent_.*$" }], aliases: [], rooms: [] },
  });
}

const ROOMS_AT_ONCE = 4;

const admitAll = (names: Readonly<Record<string, ServerName>>) =>
  JSON.stringify({ allowed_servers: Object.values(names) });

export async function roomsScene(options: Pick<FederationOptions, "postgresUrl"> = {}): Promise<RoomsScene> {
  const asToken = systemRandom.bytes(16).toString("hex");
  const federation = await startFederation(["a", "b", "c"] as const, {
    ...options,
    registration: { a: registration(asToken) },
    border: { a: admitAll, b: admitAll },
  });
  const { servers } = federation;
  const { a, b, c } = servers;
  const folder = mkdtempSync(join(tmpdir(), "drawbridge rooms "));
  const [root, alice, bob, carol] = await Promise.all([
    a.user("root", true),
    a.user("alice"),
    b.user("bob"),
    c.user("carol"),
  ]);

  const sharedRoom: RoomsScene["sharedRoom"] = async (creator, others, version = "12") => {
    const power_level_content_override = { invite: 0 };
    const room = await creator.createRoom({
      room_version: version,
      name: "shared",
      power_level_content_override,
    });
    for (const user of others) {
      const joined = await user.join(room, a.name, b.name, c.name);
      assert.equal(joined.status, 200, JSON.stringify(joined.body));
    }
    return room;
  };
  return {
    servers,
    root,
    alice,
    bob,
    carol,
    folder,
    plane: roomsDeployment(a, root.accessToken, folder),
    closingB: (more = {}) => ({
      serverName: b.name,
      name: "org-b",
      mode: "contained",
      after: "keep",
      unclosable: "list",
      ...more,
    }),
    intent: (...closing) => {
      const gone = closing.map(({ serverName }) => serverName);
      const retained = [b.name, c.name].filter((server) => !gone.includes(server));
      return {
        version: 1,
        own: a.name,
        allow: aclAllow([a.name, ...retained]),
        retained,
        ghosts: [],
        closing,
      };
    },
    sharedRoom,
    ghost: async (localpart) => {
      const asked = await fetch(`${a.url}/_matrix/client/v3/register`, {
        method: "POST",
        headers: { authorization: `Bearer ${asToken}` },
        body: JSON.stringify({ type: "m.login.application_service", username: localpart }),
      });
      const made = (await asked.json()) as { user_id: UserId; access_token: string };
      assert.equal(asked.status, 200, JSON.stringify(made));
      return personAt(a.url, made.user_id, made.access_token);
    },
    sharedRooms: async (count) => {
      const rooms: RoomId[] = [];
      let begun = 0;
      const make = async () => {
        while (begun < count) {
          begun += 1;
          rooms.push(await sharedRoom(alice, [bob, carol]));
        }
      };
      await Promise.all(Array.from({ length: ROOMS_AT_ONCE }, make));
      return rooms;
    },
    dispose: async () => {
      await federation.dispose();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
