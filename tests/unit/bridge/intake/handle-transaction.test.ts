import assert from "node:assert/strict";
import { it } from "node:test";
import { createTransactionHandler } from "../../../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import { type Admission, NOTHING_ADMITTED } from "../../../../src/bridge/ledger/admission-types.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

it("takes a transaction after the catchup that it waits for, and what that has found at once [INT-8]", async () => {
  const caughtUp = Promise.withResolvers<void>();
  const admitted: Admission["ingress"][] = [];
  const admit = async ({ ingress }: Admission) => {
    admitted.push(ingress);
    return NOTHING_ADMITTED;
  };
  const handle = createTransactionHandler({
    ledger: { intake: { admit, handled: async () => new Set() }, memberships: {} as never },
    agents: { current: async () => ({ byGhost: new Map(), partnerGhosts: [] }) },
    namespace: createNamespace({
      serverName: "a.test" as ServerName,
      ghostPrefix: "agent_",
      senderLocalpart: "drawbridge",
    }),
    clock: new ManualClock(0),
    capacity: { roomQueue: 1, globalQueue: 1, roomEnvelopes: 1, senderEnvelopes: 1 } as never,
    contextLifetimeMs: 0,
    ready: () => caughtUp.promise,
  });
  const handled = handle("t1", []);
  await handle("found", [], { caughtUp: new Map() });
  await settled();
  assert.deepEqual(admitted, ["recovered"]);
  caughtUp.resolve();
  await handled;
  assert.deepEqual(admitted, ["recovered", "transaction"]);
});
