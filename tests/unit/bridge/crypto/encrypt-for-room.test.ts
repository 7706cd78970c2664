// What may go out to a room, whatever the homeserver answers about it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createRoomEncryption } from "../../../../src/bridge/crypto/encrypt-for-room.ts";
import { type Outcome, retry } from "../../../../src/bridge/matrix/request-result.ts";
import type { GhostMxid, RoomId, UserId } from "../../../../src/domain/identifiers.ts";
import { ACTOR, openDevice } from "../../../support/fake-devices.ts";

const ROOM = "!room" as RoomId;
const WEEK_MS = 7 * 24 * 3_600 * 1_000;
const ok = <T>(value: T): Outcome<T> => ({ kind: "ok", value });

type State = Outcome<Readonly<Record<string, unknown>> | undefined>;

const MACHINES = {
  missingSessions: async () => [],
  shareRoomKey: async () => [],
  encrypt: async () => ({ ciphertext: "sealed" }),
};

const asked = (state: State, known = false) => {
  const homeserver = { stateEvent: async () => state, joinedMembers: async () => ok([]) };
  const rooms = createRoomEncryption(homeserver, MACHINES, { isRoomEncrypted: async () => known });
  return rooms.encryptionOf(ACTOR, ROOM);
};

const KNOWN = { isRoomEncrypted: async () => true };

/** The state of an encrypted room. */
const ENCRYPTED: State = ok({ algorithm: "m.megolm.v1.aes-sha2" });

describe("encrypting for a room", () => {
  it("encryptionOf takes the rotation from the room's state, within bounds [ENC-7]", async () => {
    const algorithm = "m.megolm.v1.aes-sha2";
    const settings = async (content: Readonly<Record<string, unknown>>) => await asked(ok(content));
    assert.deepEqual(await settings({ algorithm }), ok({ rotationMessages: 100, rotationMs: WEEK_MS }));
    const given = { algorithm, rotation_period_msgs: 7, rotation_period_ms: 3_600_000 };
    assert.deepEqual(await settings(given), ok({ rotationMessages: 7, rotationMs: 3_600_000 }));
    for (const odd of [-1, 0, 1.5, "7", null]) {
      const content = { algorithm, rotation_period_msgs: odd, rotation_period_ms: odd };
      assert.deepEqual(await settings(content), ok({ rotationMessages: 100, rotationMs: WEEK_MS }));
    }
    const huge = { algorithm, rotation_period_msgs: 1e15, rotation_period_ms: 1e15 };
    assert.deepEqual(await settings(huge), ok({ rotationMessages: 10_000, rotationMs: 10 * WEEK_MS }));
  });

  it("plain text is sent only to rooms that are not encrypted and never were [ENC-7]", async () => {
    assert.deepEqual(await asked(ok(undefined)), ok(undefined));
    const refusals: readonly [State, boolean][] = [
      [ok(undefined), true],
      [ok({}), false],
      [ok({ algorithm: "org.example.rot13" }), false],
      [ok({ algorithm: 1 }), false],
    ];
    for (const [state, known] of refusals) assert.equal((await asked(state, known)).kind, "refused");
    assert.equal((await asked(retry("network"))).kind, "retry");
  });

  it("no event is returned when the room cannot be read or the key cannot be shared [ENC-7]", async () => {
    const outcome = <T>(value: T) =>
      fc.constantFrom<Outcome<T>>(ok(value), retry("network"), {
        kind: "refused",
        status: 403,
        errcode: "M_FORBIDDEN",
      });
    const requests = fc.subarray(["keys_query", "keys_claim", "to_device"] as const);
    await fc.assert(
      fc.asyncProperty(
        outcome<Readonly<Record<string, unknown>> | undefined>({ algorithm: "m.megolm.v1.aes-sha2" }),
        outcome<readonly UserId[]>([]),
        outcome("{}"),
        requests,
        async (state, members, answer, wanted) => {
          const request = (kind: (typeof wanted)[number]) => ({ id: kind, kind, body: "{}" });
          const encrypted: string[] = [];
          const submitted: string[] = [];
          let asked = false;
          const machines = {
            outgoing: async () => {
              if (asked || !wanted.includes("keys_query")) return [];
              asked = answer.kind === "ok";
              return [request("keys_query")];
            },
            sent: async () => {},
            track: async () => {},
            missingSessions: async () => (wanted.includes("keys_claim") ? [request("keys_claim")] : []),
            shareRoomKey: async () => (wanted.includes("to_device") ? [request("to_device")] : []),
            encrypt: async (_ghost: GhostMxid, _room: RoomId, type: string) => {
              encrypted.push(type);
              return { ciphertext: "sealed" };
            },
          };
          const device = await openDevice(machines, async (kind) => {
            submitted.push(kind);
            return answer;
          });
          const homeserver = { stateEvent: async () => state, joinedMembers: async () => members };
          const sealed = await createRoomEncryption(homeserver, machines, KNOWN).encrypt(
            device,
            ACTOR,
            ROOM,
            {
              eventType: "m.room.message",
              content: { body: "secret", "m.relates_to": { rel_type: "m.thread" } },
            },
          );
          const mayGo =
            state.kind === "ok" &&
            members.kind === "ok" &&
            (answer.kind === "ok" ||
              (!wanted.includes("to_device") && !(answer.kind === "retry" && wanted.length > 0)));
          assert.equal(sealed.kind === "ok", mayGo);
          assert.equal(encrypted.length, mayGo ? 1 : 0);
          assert.doesNotMatch(JSON.stringify(sealed), /secret/);
          if (sealed.kind === "ok") {
            assert.equal(sealed.value.eventType, "m.room.encrypted");
            assert.deepEqual(sealed.value.content["m.relates_to"], { rel_type: "m.thread" });
          }
        },
      ),
    );
  });

  it("the members are read once when there was nothing to query [ENC-7]", async () => {
    let reads = 0;
    const machines = { ...MACHINES, outgoing: async () => [], track: async () => {} };
    const device = await openDevice(machines, async () => ok("{}"));
    const homeserver = {
      stateEvent: async () => ENCRYPTED,
      joinedMembers: async () => {
        reads += 1;
        return ok(["@alice:a.test" as UserId]);
      },
    };
    const sealed = await createRoomEncryption(homeserver, machines, KNOWN).encrypt(device, ACTOR, ROOM, {
      eventType: "m.room.message",
      content: { body: "secret" },
    });
    assert.equal(sealed.kind, "ok");
    assert.equal(reads, 1);
  });

  it("keys go out only when the homeserver has a new epoch, by which a store that was put back is known [ENC-2] [ENC-7]", async () => {
    const done: string[] = [];
    let recorded: Outcome<undefined> = ok(undefined);
    let own: { id: string; kind: string; body: string }[] = [];
    const machines = {
      ...MACHINES,
      ...{ outgoing: async () => own.splice(0), sent: async () => {}, track: async () => {} },
      shareRoomKey: async () => [{ id: "key", kind: "to_device", body: "{}" } as const],
    };
    const submit = async (kind: string) => {
      done.push(kind);
      return ok("{}");
    };
    const setDeviceRecord = async () => {
      done.push("epoch");
      return recorded;
    };
    const device = await openDevice(machines, submit, { setDeviceRecord });
    await device.drain();
    const homeserver = { stateEvent: async () => ENCRYPTED, joinedMembers: async () => ok([]) };
    const rooms = createRoomEncryption(homeserver, machines, KNOWN);
    const made = async (work: () => Promise<Outcome<unknown>>) => {
      done.length = 0;
      return [(await work()).kind, ...done];
    };
    const share = () => rooms.share(device, ACTOR, ROOM, false);
    const upload = () => {
      own = [{ id: "own", kind: "keys_upload", body: "{}" }];
      return device.requests.drive();
    };
    assert.deepEqual(await made(share), ["ok", "epoch", "to_device"]);
    assert.deepEqual(await made(upload), ["ok", "epoch", "keys_upload"]);
    recorded = retry("network");
    assert.deepEqual(await made(share), ["retry", "epoch"]);
    assert.deepEqual(await made(upload), ["retry", "epoch"]);
  });

  it("a member who leaves during the key queries gets no key of the event [ENC-7]", async () => {
    const [alice, mallory] = ["@alice:a.test", "@mallory:c.test"] as UserId[];
    let members = [alice, mallory];
    const sharedWith: (readonly UserId[])[] = [];
    const machines = {
      outgoing: async () => [],
      sent: async () => {},
      track: async () => {},
      missingSessions: async () => [{ id: "claim", kind: "keys_claim", body: "{}" }] as const,
      shareRoomKey: async (_ghost: GhostMxid, _room: RoomId, users: readonly UserId[]) => {
        sharedWith.push(users);
        return [];
      },
      encrypt: async () => ({ ciphertext: "sealed" }),
    };
    const device = await openDevice(machines, async () => {
      members = [alice];
      return ok("{}");
    });
    const homeserver = {
      stateEvent: async () => ENCRYPTED,
      joinedMembers: async () => ok(members as UserId[]),
    };
    const sealed = await createRoomEncryption(homeserver, machines, KNOWN).encrypt(device, ACTOR, ROOM, {
      eventType: "m.room.message",
      content: { body: "secret" },
    });
    assert.equal(sealed.kind, "ok");
    assert.deepEqual(sharedWith, [[alice]]);
  });
});
