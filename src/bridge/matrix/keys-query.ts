// Queries and claims of the keys of many users, where a homeserver passes on unread what other servers say of theirs.
// Invariants: a request whose answer is too large is made again by halves, and what a machine could not read is left out,
// so that one user's keys, or one server's answer, keep no other's away; a user, and the users of a server in one answer,
// have a bounded number of devices, because an answer is encrypted for each, and a user one that changes in the long run;
// whose keys alone are too large is reported and left out until a growing wait has passed, and so is a server for which the
// homeserver waits too long, at once or by and by.
import { LRUCache } from "lru-cache";
import type { Clock } from "../../domain/clock.ts";
import { sha256 } from "../../domain/digest.ts";
import { isObject, membersOf, type UnknownObject } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { type Outcome, ok, refused } from "./request-result.ts";

const BACKOFF = { firstMs: 60_000, maxMs: 60 * 60_000 };
const ANSWERS_MAX = 4;
const REMEMBERED_MAX = 1_000;
const TOO_LARGE = refused(413, "ORG.DRAWBRIDGE.KEYS_TOO_LARGE");

type Send = (body: UnknownObject) => Promise<Outcome<UnknownObject>>;
type AskedUser = readonly [user: string, asked: unknown];

const serverIn = (user: string) => user.slice(user.indexOf(":") + 1);

/** What is answered so soon counts for nothing: who is left out of a claim cannot read the answer, and many honest servers are slow. */
const QUICK_MS = 5_000;
/** So long a server may keep a ghost's requests waiting, which all its rooms wait for; from then on a part of the time. */
const PATIENCE_MS = 5 * 60_000;
const PATIENCE_PART = 1 / 20;
/** Of one request, whatever the machine's clock does meanwhile. */
const WAITED_MS_MAX = 60_000;
/** Servers that were slow together are asked apart for so long. */
const APART_MS = 60 * 60_000;
/** When as many requests in a row were late, each about another server, the homeserver itself is slow: then all are asked together. */
const SLOW_SERVERS_MAX = 8;

export type Patience = ReturnType<typeof createPatience>;

/** With servers that answer late, though in time, again and again. The homeserver says only how long all of a request took. */
export function createPatience(clock: Pick<Clock, "now">) {
  const waited = new LRUCache<string, { ms: number; at: number }>({ max: REMEMBERED_MAX });
  const parts = new LRUCache<string, { part: number; until: number }>({ max: REMEMBERED_MAX });
  /** The first server of each request that was late, since one was not. */
  const slow = new Set<string>();
  let lastPart = 0;
  const waitedMs = (server: string) => {
    const { ms = 0, at = 0 } = waited.get(server) ?? {};
    return Math.max(0, ms - Math.max(0, clock.now() - at) * PATIENCE_PART);
  };
  const partOf = ([user]: AskedUser) => {
    const { part = 0, until = 0 } = parts.get(serverIn(user)) ?? {};
    return clock.now() < until ? part : 0;
  };
  return {
    isOver: (server: string) => waitedMs(server) > PATIENCE_MS,

    /** The users by what is asked in one request. */
    apart: (users: readonly AskedUser[]) => [...Map.groupBy(users, partOf).values()],

    /** Makes a request about users of these servers, without the homeserver itself. */
    async timed<T>(servers: readonly string[], request: () => Promise<T>): Promise<T> {
      const begun = clock.now();
      const answer = await request();
      const now = clock.now();
      const [server] = servers;
      if (server === undefined) return answer;
      if (now - begun <= QUICK_MS) {
        slow.clear();
        return answer;
      }
      if (slow.size < SLOW_SERVERS_MAX) slow.add(server);
      if (slow.size === SLOW_SERVERS_MAX) {
        parts.clear();
        return answer;
      }
      if (servers.length === 1) {
        // Other ghosts' requests may have waited at the same time.
        const since = Math.max(begun, waited.get(server)?.at ?? 0, now - WAITED_MS_MAX);
        waited.set(server, { ms: waitedMs(server) + Math.max(0, now - since), at: now });
      }
      // Of several the slow one is found by halves.
      for (const [index, one] of servers.entries())
        parts.set(one, { part: lastPart + 1 + (index % 2), until: now + APART_MS });
      lastPart += 2;
      return answer;
    },
  };
}

/** Devices of one user that may be others than before: at once, and how often one more. Each ghost that follows the user takes them in. */
const CHANGED_MAX = 2_000;
const CHANGED_EVERY_MS = 40_000;

/** Users whose devices change again and again, which keeps the machines busy that all rooms of their ghosts wait for. */
function createChangingUsers(clock: Pick<Clock, "now">) {
  const known = new LRUCache<string, { digest: string; changed: number; at: number }>({
    max: 10 * REMEMBERED_MAX,
  });
  const changedOf = (user: string) => {
    const { changed = 0, at = 0 } = known.get(user) ?? {};
    return Math.max(0, changed - Math.max(0, clock.now() - at) / CHANGED_EVERY_MS);
  };
  return {
    isOver: (user: string) => changedOf(user) > CHANGED_MAX,
    answered(user: string, of: unknown): void {
      const devices = Object.entries(membersOf(of)).sort(([one], [other]) => (one < other ? -1 : 1));
      const digest = sha256(JSON.stringify(devices)).toString("base64");
      const isOther = digest !== (known.get(user)?.digest ?? digest);
      const changed = changedOf(user) + (isOther ? devices.length : 0);
      known.set(user, { digest, changed, at: clock.now() });
    },
  };
}

/** `POST /keys/query` for many users. A machine asks again for whoever is missing in its answer. */
export function createKeysQuery(
  clock: Pick<Clock, "now">,
  patience: Patience,
  onTooLarge = (_user: string): void => {},
) {
  /** Users and servers. */
  const leftOut = new LRUCache<string, { until: number; times: number }>({ max: REMEMBERED_MAX });
  const changing = createChangingUsers(clock);
  const waits = (name: string) => clock.now() < (leftOut.peek(name)?.until ?? 0);
  const leaveOut = (name: string) => {
    const times = leftOut.get(name)?.times ?? 0;
    leftOut.set(name, { until: clock.now() + backoffMs(BACKOFF, times), times: times + 1 });
  };
  /** @param own the homeserver itself, whose silence is no other server's doing */
  return async (body: UnknownObject, own: string, send: Send): Promise<Outcome<UnknownObject>> => {
    const users = Object.entries((body["device_keys"] ?? {}) as UnknownObject);
    const isLeftOut = (server: string) => waits(server) || patience.isOver(server);
    const mayAsk = ([user]: AskedUser) =>
      !waits(user) && !changing.isOver(user) && !isLeftOut(serverIn(user));
    const open = patience.apart(users.filter(mayAsk));
    const answers: UnknownObject[] = [];
    while (answers.length < ANSWERS_MAX) {
      const group = open.shift();
      if (group === undefined) break;
      const byServer = Map.groupBy(group, (one) => serverIn(one[0]));
      const others = [...byServer.keys()].filter((server) => server !== own);
      const device_keys = Object.fromEntries(group);
      const outcome = await patience.timed(others, () => send({ ...body, device_keys }));
      const cause = outcome.kind === "retry" ? outcome.cause : undefined;
      const [[user] = [""]] = group;
      if (outcome.kind === "ok") {
        answers.push(outcome.value);
        for (const server of byServer.keys()) leftOut.delete(server);
        const keys = usableKeys(outcome.value["device_keys"]);
        for (const [user, devices] of Object.entries(keys)) changing.answered(user, devices);
      } else if (cause === "too_large") {
        const half = Math.ceil(group.length / 2);
        if (half < group.length) open.unshift(group.slice(0, half), group.slice(half));
        else {
          leaveOut(user);
          onTooLarge(user);
        }
      } else if (cause === "timeout" && byServer.size > 1) {
        const parts = [...byServer].toSorted(([one], [other]) => Number(other === own) - Number(one === own));
        open.unshift(...parts.map(([, part]) => part));
      } else if (cause === "timeout" && !byServer.has(own)) {
        leaveOut(serverIn(user));
      } else if (answers.length === 0) {
        return outcome;
      } else {
        break;
      }
    }
    return answers.length === 0 ? TOO_LARGE : ok(merged(answers));
  };
}

/** After so many vain claims in a row others' answers do without a server's users. */
const VAIN_CLAIMS_MAX = 3;
const CLAIM_REQUESTS_MAX = 32;

/** `POST /keys/claim` for several servers. One of which nothing can be claimed is reported as out of reach. */
export function createKeysClaim(patience: Patience) {
  const vain = new LRUCache<string, number>({ max: REMEMBERED_MAX });
  /** @param own the homeserver itself, whose failure is no other server's doing */
  return async (body: UnknownObject, own: string, send: Send): Promise<Outcome<UnknownObject>> => {
    const asked = Map.groupBy(Object.entries((body["one_time_keys"] ?? {}) as UnknownObject), ([user]) =>
      patience.isOver(serverIn(user)),
    );
    const late = new Set(asked.get(true)?.map(([user]) => serverIn(user)));
    const open = patience.apart(asked.get(false) ?? []);
    const answers: UnknownObject[] = [];
    const failed: string[] = [];
    let failure: Outcome<UnknownObject> | undefined;
    for (let requests = 0; open.length > 0; requests++) {
      const users = open.shift() ?? [];
      const byServer = Map.groupBy(users, ([user]) => serverIn(user));
      const servers = [...byServer.keys()];
      const one_time_keys = Object.fromEntries(users);
      const others = servers.filter((server) => server !== own);
      const outcome = await patience.timed(others, () => send({ ...body, one_time_keys }));
      if (outcome.kind === "ok") {
        answers.push(outcome.value);
        for (const server of servers) vain.delete(server);
        continue;
      }
      const isTooLarge = outcome.kind === "retry" && outcome.cause === "too_large";
      const isOfOne = isTooLarge || (outcome.kind === "retry" && outcome.cause === "server_error");
      const isOwn = servers.join() === own;
      if (!isOfOne || (isOwn && !isTooLarge)) return outcome;
      // The homeserver's own users may be too many for one answer; and a user whose keys alone are too large is left out.
      const parts = isOwn ? users.map((user) => [user]) : [...byServer.values()];
      if (isOwn && parts.length === 1) continue;
      failure = outcome;
      const half = Math.ceil(parts.length / 2);
      if (half === parts.length || (requests >= CLAIM_REQUESTS_MAX && !isOwn)) failed.push(...servers);
      else open.unshift(parts.slice(0, half).flat(), parts.slice(half).flat());
    }
    for (const server of failed) vain.set(server, (vain.get(server) ?? 0) + 1);
    const isGivenUp = failed.every((server) => (vain.get(server) ?? 0) >= VAIN_CLAIMS_MAX);
    if (answers.length === 0 && failure !== undefined && !isGivenUp) return failure;
    const failures = Object.fromEntries([...failed, ...late].map((server) => [server, {}]));
    return ok(merged([...answers, { one_time_keys: {}, failures }]));
  };
}

function merged(answers: readonly UnknownObject[]): UnknownObject {
  const all: Record<string, unknown> = {};
  for (const answer of answers) {
    for (const [part, value] of Object.entries(answer)) {
      all[part] = { ...membersOf(all[part]), ...membersOf(value) };
    }
  }
  return all;
}

function members<Value>(of: unknown, read: (value: unknown, name: string) => Value | undefined) {
  const all = Object.entries(membersOf(of)).map(([name, value]) => [name, read(value, name)] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== undefined));
}

const anyObject = (value: unknown) => (isObject(value) ? value : undefined);

/** Of one user, signed ones first. A machine takes some ten milliseconds for each new one. */
const DEVICES_MAX = 200;
/** Of the users of one server in one answer, which may be about some 250 of them. */
const DEVICES_OF_SERVER_MAX = 2_000;
const ID_LENGTH_MAX = 255;

/** The most devices that each user of these may have, so that those who have few lose none for those who have many. */
function devicesEach(numbers: readonly number[]): number {
  let each = DEVICES_MAX;
  const withAtMost = (most: number) => numbers.reduce((sum, count) => sum + Math.min(count, most), 0);
  while (each > 1 && withAtMost(each) > DEVICES_OF_SERVER_MAX) each -= 1;
  return each;
}

function usableKeys(of: unknown) {
  const byServer = Map.groupBy(Object.entries(membersOf(of)), ([user]) => serverIn(user));
  const usable = [...byServer.values()].flatMap((users) => {
    const each = devicesEach(users.map(([, devices]) => Object.keys(membersOf(devices)).length));
    return users.map(([user, devices]) => [user, usableDevices(devices, user, each)] as const);
  });
  return Object.fromEntries(usable);
}

function usableDevices(of: unknown, user: string, most: number) {
  // One of the signatures is the device's own.
  const isSigned = (device: UnknownObject | undefined) =>
    Object.keys(membersOf(membersOf(device?.["signatures"])[user])).length > 1;
  const readable = Object.entries(members(of, anyObject)).filter(([id]) => id.length <= ID_LENGTH_MAX);
  if (readable.length <= most) return Object.fromEntries(readable);
  const inOrder = readable.toSorted(([, one], [, other]) => Number(isSigned(other)) - Number(isSigned(one)));
  return Object.fromEntries(inOrder.slice(0, most));
}

const KEY_ID = /^[A-Za-z0-9_.]{1,64}:[A-Za-z0-9+/=_.-]{1,255}$/;
const oneTimeKey = (value: unknown, id: string) => (KEY_ID.test(id) ? anyObject(value) : undefined);

export function readableKeys(kind: string, answer: UnknownObject): UnknownObject {
  if (kind === "keys_query") {
    return { ...answer, device_keys: usableKeys(answer["device_keys"]) };
  }
  if (kind === "keys_claim") {
    const ofUser = (of: unknown) => members(of, (device) => members(device, oneTimeKey));
    return { ...answer, one_time_keys: members(answer["one_time_keys"], ofUser) };
  }
  return answer;
}
