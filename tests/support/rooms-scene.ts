// Three real homeservers with one user each and rooms that they share: A removes B, C is a neutral third.
// Invariant: everything is gone after `dispose`.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { aclAllow } from "../../src/federation/planes/rooms/acl.ts";
import type { ClosingPartner } from "../../src/federation/planes/rooms/intent.ts";
import {
  type FederatedServer,
  type FederatedUser,
  type FederationOptions,
  startFederation,
} from "./federation.ts";
import { type RoomsDeployment, roomsDeployment } from "./rooms-deployment.ts";

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
  dispose(): Promise<void>;
}

const ROOMS_AT_ONCE = 4;

export async function roomsScene(
  options: Pick<FederationOptions, "borderClass" | "postgresUrl"> = {},
): Promise<RoomsScene> {
  const federation = await startFederation(["a", "b", "c"] as const, {
    ...options,
    border: { a: (names) => JSON.stringify({ allowed_servers: Object.values(names) }) },
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
    const room = await creator.createRoom({ room_version: version, name: "shared" });
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
      return { version: 1, own: a.name, allow: aclAllow([a.name, ...retained]), retained, closing };
    },
    sharedRoom,
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
