// The client-server API of ghosts' devices (Matrix, "End-to-end encryption" and "Send-to-device messaging").
// Invariants: bodies that a machine made are passed on unread; whether a device exists is requested without acting as
// it, so that the request cannot fail because of the device's deletion.
import * as z from "zod";
import { type GhostMxid, parseUserId, serverOf, type UserId } from "../../domain/identifiers.ts";
import { isObject, type UnknownObject } from "../../domain/json.ts";
import { isTooDeep } from "../../domain/strict-json.ts";
import type { DeviceIdentity } from "../ledger/crypto-stores.ts";
import type { GhostActor, HomeserverHttp, HomeserverOptions } from "./http.ts";
import { createKeysClaim, createKeysQuery, createPatience, readableKeys } from "./keys-query.ts";
import type { PruneBounds } from "./read-pruned-json.ts";
import { mapValue, type Outcome, unlessRefused } from "./request-result.ts";

const recordPath = (ghost: GhostMxid) => ["user", ghost, "account_data", "org.drawbridge.device"];

/** Leaves rooms out. A homeserver repeats an answer to the same filter for minutes: each has another limit. */
const toDeviceFilter = (question: number) =>
  JSON.stringify({
    room: { rooms: [], timeline: { limit: 1 + (question % 1_000) } },
    presence: { types: [] },
    account_data: { types: [] },
  });
const TO_DEVICE_PAGE = 100;
/** One message of another server may have many megabytes, and a page has a hundred of them. */
const TO_DEVICE_BOUNDS: PruneBounds = {
  what: "list_elements",
  elementBytesMax: 128 * 1024,
  bytesMax: 16 * 1024 * 1024,
  readBytesMax: 512 * 1024 * 1024,
};
/** A homeserver takes a while to write a page of hundreds of megabytes. */
const TO_DEVICE_TIMEOUT_MS = 60_000;

const record = <Value extends z.ZodType>(value: Value) => z.record(z.string(), value);
const AnyObject = record(z.unknown());
const Strings = record(z.string());
const Users = z
  .array(z.unknown())
  .transform((users) => users.map(parseUserId).filter((user): user is UserId => user !== undefined));

const SyncResponse = z.object({
  next_batch: z.string().min(1),
  to_device: z.object({ events: z.array(z.unknown()) }).optional(),
  device_lists: z.object({ changed: Users.optional(), left: Users.optional() }).optional(),
  device_one_time_keys_count: record(z.number()).optional(),
  device_unused_fallback_key_types: z.array(z.string()).optional(),
});

const DeviceRecord = z
  .object({ device_id: z.string(), epoch: z.string().regex(/^[0-9]{1,18}$/) })
  .transform(({ device_id, epoch }) => ({ deviceId: device_id, epoch: Number(epoch) }));
export type DeviceRecord = Readonly<z.output<typeof DeviceRecord>>;

const OwnDevice = z.object({ keys: Strings, signatures: record(AnyObject).optional() });
const OwnKeys = z.object({
  device_keys: record(record(OwnDevice)).optional(),
  self_signing_keys: record(z.object({ keys: Strings })).optional(),
});

/** A request that a machine wants made; its body is never logged. */
export interface OutgoingRequest {
  readonly id: string;
  readonly kind: keyof typeof PATHS | "to_device";
  readonly body: string;
  readonly eventType?: string;
  readonly transactionId?: string;
}

export type PublishedDevice = { readonly identity: DeviceIdentity; readonly crossSigned: boolean };

export class DeviceApi {
  readonly #http: HomeserverHttp;
  readonly #keysQuery: ReturnType<typeof createKeysQuery>;
  readonly #keysClaim: ReturnType<typeof createKeysClaim>;
  #questions = 0;

  constructor(http: HomeserverHttp, { clock, onKeysTooLarge }: HomeserverOptions) {
    this.#http = http;
    const patience = createPatience(clock);
    this.#keysQuery = createKeysQuery(clock, patience, onKeysTooLarge);
    this.#keysClaim = createKeysClaim(patience);
  }

  async submit(actor: GhostActor, request: OutgoingRequest): Promise<Outcome<string>> {
    const { kind, id, eventType = "m.room.encrypted", transactionId = id } = request;
    const method = kind === "to_device" ? "PUT" : "POST";
    const path = kind === "to_device" ? ["sendToDevice", eventType, transactionId] : PATHS[kind];
    const body = JSON.parse(request.body) as UnknownObject;
    const send = (part: UnknownObject) =>
      this.#http.request(kind, method, path, { body: part, as: actor, schema: AnyObject });
    const sendAll = () => {
      const own = serverOf(actor.ghost);
      if (kind === "keys_query") return this.#keysQuery(body, own, send);
      return kind === "keys_claim" ? this.#keysClaim(body, own, send) : send(body);
    };
    return mapValue(await sendAll(), (answer) => JSON.stringify(readableKeys(kind, answer)));
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

  /** `GET /sync` for to-device messages and device lists. @param since deletes the messages before it at the homeserver */
  async toDeviceSince(actor: GhostActor, since: string | undefined) {
    const outcome = await this.#http.request("catchup_to_device", "GET", ["sync"], {
      query: { timeout: "0", set_presence: "offline", filter: toDeviceFilter(this.#questions++), since },
      as: actor,
      schema: SyncResponse,
      thin: TO_DEVICE_BOUNDS,
      timeoutMs: TO_DEVICE_TIMEOUT_MS,
    });
    return mapValue(outcome, (value) => {
      const given = value.to_device?.events ?? [];
      const toDevice = given.filter((event) => isObject(event) && !isTooDeep(event)) as UnknownObject[];
      // Messages that are too large, too deep or none.
      const skipped = given.length - toDevice.length;
      return {
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
      };
    });
  }

  async publishedDevice(ghost: GhostMxid, deviceId: string): Promise<Outcome<PublishedDevice | undefined>> {
    const outcome = await this.#http.request("own_keys", "POST", ["keys", "query"], {
      body: { device_keys: { [ghost]: [deviceId] } },
      as: { ghost },
      schema: OwnKeys,
    });
    return mapValue(outcome, ({ device_keys, self_signing_keys }) => {
      const device = device_keys?.[ghost]?.[deviceId];
      const curve25519 = device?.keys[`curve25519:${deviceId}`];
      const ed25519 = device?.keys[`ed25519:${deviceId}`];
      if (curve25519 === undefined || ed25519 === undefined) return undefined;
      const signers = Object.keys(self_signing_keys?.[ghost]?.keys ?? {});
      const signatures = Object.keys(device?.signatures?.[ghost] ?? {});
      const crossSigned = signers.some((signer) => signatures.includes(signer));
      return { identity: { curve25519, ed25519 }, crossSigned };
    });
  }

  async deviceRecord(ghost: GhostMxid): Promise<Outcome<DeviceRecord | undefined>> {
    const call = { as: { ghost }, schema: DeviceRecord };
    const outcome = await this.#http.request("device_record", "GET", recordPath(ghost), call);
    return unlessRefused(outcome, "M_NOT_FOUND");
  }

  setDeviceRecord(ghost: GhostMxid, record: DeviceRecord): Promise<Outcome<undefined>> {
    const body = { device_id: record.deviceId, epoch: String(record.epoch) };
    return this.#http.request("set_device_record", "PUT", recordPath(ghost), { body, as: { ghost } });
  }

  /** `DELETE /devices/{id}`. That there is none is success. */
  async deleteDevice(ghost: GhostMxid, deviceId: string): Promise<Outcome<undefined>> {
    const call = { body: {}, as: { ghost } };
    const outcome = await this.#http.request("delete_device", "DELETE", ["devices", deviceId], call);
    return unlessRefused(outcome, "M_NOT_FOUND");
  }
}

const PATHS = {
  keys_upload: ["keys", "upload"],
  keys_query: ["keys", "query"],
  keys_claim: ["keys", "claim"],
  signature_upload: ["keys", "signatures", "upload"],
  signing_keys_upload: ["keys", "device_signing", "upload"],
} as const;
