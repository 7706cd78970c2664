import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { SEND_PURPOSES } from "../../../../src/bridge/ledger/states.ts";
import { noticeTransactionId, replyTransactionId } from "../../../../src/bridge/ledger/transaction-ids.ts";
import type { EventId, GhostMxid } from "../../../../src/domain/identifiers.ts";

const key = fc.record({
  source: fc.string({ maxLength: 4 }).map((text) => `$${text}` as EventId),
  ghost: fc.string({ maxLength: 4 }).map((text) => `@${text}` as GhostMxid),
  purpose: fc.constantFrom(...SEND_PURPOSES),
  ordinal: fc.nat(20),
});

describe("transaction IDs", () => {
  it("depend on the delegation, the purpose and the ordinal alone [DEL-4]", () => {
    fc.assert(
      fc.property(key, key, (left, right) => {
        const same =
          left.source === right.source &&
          left.ghost === right.ghost &&
          left.purpose === right.purpose &&
          left.ordinal === right.ordinal;
        const ids = [left, right].map((k) => replyTransactionId(k.source, k.ghost, k.purpose, k.ordinal));
        assert.equal(ids[0] === ids[1], same);
      }),
    );
  });

  it("stay the same across versions of the bridge [DEL-4]", () => {
    assert.equal(
      replyTransactionId("$source" as EventId, "@agent_docs:a.test" as GhostMxid, "reply", 0),
      "db1.reply.5rRgTAUUuW9ZxJ5hm8wmnXtwycLHYROThXIwfykewHI",
    );
    assert.equal(
      noticeTransactionId("directory|!room|$event"),
      "db1.notice.Kfa_9o2lsxcKohk-chbKsxFe2lgzWzHgSBtLAmrFRBY",
    );
  });

  it("need no escaping in a path and stay far below 255 bytes", () => {
    fc.assert(
      fc.property(fc.string(), (marker) => {
        assert.match(noticeTransactionId(marker), /^db1\.notice\.[A-Za-z0-9_-]{43}$/);
      }),
    );
  });
});
