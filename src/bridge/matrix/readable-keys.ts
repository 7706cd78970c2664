// Answers about users' keys, in which a homeserver passes on unread what other servers say of theirs. Pure.
// Invariants: what a machine could not read is left out, so that one server's answer keeps no other's from it; a user has a
// bounded number of devices, because an answer is encrypted for each.
import { isObject, membersOf, type UnknownObject } from "../../domain/json.ts";

function members<Value>(of: unknown, read: (value: unknown, name: string) => Value | undefined) {
  const all = Object.entries(membersOf(of)).map(([name, value]) => [name, read(value, name)] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== undefined));
}

const anyObject = (value: unknown) => (isObject(value) ? value : undefined);

/** Of one user, signed ones first. A machine takes some ten milliseconds for each new one. */
const DEVICES_MAX = 200;
const ID_LENGTH_MAX = 255;

function usableDevices(of: unknown, user: string) {
  // One of the signatures is the device's own.
  const isSigned = (device: UnknownObject | undefined) =>
    Object.keys(membersOf(membersOf(device?.["signatures"])[user])).length > 1;
  const readable = Object.entries(members(of, anyObject)).filter(([id]) => id.length <= ID_LENGTH_MAX);
  if (readable.length <= DEVICES_MAX) return Object.fromEntries(readable);
  const inOrder = readable.toSorted(([, one], [, other]) => Number(isSigned(other)) - Number(isSigned(one)));
  return Object.fromEntries(inOrder.slice(0, DEVICES_MAX));
}

/** Algorithm and name (Matrix client-server API, "Key algorithms"), as clients make them. */
const KEY_ID = /^[A-Za-z0-9_.]{1,64}:[A-Za-z0-9+/=_.-]{1,255}$/;
const oneTimeKey = (value: unknown, id: string) => (KEY_ID.test(id) ? anyObject(value) : undefined);

/** The answer to a machine's request without what the machine could not read. */
export function readableKeys(kind: string, answer: UnknownObject): UnknownObject {
  if (kind === "keys_query") {
    return { ...answer, device_keys: members(answer["device_keys"], usableDevices) };
  }
  if (kind === "keys_claim") {
    const ofUser = (of: unknown) => members(of, (device) => members(device, oneTimeKey));
    return { ...answer, one_time_keys: members(answer["one_time_keys"], ofUser) };
  }
  return answer;
}
