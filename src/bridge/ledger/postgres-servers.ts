// The PostgreSQL servers that the database's URL names, and connections to the one of them that takes writes.
// Invariants: a connection is used only after its server has said that it takes writes; every statement has a timeout in
// this process; a server that failed or takes no writes is asked again only after all the others.
import { Client, type ClientConfig, Pool, type PoolClient, type PoolConfig } from "pg";

const READ_ONLY = "25006";
/** Statements take milliseconds; one that takes this long hangs. The server ends it, or rolls it back. */
const STATEMENT_TIMEOUT_MS = 10_000;
/** Later than the server's own timeout: what comes first from a server that is there is its answer. */
export const QUERY_TIMEOUT_MS = 12_000;
const CONNECT_TIMEOUT_MS = 2_000;
const WAIT_FOR_CONNECTION_MS = 8_000;
/** TCP notices within some 15 s that the peer of an idle connection is gone. */
const KEEP_ALIVE_MS = 5_000;

const TIMEOUTS = {
  statement_timeout: STATEMENT_TIMEOUT_MS,
  query_timeout: QUERY_TIMEOUT_MS,
  keepAlive: true,
  keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
} as const;

/** `postgres://user@one:5432,two:5433/name` names two servers; with one of them each, this is two URLs. */
export function serverUrls(url: string): readonly string[] {
  const found = /^(postgres(?:ql)?:\/\/(?:[^/?]*@)?)([^/?@]*,[^/?@]*)((?:[/?].*)?)$/s.exec(url);
  if (found === null) return [url];
  const [, before = "", servers = "", after = ""] = found;
  return servers.split(",").map((server) => `${before}${server}${after}`);
}

class Servers {
  readonly urls: readonly string[];
  #index = 0;

  constructor(url: string) {
    this.urls = serverUrls(url);
  }

  get current(): string {
    return this.urls[this.#index] ?? "";
  }

  /** Several connections may fail at once: the first of them decides. */
  failed(url: string): void {
    if (url === this.current) this.#index = (this.#index + 1) % this.urls.length;
  }
}

/** A connection to the server that is next. It fails, and the next one comes, unless that server takes writes. */
class ServerClient extends Client {
  readonly #servers: Servers;
  readonly #url: string;

  constructor({ servers = new Servers(""), ...config }: ClientConfig & { readonly servers?: Servers } = {}) {
    const connectionString = servers.current;
    super({ ...config, connectionString, connectionTimeoutMillis: CONNECT_TIMEOUT_MS });
    this.#servers = servers;
    this.#url = connectionString;
    // A connection that breaks while it is in use fails the statement that waits on it. Without a listener its error
    // event would end the process as well.
    this.on("error", () => {});
  }

  override connect(): Promise<ServerClient>;
  override connect(callback: (error: Error | null, client: ServerClient) => void): void;
  override connect(
    callback?: (error: Error | null, client: ServerClient) => void,
  ): Promise<ServerClient> | undefined {
    const connected = this.#connect();
    if (callback === undefined) return connected;
    connected.then(
      () => callback(null, this),
      (error: Error) => callback(error, this),
    );
    return undefined;
  }

  async #connect(): Promise<ServerClient> {
    try {
      await super.connect();
      const shown = { text: "SHOW transaction_read_only", query_timeout: CONNECT_TIMEOUT_MS };
      const { rows } = await this.query<{ transaction_read_only: string }>(shown);
      if (rows[0]?.transaction_read_only === "off") return this;
      throw Object.assign(new Error("the database server takes no writes"), { code: READ_ONLY });
    } catch (error) {
      this.#servers.failed(this.#url);
      void this.end().catch(() => undefined);
      throw error;
    }
  }
}

type Connected = (
  error: Error | undefined,
  client: PoolClient | undefined,
  done: (release?: boolean | Error) => void,
) => void;

/** A pool whose connections go to the server that takes writes; each server is asked once before it gives up. */
export class ServerPool extends Pool {
  readonly #servers: Servers;

  constructor(url: string, config: PoolConfig) {
    const servers = new Servers(url);
    super({
      ...TIMEOUTS,
      connectionTimeoutMillis: WAIT_FOR_CONNECTION_MS,
      ...config,
      servers,
      Client: ServerClient,
    } as PoolConfig);
    this.#servers = servers;
  }

  override connect(): Promise<PoolClient>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<PoolClient> | undefined {
    const connected = askingEach(this.#servers, () => super.connect());
    if (callback === undefined) return connected;
    connected.then(
      (client) => callback(undefined, client, client.release),
      (error: Error) => callback(error, undefined, () => undefined),
    );
    return undefined;
  }
}

async function askingEach<Connection>(servers: Servers, connect: () => Promise<Connection>) {
  for (let left = servers.urls.length - 1; ; left--) {
    const before = servers.current;
    try {
      return await connect();
    } catch (error) {
      if (left === 0 || servers.current === before) throw error;
    }
  }
}

export function connectToServer(url: string, config: ClientConfig): Promise<Client> {
  const servers = new Servers(url);
  return askingEach(servers, () => new ServerClient({ ...TIMEOUTS, ...config, servers }).connect());
}

/** Connection lost, too many connections, shut down or starting up, read-only, idle too long, lost against others. */
const STATES = /^(?:08...|53300|57P0[1-5]|25006|25P03|40001|40P01)$/;
const OF_THE_NETWORK = /^(?:E(?:CONN|PIPE|TIMEDOUT|HOST|NET|AI_AGAIN)|ENOTFOUND)/;
/** What the driver says without a code when a connection ended, or nothing came in time. */
const OF_THE_DRIVER = /^(?:Connection terminated|Query read timeout|timeout e|Client (?:has|was) )/;

/** Whether the same may be tried again on another connection. A COMMIT that failed like this may have been made. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  if (typeof code === "string") return STATES.test(code) || OF_THE_NETWORK.test(code);
  return OF_THE_DRIVER.test(error.message);
}

/** The server says that it lost against others, or that its process hung in the middle of it. */
const STATES_OF_ROLLBACK = /^(?:40001|40P01|25P03)$/;
/** The driver says of a statement that it did not send it, because the connection had ended. */
const UNSENT = /^Client (?:has encountered|was closed)/;
const STATES_OF_END = /^(?:08...|57P0[1-5]|E(?:CONN|PIPE).*)$/;
const END = /^Connection terminated/;

/** Whether it was surely not committed. @param isOpen COMMIT was not sent: with the connection the server ends the transaction */
export function isRolledBack(error: unknown, isOpen: boolean): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  if (typeof code === "string") return STATES_OF_ROLLBACK.test(code) || (isOpen && STATES_OF_END.test(code));
  return UNSENT.test(error.message) || (isOpen && END.test(error.message));
}

/** Whether the connection is of no more use, though it stands: its server takes no writes any more. */
export const isDemoted = (error: unknown): boolean =>
  (error as { code?: unknown } | null)?.code === READ_ONLY;
