// Stands between a pool and a real PostgreSQL server, to fail as a network does: it cuts connections off, forgets them
// (half-open: nothing arrives any more, and nothing says so), or loses the answer to one statement that the server has
// surely committed.
import { type AddressInfo, createServer, connect as openSocket, type Socket } from "node:net";
import type { TestContext } from "node:test";

export interface DatabaseProxy {
  /** The server's URL by way of the proxy. */
  readonly url: string;
  /** Cuts the connection on which this text is sent next, once the server has ended the statement's transaction. */
  loseAnswerTo(text: string): void;
  /** Whether such an answer was lost since. */
  readonly hasLost: boolean;
  /** From now on no byte passes on the connections that stand; new ones pass unless `forNew`. */
  freeze(forNew?: boolean): void;
  /** Refuses connections, and cuts those that stand. */
  close(): void;
}

/** ReadyForQuery outside a transaction: what came before it is committed. */
const READY_IDLE = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

export async function databaseProxy(t: Pick<TestContext, "after">, target: string): Promise<DatabaseProxy> {
  const to = new URL(target);
  const sockets = new Set<Socket>();
  let frozen = new WeakSet<Socket>();
  let freezesNew = false;
  let losing: Buffer | undefined;
  let hasLost = false;

  const server = createServer((client) => {
    const upstream = openSocket(Number(to.port), to.hostname);
    const both = [client, upstream];
    if (freezesNew) frozen.add(client);
    const cut = () => {
      for (const socket of both) socket.destroy();
    };
    for (const socket of both) {
      sockets.add(socket);
      socket.on("error", cut);
      socket.on("close", () => {
        sockets.delete(socket);
        cut();
      });
    }
    let isLosing = false;
    client.on("data", (sent) => {
      if (frozen.has(client)) return;
      if (losing !== undefined && sent.includes(losing)) {
        losing = undefined;
        isLosing = true;
      }
      upstream.write(sent);
    });
    upstream.on("data", (answer) => {
      if (frozen.has(client)) return;
      if (!isLosing) client.write(answer);
      else if (answer.subarray(-READY_IDLE.length).equals(READY_IDLE)) {
        hasLost = true;
        cut();
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A test that fails before it ends the proxy shall end all the same.
  server.unref();
  const close = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  t.after(close);
  const url = new URL(target);
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.href,
    loseAnswerTo: (text) => {
      hasLost = false;
      losing = Buffer.from(text);
    },
    get hasLost() {
      return hasLost;
    },
    freeze: (forNew = false) => {
      freezesNew = forNew;
      frozen = new WeakSet(sockets);
    },
    close,
  };
}
