// The link that random faults cut, slow and half-open.
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { TcpLink } from "../../chaos/tcp-link.ts";

/** A link to a server that sends back what it gets. */
async function linked(t: TestContext) {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const link = new TcpLink((server.address() as AddressInfo).port);
  const port = await link.listen();
  const clients: Socket[] = [];
  t.after(async () => {
    for (const client of clients) client.destroy();
    await link.close();
    server.close();
  });
  const client = () => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.on("error", () => socket.destroy());
    clients.push(socket);
    return socket;
  };
  return { link, client };
}

const echo = async (socket: Socket, text: string) => {
  const [back] = await Promise.all([once(socket, "data"), Promise.resolve(socket.write(text))]);
  return String(back[0]);
};

describe("a link with faults", () => {
  it("carries bytes while it is open, and again after it was cut", async (t) => {
    const { link, client } = await linked(t);
    const first = client();
    assert.equal(await echo(first, "one"), "one");
    const closed = once(first, "close");
    link.set("cut");
    await closed;
    await once(client(), "close");
    link.set("open");
    assert.equal(await echo(client(), "two"), "two");
  });

  it("swallows what is sent while it is half open, and new connections work afterwards", async (t) => {
    const { link, client } = await linked(t);
    const old = client();
    assert.equal(await echo(old, "one"), "one");
    link.set("half_open");
    old.write("lost");
    link.set("open");
    assert.equal(await echo(client(), "two"), "two");
    old.write("lost, too");
    assert.equal(await echo(client(), "three"), "three");
    assert.equal(old.read(), null);
    assert.equal(old.destroyed, false);
  });

  it("delays what it carries while it is slow, in its order", async (t) => {
    const { link, client } = await linked(t);
    const socket = client();
    await echo(socket, "begin");
    link.set("slow");
    const begun = performance.now();
    assert.equal(await echo(socket, "later"), "later");
    assert.ok(performance.now() - begun >= 250, "both directions are delayed");
  });
});
