// The CONNECT proxy (RFC 9110, section 9.3.6) through which the homeservers federate. It is their DNS and the
// network between organisations: it resolves each server's name to the port where it listens, and can cut a
// link.
// Invariants: it connects to loopback only; each organisation has its own port, which identifies whose
// traffic a tunnel carries; cutting a link ends the tunnels that cross it, in both directions, at once.
import { connect, createServer, type Server, type Socket } from "node:net";

export interface ProxyOptions<Name extends string> {
  /** The organisations, each with the port of its own proxy. */
  readonly ports: Readonly<Record<Name, number>>;
  /** Server name, port included, as homeservers write it, to the organisation and the port it listens on. */
  readonly servers: ReadonlyMap<string, { readonly organisation: Name; readonly port: number }>;
}

/** Two organisations, in the order of their names. */
export type Link<Name extends string> = readonly [Name, Name];

interface Tunnel<Name extends string> {
  readonly from: Name;
  readonly to: Name | undefined;
  readonly sockets: readonly Socket[];
}

// A request line and a few headers: more is not a proxy's client.
const HEAD_BYTES_MAX = 8_192;
const HEAD_TIMEOUT_MS = 10_000;
const REQUEST = /^CONNECT ([A-Za-z0-9.-]{1,253}:[0-9]{1,5}) HTTP\/1\.[01]\r?\n/;

export class ConnectProxy<Name extends string> {
  readonly #options: ProxyOptions<Name>;
  readonly #servers: Server[] = [];
  readonly #tunnels = new Set<Tunnel<Name>>();
  readonly #sockets = new Set<Socket>();
  readonly #cut = new Map<string, Link<Name>>();

  constructor(options: ProxyOptions<Name>) {
    this.#options = options;
  }

  /** Listens on every organisation's port. */
  async listen(): Promise<void> {
    for (const organisation of Object.keys(this.#options.ports) as Name[]) {
      const port = this.#options.ports[organisation];
      const server = createServer((socket) => this.#accept(organisation, socket));
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen({ host: "127.0.0.1", port, exclusive: true }, resolve);
      });
      this.#servers.push(server);
    }
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  /** Links that are cut now. */
  cutLinks(): Link<Name>[] {
    return [...this.#cut.values()];
  }

  /** Cuts the link between two organisations: running tunnels end, new ones are refused. */
  cut(one: Name, other: Name): void {
    this.#cut.set(linkKey(one, other), ordered(one, other));
    for (const tunnel of this.#tunnels) {
      if (tunnel.to === undefined || linkKey(tunnel.from, tunnel.to) !== linkKey(one, other)) continue;
      for (const socket of tunnel.sockets) socket.destroy();
    }
  }

  heal(one: Name, other: Name): void {
    this.#cut.delete(linkKey(one, other));
  }

  #accept(from: Name, socket: Socket): void {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.setTimeout(HEAD_TIMEOUT_MS, () => socket.destroy());
    let head = Buffer.alloc(0);
    const onData = (chunk: Buffer) => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) {
        if (head.length > HEAD_BYTES_MAX) refuse(socket, "431 Request Header Fields Too Large");
        return;
      }
      socket.off("data", onData);
      socket.setTimeout(0);
      const target = REQUEST.exec(head.subarray(0, end + 2).toString("latin1"))?.[1];
      if (target === undefined) refuse(socket, "405 Method Not Allowed");
      else this.#tunnel(from, target.toLowerCase(), socket, head.subarray(end + 4));
    };
    socket.on("data", onData);
  }

  #tunnel(from: Name, target: string, client: Socket, early: Buffer): void {
    const found = this.#resolve(target);
    const isCut = found?.organisation !== undefined && this.#cut.has(linkKey(from, found.organisation));
    if (found === undefined || isCut) {
      refuse(client, "502 Bad Gateway");
      return;
    }
    const { organisation: to, port } = found;

    client.pause();
    const upstream = connect({ host: "127.0.0.1", port });
    const tunnel: Tunnel<Name> = { from, to, sockets: [client, upstream] };
    this.#sockets.add(upstream);
    this.#tunnels.add(tunnel);
    const end = () => {
      this.#tunnels.delete(tunnel);
      this.#sockets.delete(upstream);
      client.destroy();
      upstream.destroy();
    };
    let isOpen = false;
    upstream.once("connect", () => {
      isOpen = true;
      client.write("HTTP/1.0 200 Connection established\r\n\r\n");
      if (early.length > 0) upstream.write(early);
      client.pipe(upstream);
      upstream.pipe(client);
    });
    upstream.on("error", () => {
      if (!isOpen) refuse(client, "502 Bad Gateway");
      else end();
    });
    client.once("close", end);
    upstream.once("close", () => {
      if (isOpen) end();
    });
  }

  /** Known servers by name or by address; any other name below `.test` is the port it names, on loopback. */
  #resolve(target: string): { organisation: Name | undefined; port: number } | undefined {
    const known = this.#options.servers.get(target);
    if (known !== undefined) return known;
    const [host = "", portText] = target.split(":");
    const port = Number(portText);
    if (host === "127.0.0.1")
      return [...this.#options.servers.values()].find((server) => server.port === port);
    if (!host.endsWith(".test") || port < 1 || port > 65_535) return undefined;
    return { organisation: undefined, port };
  }
}

function refuse(socket: Socket, status: string): void {
  socket.end(`HTTP/1.0 ${status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
}

function ordered<Name extends string>(one: Name, other: Name): Link<Name> {
  return one < other ? [one, other] : [other, one];
}

function linkKey(one: string, other: string): string {
  return ordered(one, other).join(" ");
}
