// Orders of containments, restores, removals, re-admissions and rotations on one lab, while people of both organisations
// go on writing in every room. After each operation the partnership is as it promises, the stranger is denied on every
// plane at both, and in every room each homeserver enforces the ACL that the room's state has: reading the state does
// not show that, the enforcing cache does.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { type Lab, readLab } from "../../../lab/lab.ts";
import { labPaths } from "../../../lab/layout.ts";
import { roomPath } from "../../../lab/matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../../../lab/organisations.ts";
import { formatDuration, progressOn } from "../../../lab/progress.ts";
import { examine } from "../../../lab/random-operations/examine.ts";
import {
  after as afterOf,
  type Operation,
  OrderGenerator,
  PARTNERS,
  type Partnership,
  titleOf,
} from "../../../lab/random-operations/operations.ts";
import { perform, seedOf } from "../../../lab/random-operations/perform.ts";
import { personOf } from "../../../lab/seed/seed-file.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { LAB_RUN, ORDERS_SEED } from "../../support/kills.ts";
import { Fed } from "../../support/lab-session.ts";

const isShort = process.env[LAB_RUN] === "short";
const seed = Number(process.env[ORDERS_SEED] ?? randomInt(2 ** 31));
const ORDERS = isShort ? 3 : 30;
/** Seconds that an order may cost; a short one is an operation or two. */
const SECONDS = isShort ? 45 : 150;
const TRAFFIC_EVERY_MS = isShort ? 3_000 : 1_000;
const TIMEOUT_MS = (isShort ? 25 : 240) * 60_000;

describe("orders of operations on a partnership", { timeout: TIMEOUT_MS }, () => {
  const progress = progressOn(process.stderr, systemClock);
  const ended = new AbortController();
  let fed: Fed;
  let lab: Lab;
  let traffic: Promise<unknown> = Promise.resolve();
  const written: Record<CompleteOrganisation, number> = { "org-a": 0, "org-b": 0 };
  let partnership: Partnership = PARTNERS;
  let hasFailed = false;

  /** Has the first person of an organisation write into each of its rooms, again and again; a refusal is no matter. */
  async function write(organisation: CompleteOrganisation): Promise<void> {
    for (let number = 0; !ended.signal.aborted; number++) {
      try {
        const user = personOf(lab, seedOf(lab), organisation);
        const content = { msgtype: "m.text", body: `Traffic ${number}` };
        for (const room of await user.joinedRooms()) {
          const path = roomPath(room, "send/m.room.message", `traffic-${number}`);
          if ((await user.request("PUT", path, content)).status === 200) written[organisation] += 1;
        }
      } catch {
        // A homeserver that is being restarted does not answer.
      }
      await systemClock.sleep(TRAFFIC_EVERY_MS, ended.signal).catch(() => undefined);
    }
  }

  async function carryOut(order: readonly Operation[]): Promise<void> {
    progress.note(`order: ${order.map(titleOf).join(", ")}`);
    for (const operation of order) {
      const startedAt = systemClock.now();
      partnership = afterOf(partnership, operation);
      await perform(lab, operation, partnership, progress);
      const performedAt = systemClock.now();
      assert.deepEqual(await examine(lab, partnership), [], `after ${titleOf(operation)}, seed ${seed}`);
      const took = [performedAt - startedAt, systemClock.now() - performedAt].map(formatDuration);
      progress.note(`${titleOf(operation)}: ${took[0]}, examined in ${took[1]}`);
    }
  }

  before(async () => {
    fed = new Fed();
    await fed.up();
    lab = readLab(labPaths(join(fed.state, "lab", "default"))) ?? assert.fail("no lab");
    traffic = Promise.all(COMPLETE_ORGANISATIONS.map(write));
  });
  after(async () => {
    ended.abort();
    await traffic;
    await fed.good("fed:down", "--purge");
    fed.remove();
  });

  // By far the longest; a short run has its parts in its random orders, and in the tests of removal and re-admission.
  if (!isShort) {
    it("a removal, a re-admission, a containment and its end leave each ACL enforced as its state says [NEG-1] [PLN-2]", async () => {
      hasFailed = true;
      await carryOut([
        { act: "remove", by: "org-a", kind: "full", rooms: "replace" },
        { act: "readmit", by: "org-a", rooms: "new" },
        { act: "contain", by: "org-a" },
        { act: "restore", by: "org-a" },
      ]);
      hasFailed = false;
    });
  }

  it("in random orders each operation keeps its promise, and the stranger is denied everywhere [CON-1] [NEG-1] [OFF-2] [PRT-1] [RDM-1]", async () => {
    assert.ok(!hasFailed, "what the first order has left is not known");
    progress.note(`Random orders with seed ${seed}: ./task test:lab orders --seed ${seed}`);
    const generator = new OrderGenerator(seed);
    for (let number = 1; number <= ORDERS; number++) {
      progress.note(`order ${number} of ${ORDERS}, seed ${seed}`);
      await carryOut(generator.next(SECONDS));
    }
    for (const [organisation, count] of Object.entries(written)) {
      assert.ok(count > 0, `nobody of ${organisation} could write meanwhile`);
    }
  });
});
