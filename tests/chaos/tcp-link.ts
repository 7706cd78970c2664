// A network link on loopback that can be cut, slowed and half-opened.
// Invariants: bytes keep their order; a connection that a half-open link has swallowed bytes of carries none ever again,
// as behind a firewall that has forgotten it, while new connections work as soon as the link is open.
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

export const LINK_STATES = ["open", "cut", "slow", "half_open"] as const;
export type LinkState = (typeof LINK_STATES)[number];

/** Of a slow link, for each piece in each direction. */
const SLOW_MS = 150;

interface Connection {
  readonly sockets: readonly Socket[];
  isForgotten: boolean;
}

export class TcpLink {
  readonly #target: number;
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  #state: LinkState = "open";

  /** @param target the port that it leads to */
  constructor(target: number) {
    this.#target = target;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  /** @param port where it listens; a free one when absent */
  async listen(port = 0): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host: "127.0.0.1", port }, resolve);
    });
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new TypeError("it does not listen on a port");
    return address.port;
  }

  set(state: LinkState): void {
    this.#state = state;
    for (const connection of this.#connections) {
      if (state === "cut") for (const socket of connection.sockets) socket.destroy();
      if (state === "half_open") connection.isForgotten = true;
    }
  }

  async close(): Promise<void> {
    for (const { sockets } of this.#connections) for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: Socket): void {
    client.on("error", () => client.destroy());
    if (this.#state === "cut") {
      client.destroy();
      return;
    }
    const server = connect({ host: "127.0.0.1", port: this.#target });
    server.on("error", () => server.destroy());
    const connection: Connection = { sockets: [client, server], isForgotten: this.#state === "half_open" };
    this.#connections.add(connection);
    const end = () => {
      this.#connections.delete(connection);
      client.destroy();
      server.destroy();
    };
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      void this.#carry(connection, from, to).catch(end);
      from.once("close", () => {
        // The other end does not learn of it while nothing gets through.
        if (!connection.isForgotten) end();
        else this.#forget(connection);
      });
    }
  }

  async #carry(connection: Connection, from: Socket, to: Socket): Promise<void> {
    for await (const piece of from) {
      if (connection.isForgotten) continue;
      if (this.#state === "slow") await pause(SLOW_MS);
      if (!connection.isForgotten && !to.destroyed) to.write(piece as Buffer);
    }
    if (!connection.isForgotten) to.end();
  }

  /** Once both ends have given a forgotten connection up, nothing is left of it. */
  #forget(connection: Connection): void {
    if (connection.sockets.every((socket) => socket.destroyed)) this.#connections.delete(connection);
  }
}
