// The rules of random orders, and that a seed gives the same ones again.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  after,
  isOpen,
  type Operation,
  OrderGenerator,
  PARTNERS,
  type Partnership,
  possible,
  titleOf,
} from "../../../../lab/random-operations/operations.ts";

const actsIn = (partnership: Partnership) => [...new Set(possible(partnership).map(({ act }) => act))].sort();
const drawn = (seed: number, orders: number, seconds: number) => {
  const generator = new OrderGenerator(seed);
  return Array.from({ length: orders }, () => generator.next(seconds));
};

describe("random orders of operations", () => {
  it("an operation is possible only where its rules allow it", () => {
    assert.deepEqual(actsIn(PARTNERS), ["contain", "remove", "rotate"]);
    assert.deepEqual(actsIn({ removed: null, containedBy: ["org-a"] }), ["contain", "remove", "restore"]);
    assert.deepEqual(actsIn({ removed: null, containedBy: ["org-a", "org-b"] }), ["remove", "restore"]);
    assert.deepEqual(actsIn({ removed: "keep", containedBy: [] }), ["readmit"]);
    const choices = (removed: "keep" | "replace") =>
      new Set(possible({ removed, containedBy: [] }).map((one) => (one.act === "readmit" ? one.rooms : "")));
    assert.deepEqual([...choices("replace")], ["new"], "what was replaced is not opened again");
    assert.deepEqual([...choices("keep")].sort(), ["new", "reopen"]);
    const restores = possible({ removed: null, containedBy: ["org-b"] }).filter(
      ({ act }) => act === "restore",
    );
    assert.deepEqual(restores, [{ act: "restore", by: "org-b" }], "only who contains restores");
  });

  it("an operation leads to the partnership that it promises", () => {
    const both = (["org-a", "org-b"] as const).reduce<Partnership>(
      (partnership, by) => after(partnership, { act: "contain", by }),
      PARTNERS,
    );
    const one = after(both, { act: "restore", by: "org-a" });
    assert.deepEqual([isOpen(both), isOpen(one), one.containedBy], [false, false, ["org-b"]]);
    assert.equal(isOpen(after(one, { act: "restore", by: "org-b" })), true);
    const removal: Operation = { act: "remove", by: "org-a", kind: "full", rooms: "keep" };
    assert.deepEqual(after(both, removal), { removed: "keep", containedBy: [] });
    assert.deepEqual(after(after(both, removal), { act: "readmit", by: "org-b", rooms: "new" }), PARTNERS);
  });

  it("the same seed draws the same orders, another seed others, and each operation follows the rules", () => {
    assert.deepEqual(drawn(7, 5, 150), drawn(7, 5, 150));
    assert.notDeepEqual(drawn(7, 5, 150), drawn(8, 5, 150));
    let partnership = PARTNERS;
    for (const operation of drawn(11, 200, 150).flat()) {
      assert.ok(
        possible(partnership).some((one) => JSON.stringify(one) === JSON.stringify(operation)),
        titleOf(operation),
      );
      partnership = after(partnership, operation);
    }
  });

  it("every operation with every choice comes up, and no order costs much more than it may", () => {
    const orders = drawn(3, 300, 150);
    assert.equal(new Set(orders.flat().map(titleOf)).size, 2 * 3 + 2 * 4 + 2 * 2);
    assert.ok(orders.every((order) => order.length >= 2 && order.length <= 10));
    assert.ok(drawn(3, 300, 40).every((order) => order.length >= 1 && order.length <= 2));
  });
});
