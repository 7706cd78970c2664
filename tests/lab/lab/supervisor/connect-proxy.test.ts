import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import fc from "fast-check";
import { freePort } from "../../../../lab/ports.ts";
import { ConnectProxy } from "../../../../lab/supervisor/connect-proxy.ts";
import { unicodeText } from "../../../support/arbitraries.ts";

const NAME_A = "org-a.test:8448";
const NAME_B = "org-b.test:8448";

/** Echoes what it is sent, behind its own name. */
async function echoServer(t: TestContext, name: string): Promise<{ port: number; server: Server }> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (chunk) => socket.write(`${name}:${chunk}`));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const address = server.address();
  return { port: typeof address === "object" && address !== null ? address.port : 0, server };
}

async function network(t: TestContext) {
  const a = await echoServer(t, "a");
  const b = await echoServer(t, "b");
  const ports = { "org-a": await freePort(), "org-b": await freePort() };
  const proxy = new ConnectProxy<"org-a" | "org-b">({
    ports,
    servers: new Map([
      [NAME_A, { organisation: "org-a", port: a.port }],
      [NAME_B, { organisation: "org-b", port: b.port }],
    ]),
  });
  await proxy.listen();
  t.after(() => proxy.close());
  return { proxy, ports, a, b };
}

/** Sends a head and gives back the socket and the first bytes of the answer. */
async function dial(t: TestContext, port: number, head: string): Promise<{ socket: Socket; answer: string }> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  t.after(() => socket.destroy());
  socket.write(head);
  const [answer] = await Promise.race([once(socket, "data"), once(socket, "close").then(() => [""])]);
  return { socket, answer: String(answer) };
}

const connectTo = (target: string) => `CONNECT ${target} HTTP/1.0\r\n\r\n`;
const ESTABLISHED = /^HTTP\/1\.0 200 /;
const REFUSED = /^HTTP\/1\.0 502 /;

describe("the CONNECT proxy", () => {
  it("a tunnel by name reaches the server wherever it listens", async (t) => {
    const { ports } = await network(t);
    const { socket, answer } = await dial(t, ports["org-a"], connectTo(NAME_B));
    assert.match(answer, ESTABLISHED);
    socket.write("hello");
    assert.equal(String((await once(socket, "data"))[0]), "b:hello");
  });

  it("bytes that a client sends right behind its request are not lost", async (t) => {
    const { ports } = await network(t);
    const { socket, answer } = await dial(t, ports["org-a"], `${connectTo(NAME_B)}early`);
    const rest = answer.includes("b:early") ? answer : String((await once(socket, "data"))[0]);
    assert.match(rest, /b:early$/);
  });

  it("names outside the lab, and ports of others, are refused", async (t) => {
    const { ports } = await network(t);
    const { port } = await echoServer(t, "another program");
    for (const target of [
      `example.org:${port}`,
      `localhost:${port}`,
      `127.0.0.1:${port}`,
      "org-a.test:0",
      "org-a.test:99999",
    ]) {
      assert.match((await dial(t, ports["org-a"], connectTo(target))).answer, REFUSED, target);
    }
  });

  it("a known server may be named by its address too", async (t) => {
    const { ports, b } = await network(t);
    assert.match((await dial(t, ports["org-a"], connectTo(`127.0.0.1:${b.port}`))).answer, ESTABLISHED);
  });

  it("a server that does not listen is a 502, and the proxy lives on", async (t) => {
    const { ports, b } = await network(t);
    b.server.close();
    await once(b.server, "close");
    assert.match((await dial(t, ports["org-a"], connectTo(NAME_B))).answer, REFUSED);
    assert.match((await dial(t, ports["org-b"], connectTo(NAME_A))).answer, ESTABLISHED);
  });

  it("cutting a link ends its tunnels at once and refuses new ones, in both directions; healing repairs it", async (t) => {
    const { proxy, ports } = await network(t);
    const there = await dial(t, ports["org-a"], connectTo(NAME_B));
    const back = await dial(t, ports["org-b"], connectTo(NAME_A));
    const own = await dial(t, ports["org-a"], connectTo(NAME_A));
    const ended = Promise.all([once(there.socket, "close"), once(back.socket, "close")]);
    proxy.cut("org-b", "org-a");
    await ended;
    assert.deepEqual(proxy.cutLinks(), [["org-a", "org-b"]]);
    assert.match((await dial(t, ports["org-a"], connectTo(NAME_B))).answer, REFUSED);
    assert.match((await dial(t, ports["org-b"], connectTo(NAME_A))).answer, REFUSED);
    own.socket.write("still");
    assert.equal(String((await once(own.socket, "data"))[0]), "a:still");
    proxy.heal("org-a", "org-b");
    assert.deepEqual(proxy.cutLinks(), []);
    assert.match((await dial(t, ports["org-a"], connectTo(NAME_B))).answer, ESTABLISHED);
  });

  it("whatever a client sends, it gets no tunnel but by a good request, and the next client is served", async (t) => {
    const { ports } = await network(t);
    const junk = fc.oneof(
      unicodeText({ maxLength: 200 }),
      fc.constantFrom("GET / HTTP/1.1", "CONNECT ", "CONNECT a b c", "CONNECT org-a.test:8448", "\0"),
      fc.string({ maxLength: 40 }).map((target) => `CONNECT ${target} HTTP/1.1`),
    );
    await fc.assert(
      fc.asyncProperty(junk, async (head) => {
        const { socket, answer } = await dial(t, ports["org-a"], `${head}\r\n\r\n`);
        socket.destroy();
        assert.match(answer, /^HTTP\/1\.0 (?:405|502) /);
      }),
      { numRuns: 100 },
    );
    const endless = await dial(t, ports["org-a"], "x".repeat(10_000));
    assert.match(endless.answer, /^HTTP\/1\.0 431 /);
    assert.match((await dial(t, ports["org-a"], connectTo(NAME_B))).answer, ESTABLISHED);
  });
});
