import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { allPorts, blockLock, chooseBlock, portsOfBlock } from "../../../lab/ports.ts";
import { type Random, systemRandom } from "../../../src/domain/clock.ts";

/** Always the same choice, so that two who choose at once want the same block. */
function fixedRandom(value: number): Random {
  let next = value;
  return {
    bytes: (length) => {
      const bytes = Buffer.alloc(length);
      bytes.writeUInt32BE(next++);
      return bytes;
    },
  };
}

async function occupy(t: TestContext, port: number): Promise<void> {
  const server = createServer();
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
}

describe("the ports of a lab", () => {
  it("no two programs of a lab share a port, and a block holds them all", () => {
    const ports = allPorts(portsOfBlock(20_000));
    assert.equal(ports.length, 26);
    assert.equal(new Set(ports).size, ports.length);
    assert.ok(ports.every((port) => port >= 20_000 && port < 20_032));
  });

  it("a lab keeps its block while it is free, and gets another when one of its ports is taken", async (t) => {
    const first = await chooseBlock(undefined, systemRandom);
    await first.lock.release();
    const again = await chooseBlock(first.base, systemRandom);
    await again.lock.release();
    assert.equal(again.base, first.base);
    await occupy(t, portsOfBlock(first.base).organisations["org-b"].issuer);
    const moved = await chooseBlock(first.base, systemRandom);
    await moved.lock.release();
    assert.notEqual(moved.base, first.base);
  });

  it("labs that choose at the same moment get different blocks", async () => {
    const chosen = await Promise.all([1, 2, 3].map(() => chooseBlock(undefined, fixedRandom(77))));
    assert.equal(new Set(chosen.map(({ base }) => base)).size, 3);
    await Promise.all(chosen.map(({ lock }) => lock.release()));
  });

  it("the block of a running lab is not given to another, even before anything listens on it", async () => {
    const free = await chooseBlock(undefined, systemRandom);
    await free.lock.release();
    const running = await blockLock(free.base, "running");
    assert.ok(running !== undefined);
    const other = await chooseBlock(free.base, systemRandom);
    assert.notEqual(other.base, free.base);
    await Promise.all([other.lock.release(), running.release()]);
  });
});
