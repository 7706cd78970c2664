// The Matrix client-server API of devices and their keys, as the bridge uses it for ghosts.
// Invariants: bodies that a machine made are passed on unread; whether a device exists is requested without acting as
// it, so that the request cannot fail because of the device's deletion; a query for keys whose answer is too large is made
// again by halves, so that one user's keys keep no other's away, and a user whose keys alone are too large is reported and
// left out until a growing wait has passed.
// Protocol: Matrix client-server API, "End-to-end encryption" and "Send-to-device messaging".
import { LRUCache } from "lru-cache";
import { z } from "zod";
import type { Clock } from "../../domain/clock.ts";
import { type GhostMxid, parseUserId, serverOf, type UserId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { isTooDeep } from "../../domain/strict-json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import type { DeviceIdentity } from "../ledger/crypto-stores.ts";
import type { GhostActor, HomeserverHttp } from "./http.ts";
import type { PruneBounds } from "./read-pruned-json.ts";
import { readableKeys } from "./readable-keys.ts";
import { mapValue, type Outcome, unlessRefused } from "./request-result.ts";

/** The account data in which a ghost's device is recorded at the homeserver. */
const DEVICE_RECORD_TYPE = "org.drawbridge.device";

/**
 * Nothing of rooms, presence or account data: a catchup of keys costs the homeserver a few milliseconds. A
 * homeserver answers the same question with the same answer for minutes, whatever came meanwhile, so each
 * differs in a limit that means nothing.
 */
const toDeviceFilter = (question: number) =>
  JSON.stringify({
    room: { rooms: [], timeline: { limit: 1 + (question % 1_000) } },
    presence: { types: [] },
    account_data: { types: [] },
  });
/** How many to-device messages a homeserver gives at a time. */
const TO_DEVICE_PAGE = 100;
/**
 * A homeserver bounds what its own users put into a to-device message (Synapse: 64 KiB), and not what another
 * server sends: one message may have as many megabytes as a request may, and a page has a hundred.
 */
const TO_DEVICE_BOUNDS: PruneBounds = {
  what: "list_elements",
  elementBytesMax: 128 * 1024,
  bytesMax: 16 * 1024 * 1024,
  readBytesMax: 512 * 1024 * 1024,
};
/** For a page of hundreds of megabytes, which a homeserver takes a while to write. */
const TO_DEVICE_TIMEOUT_MS = 60_000;

const AnyObject = z.record(z.string(), z.unknown());
const Users = z
  .array(z.unknown())
  .transform((users) => users.map(parseUserId).filter((user): user is UserId => user !== undefined));

const SyncResponse = z.object({
  next_batch: z.string().min(1),
  to_device: z.object({ events: z.array(z.unknown()) }).optional(),
  device_lists: z.object({ changed: Users.optional(), left: Users.optional() }).optional(),
  device_one_time_keys_count: z.record(z.string(), z.number()).optional(),
  device_unused_fallback_key_types: z.array(z.string()).optional(),
});

const DeviceRecord = z.object({
  device_id: z.string(),
  epoch: z.string().regex(/^[0-9]{1,18}$/),
});

const Signatures = z.record(z.string(), z.record(z.string(), z.unknown()));
const OwnKeys = z.object({
  device_keys: z
    .record(
      z.string(),
      z.record(
        z.string(),
        z.object({ keys: z.record(z.string(), z.string()), signatures: Signatures.optional() }),
      ),
    )
    .optional(),
  self_signing_keys: z.record(z.string(), z.object({ keys: z.record(z.string(), z.string()) })).optional(),
});

/** What a transaction, or a catchup, brought for one ghost's device. */
export interface DeviceChanges {
  /** To-device messages, raw, in the order they came: `{ sender, type, content }`. */
  readonly toDevice: readonly UnknownObject[];
  readonly changedUsers: readonly UserId[];
  readonly leftUsers: readonly UserId[];
  /** By algorithm; undefined when nothing was said: the last known counts stay. */
  readonly oneTimeKeyCounts: Readonly<Record<string, number>> | undefined;
  /** Undefined when nothing was said. */
  readonly unusedFallbackKeys: readonly string[] | undefined;
}

/** A request that a machine wants made in its ghost's name; its body is never logged. */
export interface OutgoingRequest {
  readonly id: string;
  readonly kind:
    | "keys_upload"
    | "keys_query"
    | "keys_claim"
    | "to_device"
    | "signature_upload"
    | "signing_keys_upload";
  /** JSON. */
  readonly body: string;
  /** Of `to_device`. */
  readonly eventType?: string;
  readonly transactionId?: string;
}

/** One page of a catchup. */
export interface ToDevicePage {
  readonly changes: DeviceChanges;
  /** Where the next page begins; requesting that page deletes what came before it. */
  readonly next: string;
  /** Messages that were not read, because they are too large, too deep or none. */
  readonly skipped: number;
  readonly isFull: boolean;
}

/** What the homeserver publishes of a device. */
export interface PublishedDevice {
  readonly identity: DeviceIdentity;
  /** Whether the ghost's own self-signing key has signed it. */
  readonly crossSigned: boolean;
}

/** Which device a ghost has, and how far its state had come, as written down at the homeserver. */
export interface DeviceRecord {
  readonly deviceId: string;
  readonly epoch: bigint;
}

const BACKOFF = { firstMs: 60_000, maxMs: 60 * 60_000 };
const ANSWERS_MAX = 4;
/** Users, and servers, that are remembered; a hostile server has any number of them. */
const REMEMBERED_MAX = 1_000;

/** Only users whose keys are too large were asked for. The code is the bridge's own, not the homeserver's. */
const TOO_LARGE = { kind: "refused", status: 413, errcode: "ORG.DRAWBRIDGE.KEYS_TOO_LARGE" } as const;

/**
 * `POST /keys/query` for many users, of whom some may have more keys than is read of an answer. The answers of a few requests
 * at most are held. A machine asks again for whoever is missing in its answer.
 */
export class KeysQuery {
  readonly #clock: Pick<Clock, "now">;
  readonly #onTooLarge: (user: string) => void;
  readonly #tooLarge = new LRUCache<string, { readonly until: number; readonly times: number }>({
    max: REMEMBERED_MAX,
  });

  constructor(clock: Pick<Clock, "now">, onTooLarge: (user: string) => void = () => undefined) {
    this.#clock = clock;
    this.#onTooLarge = onTooLarge;
  }

  /** @param send makes the request for some of the users that `body` names */
  async run(
    body: UnknownObject,
    send: (body: UnknownObject) => Promise<Outcome<UnknownObject>>,
  ): Promise<Outcome<UnknownObject>> {
    const users = Object.entries((body["device_keys"] ?? {}) as UnknownObject);
    const open = [users.filter(([user]) => !this.#waits(user))].filter(({ length }) => length > 0);
    const answers: UnknownObject[] = [];
    while (answers.length < ANSWERS_MAX) {
      const group = open.shift();
      if (group === undefined) break;
      const outcome = await send({ ...body, device_keys: Object.fromEntries(group) });
      if (outcome.kind === "ok") {
        answers.push(outcome.value);
      } else if (outcome.kind === "retry" && outcome.cause === "too_large") {
        const half = Math.ceil(group.length / 2);
        const [[user] = [""]] = group;
        if (half === group.length) this.#leaveOut(user);
        else open.unshift(group.slice(0, half), group.slice(half));
      } else if (answers.length === 0) {
        return outcome;
      } else {
        break;
      }
    }
    return answers.length === 0 ? TOO_LARGE : { kind: "ok", value: merged(answers) };
  }

  #waits(user: string): boolean {
    return this.#clock.now() < (this.#tooLarge.peek(user)?.until ?? 0);
  }

  #leaveOut(user: string): void {
    const times = this.#tooLarge.get(user)?.times ?? 0;
    this.#tooLarge.set(user, { until: this.#clock.now() + backoffMs(BACKOFF, times), times: times + 1 });
    this.#onTooLarge(user);
  }
}

/** So often in a row a server's users may be claimed from in vain, before others' answers do without them. */
const VAIN_CLAIMS_MAX = 3;
const CLAIM_REQUESTS_MAX = 32;

/**
 * `POST /keys/claim` for users of several servers, each of which answers what it likes: so much that it is not read, or what
 * the homeserver itself fails at. The claim is made again by halves of the servers then. A server of which nothing can be
 * claimed, while others can or again and again, is reported to the machine as one that failed, as a homeserver does with
 * one that is out of reach.
 */
class KeysClaim {
  readonly #vain = new Map<string, number>();

  /** @param own the homeserver itself, whose failure is no other server's doing */
  async run(
    body: UnknownObject,
    own: string,
    send: (body: UnknownObject) => Promise<Outcome<UnknownObject>>,
  ): Promise<Outcome<UnknownObject>> {
    const users = Object.entries((body["one_time_keys"] ?? {}) as UnknownObject);
    const byServer = Map.groupBy(users, ([user]) => user.slice(user.indexOf(":") + 1));
    const open: string[][] = [[...byServer.keys()]];
    const answers: UnknownObject[] = [];
    const failed: string[] = [];
    let failure: Outcome<UnknownObject> | undefined;
    for (let requests = 0; open.length > 0; requests++) {
      const servers = open.shift() ?? [];
      const part = Object.fromEntries(servers.flatMap((server) => byServer.get(server) ?? []));
      const outcome = await send({ ...body, one_time_keys: part });
      if (outcome.kind === "ok") {
        answers.push(outcome.value);
        for (const server of servers) this.#vain.delete(server);
        continue;
      }
      const isOfOne = outcome.kind === "retry" && ["too_large", "server_error"].includes(outcome.cause);
      if (!isOfOne || servers.join() === own) return outcome;
      failure = outcome;
      const half = Math.ceil(servers.length / 2);
      if (half === servers.length || requests >= CLAIM_REQUESTS_MAX) failed.push(...servers);
      else open.unshift(servers.slice(0, half), servers.slice(half));
    }
    for (const server of failed) this.#failed(server);
    const isGivenUp = failed.every((server) => (this.#vain.get(server) ?? 0) >= VAIN_CLAIMS_MAX);
    if (answers.length === 0 && failure !== undefined && !isGivenUp) return failure;
    const failures = Object.fromEntries(failed.map((server) => [server, {}]));
    return { kind: "ok", value: merged([...answers, { one_time_keys: {}, failures }]) };
  }

  #failed(server: string): void {
    const times = this.#vain.get(server) ?? 0;
    this.#vain.delete(server);
    this.#vain.set(server, times + 1);
    const [oldest] = this.#vain.keys();
    if (this.#vain.size > REMEMBERED_MAX && oldest !== undefined) this.#vain.delete(oldest);
  }
}

/** The objects of several answers as one: their keys are users, and servers that failed. */
function merged(answers: readonly UnknownObject[]): UnknownObject {
  const all: Record<string, unknown> = {};
  for (const answer of answers) {
    for (const [part, value] of Object.entries(answer)) {
      all[part] = { ...(all[part] as object | undefined), ...(value as object) };
    }
  }
  return all;
}

export class DeviceApi {
  readonly #http: HomeserverHttp;
  readonly #keysQuery: KeysQuery;
  readonly #keysClaim = new KeysClaim();
  #questions = 0;

  constructor(http: HomeserverHttp, keysQuery: KeysQuery) {
    this.#http = http;
    this.#keysQuery = keysQuery;
  }

  /** Makes a request that a machine wants made. The value is the answer's body, as JSON. */
  async submit(actor: GhostActor, request: OutgoingRequest): Promise<Outcome<string>> {
    const { method, path } = targetOf(request);
    const body = JSON.parse(request.body) as UnknownObject;
    const send = (part: UnknownObject) =>
      this.#http.request(request.kind, method, path, { body: part, as: actor, schema: AnyObject });
    const outcome = await (request.kind === "keys_query"
      ? this.#keysQuery.run(body, send)
      : request.kind === "keys_claim"
        ? this.#keysClaim.run(body, serverOf(actor.ghost), send)
        : send(body));
    return mapValue(outcome, (body) => JSON.stringify(readableKeys(request.kind, body)));
  }

  /** `PUT /sendToDevice/{type}/{txnId}`; the ID must be unique across the whole appservice. */
  sendToDevice(
    actor: GhostActor,
    eventType: string,
    transactionId: string,
    messages: Readonly<Record<string, UnknownObject>>,
  ): Promise<Outcome<undefined>> {
    const path = ["sendToDevice", eventType, transactionId];
    return this.#http.request("to_device", "PUT", path, { body: { messages }, as: actor });
  }

  /**
   * `GET /sync`, for to-device messages and device lists alone. Records no presence.
   * A message that is too large is skipped, so that it cannot keep others from being read.
   * @param since deletes, at the homeserver, the messages before it; undefined reads from the oldest one
   */
  async toDeviceSince(actor: GhostActor, since: string | undefined): Promise<Outcome<ToDevicePage>> {
    const outcome = await this.#http.request("catchup_to_device", "GET", ["sync"], {
      query: {
        timeout: "0",
        set_presence: "offline",
        filter: toDeviceFilter(this.#questions++),
        ...(since !== undefined && { since }),
      },
      as: actor,
      schema: SyncResponse,
      thin: TO_DEVICE_BOUNDS,
      timeoutMs: TO_DEVICE_TIMEOUT_MS,
    });
    if (outcome.kind !== "ok") return outcome;
    const { value } = outcome;
    const given = value.to_device?.events ?? [];
    const toDevice = given
      .map((event) => (isTooDeep(event) ? undefined : AnyObject.safeParse(event).data))
      .filter((data) => data !== undefined);
    const skipped = given.length - toDevice.length;
    return {
      kind: "ok",
      value: {
        next: value.next_batch,
        skipped,
        isFull: given.length >= TO_DEVICE_PAGE || skipped > 0,
        changes: {
          toDevice,
          changedUsers: value.device_lists?.changed ?? [],
          leftUsers: value.device_lists?.left ?? [],
          oneTimeKeyCounts: value.device_one_time_keys_count,
          unusedFallbackKeys: value.device_unused_fallback_key_types,
        },
      },
    };
  }

  /** `POST /keys/query` for one of the ghost's own devices; undefined when it has no keys there. */
  async publishedDevice(ghost: GhostMxid, deviceId: string): Promise<Outcome<PublishedDevice | undefined>> {
    const outcome = await this.#http.request("own_keys", "POST", ["keys", "query"], {
      body: { device_keys: { [ghost]: [deviceId] } },
      as: { ghost },
      schema: OwnKeys,
    });
    if (outcome.kind !== "ok") return outcome;
    const device = outcome.value.device_keys?.[ghost]?.[deviceId];
    const curve25519 = device?.keys[`curve25519:${deviceId}`];
    const ed25519 = device?.keys[`ed25519:${deviceId}`];
    if (device === undefined || curve25519 === undefined || ed25519 === undefined) {
      return { kind: "ok", value: undefined };
    }
    const signers = Object.keys(outcome.value.self_signing_keys?.[ghost]?.keys ?? {});
    const signatures = Object.keys(device.signatures?.[ghost] ?? {});
    const crossSigned = signers.some((signer) => signatures.includes(signer));
    return { kind: "ok", value: { identity: { curve25519, ed25519 }, crossSigned } };
  }

  /** What the homeserver keeps about the ghost's device; undefined when nothing was ever written. */
  async deviceRecord(ghost: GhostMxid): Promise<Outcome<DeviceRecord | undefined>> {
    const path = ["user", ghost, "account_data", DEVICE_RECORD_TYPE];
    const call = { as: { ghost }, schema: DeviceRecord };
    const outcome = await this.#http.request("device_record", "GET", path, call);
    return mapValue(
      unlessRefused(outcome, "M_NOT_FOUND"),
      (record) => record && { deviceId: record.device_id, epoch: BigInt(record.epoch) },
    );
  }

  setDeviceRecord(ghost: GhostMxid, record: DeviceRecord): Promise<Outcome<undefined>> {
    const path = ["user", ghost, "account_data", DEVICE_RECORD_TYPE];
    const body = { device_id: record.deviceId, epoch: String(record.epoch) };
    return this.#http.request("set_device_record", "PUT", path, { body, as: { ghost } });
  }

  /** `DELETE /devices/{id}`, with its keys and messages. That there is none is success. */
  async deleteDevice(ghost: GhostMxid, deviceId: string): Promise<Outcome<undefined>> {
    const call = { body: {}, as: { ghost } };
    const outcome = await this.#http.request("delete_device", "DELETE", ["devices", deviceId], call);
    return unlessRefused(outcome, "M_NOT_FOUND");
  }
}

/** Where each request of a machine goes, below `client/v3`. */
const PATHS = {
  keys_upload: ["keys", "upload"],
  keys_query: ["keys", "query"],
  keys_claim: ["keys", "claim"],
  signature_upload: ["keys", "signatures", "upload"],
  signing_keys_upload: ["keys", "device_signing", "upload"],
} as const;

function targetOf(request: OutgoingRequest): { method: "POST" | "PUT"; path: readonly string[] } {
  if (request.kind !== "to_device") return { method: "POST", path: PATHS[request.kind] };
  const { eventType = "m.room.encrypted", transactionId = request.id } = request;
  return { method: "PUT", path: ["sendToDevice", eventType, transactionId] };
}
