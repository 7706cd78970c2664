import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { lookupBy, type Resolve, sharing } from "../../../src/runtime/name-lookups.ts";

const ALL = { all: true } as const;

/** A resolver that a test answers, and what those who asked got. */
function slowly() {
  const open: { readonly host: string; readonly answer: Parameters<Resolve>[2] }[] = [];
  const clock = { at: 0, now: () => clock.at };
  const resolve = sharing((host, _options, answer) => open.push({ host, answer }), clock);
  const got: unknown[] = [];
  const ask = (host: string) => resolve(host, ALL, (error, found) => got.push(error?.message ?? found));
  const asked = () => open.map(({ host }) => host);
  return { open, clock, got, ask, asked, resolve };
}

const FOUND = [{ address: "127.0.0.1", family: 4 }];
const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("lookups of names", () => {
  it("of a name that many ask for one is under way, and another name waits for none of it [DEL-10] [AGT-4]", async () => {
    const { open, got, ask, asked } = slowly();
    for (let times = 0; times < 16; times++) ask("slow.test");
    ask("other.test");
    assert.deepEqual(asked(), ["slow.test", "other.test"]);
    open[1]?.answer(null, FOUND);
    await turn();
    assert.deepEqual(got.splice(0), [FOUND]);
    open[0]?.answer(new Error("no answer"), []);
    await turn();
    assert.deepEqual(got, Array(16).fill("no answer"));
  });

  it("a name that took ten seconds is asked for again after fifty more, and no name rests for more than a minute [DEL-10]", async () => {
    const { open, clock, got, ask, asked } = slowly();
    ask("slow.test");
    clock.at = 10_000;
    open[0]?.answer(new Error("no answer"), []);
    clock.at = 59_999;
    ask("slow.test");
    await turn();
    assert.deepEqual([got, asked().length], [["no answer", "no answer"], 1]);
    clock.at = 60_000;
    ask("slow.test");
    clock.at = 100_000;
    open[1]?.answer(null, FOUND);
    clock.at = 159_999;
    ask("slow.test");
    assert.equal(asked().length, 2);
    clock.at = 160_000;
    ask("slow.test");
    assert.equal(asked().length, 3);
  });

  it("of names that take long so many are under way that some of the system's eight are left, and the next one comes in turn [DEL-10]", async () => {
    const { open, got, ask, asked } = slowly();
    for (let name = 0; name < 9; name++) ask(`slow${name}.test`);
    assert.equal(asked().length, 6);
    open[3]?.answer(null, FOUND);
    assert.equal(asked().at(-1), "slow6.test");
    for (let name = 0; name < 9; name++) if (name !== 3) open[name]?.answer(null, FOUND);
    await turn();
    assert.deepEqual(got, Array(9).fill(FOUND));
    ask("other.test");
    assert.equal(asked().length, 10);
  });

  it("one that needs no time is made each time it is asked for", async () => {
    const { open, ask, asked } = slowly();
    ask("fast.test");
    open[0]?.answer(null, FOUND);
    ask("fast.test");
    assert.equal(asked().length, 2);
  });

  it("gives a connection one address or all, and the error", () => {
    const resolved: unknown[] = [];
    const found = lookupBy((_host, _options, answer) => answer(null, FOUND));
    found("a.test", { all: true }, (...given) => resolved.push(given));
    found("a.test", {}, (...given) => resolved.push(given));
    const failing = lookupBy((_host, _options, answer) => answer(new Error("no answer"), []));
    failing("a.test", {}, (error) => resolved.push(error?.message));
    assert.deepEqual(resolved, [[null, FOUND], [null, "127.0.0.1", 4], "no answer"]);
  });
});
