// `POST /keys/query` for many users, of whom some may have more keys than is read of an answer.
// Invariants: a request whose answer is too large is made again by halves, so that one user's keys keep no other's away;
// a user whose keys alone are too large is reported and left out until a growing wait has passed; the answers of a few
// requests at most are held. A machine asks again for whoever is missing in its answer.
import type { Clock } from "../../domain/clock.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import type { Outcome } from "./request-result.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

const BACKOFF = { firstMs: 60_000, maxMs: 60 * 60_000 };
const ANSWERS_MAX = 4;
/** Users that are remembered; a hostile server has any number of them. */
const REMEMBERED_MAX = 1_000;

/** Only users whose keys are too large were asked for. The code is the bridge's own, not the homeserver's. */
const TOO_LARGE = { kind: "refused", status: 413, errcode: "ORG.DRAWBRIDGE.KEYS_TOO_LARGE" } as const;

export class KeysQuery {
  readonly #clock: Pick<Clock, "now">;
  readonly #onTooLarge: (user: string) => void;
  readonly #tooLarge = new Map<string, { readonly until: number; readonly times: number }>();

  constructor(clock: Pick<Clock, "now">, onTooLarge: (user: string) => void = () => undefined) {
    this.#clock = clock;
    this.#onTooLarge = onTooLarge;
  }

  /** @param send makes the request for some of the users that `body` names */
  async run(
    body: JsonObject,
    send: (body: JsonObject) => Promise<Outcome<JsonObject>>,
  ): Promise<Outcome<JsonObject>> {
    const users = Object.entries((body["device_keys"] ?? {}) as JsonObject);
    const open = [users.filter(([user]) => !this.#waits(user))].filter(({ length }) => length > 0);
    const answers: JsonObject[] = [];
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
    return this.#clock.now() < (this.#tooLarge.get(user)?.until ?? 0);
  }

  #leaveOut(user: string): void {
    const times = this.#tooLarge.get(user)?.times ?? 0;
    this.#tooLarge.delete(user);
    this.#tooLarge.set(user, { until: this.#clock.now() + backoffMs(BACKOFF, times), times: times + 1 });
    const [oldest] = this.#tooLarge.keys();
    if (this.#tooLarge.size > REMEMBERED_MAX && oldest !== undefined) this.#tooLarge.delete(oldest);
    this.#onTooLarge(user);
  }
}

/** The objects of several answers as one: their keys are users, and servers that failed. */
function merged(answers: readonly JsonObject[]): JsonObject {
  const all: Record<string, unknown> = {};
  for (const answer of answers) {
    for (const [part, value] of Object.entries(answer)) {
      all[part] = { ...(all[part] as object | undefined), ...(value as object) };
    }
  }
  return all;
}
