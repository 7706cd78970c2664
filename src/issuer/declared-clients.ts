// The clients that may have a token, read from their file at each request and at an interval: otherwise a version that
// stood between two requests would not be the one that a broken file leaves in force.
// Invariants: a disabled client or a rotated secret takes effect at the next request; a file that cannot
// be used leaves the last good one in force and is reported once; a secret is never logged.
import { dirname } from "node:path";
import type { Logger } from "pino";
import { DrawbridgeError } from "../domain/errors.ts";
import { ClientsFile } from "../rendered-files/issuer-clients.ts";
import { parseYaml } from "../runtime/load-yaml.ts";
import { readInput } from "../runtime/read-input.ts";
import { readRegistrySecret } from "../runtime/secrets.ts";

export interface ClientCredentials {
  readonly clientId: string;
  readonly secret: string;
}

export class DeclaredClients {
  readonly #file: string;
  readonly #log: Logger;
  /** The text last read, good or not; undefined while the file cannot be read. */
  #lastRead: string | undefined;
  #clients: ClientsFile["clients"];

  /** @throws ConfigError, DrawbridgeError `config_unreadable` when there is no good file to start with */
  constructor(file: string, log: Logger) {
    this.#file = file;
    this.#log = log;
    const text = readInput(file).toString("utf8");
    this.#lastRead = text;
    this.#clients = parseYaml(ClientsFile, text, file).clients;
  }

  /** The client and its present secret; undefined when it is unknown, disabled or has no readable secret. */
  find(clientId: string): ClientCredentials | undefined {
    this.refresh();
    const client = this.#clients.find((candidate) => candidate.clientId === clientId);
    if (client?.secret === undefined || !client.enabled) return undefined;
    try {
      return { clientId, secret: readRegistrySecret(client.secret, dirname(this.#file)) };
    } catch (error) {
      this.#report("secret_refused", error, { clientId });
      return undefined;
    }
  }

  /** Takes up the file as it stands now. */
  refresh(): void {
    let text: string | undefined;
    try {
      text = readInput(this.#file).toString("utf8");
      if (text === this.#lastRead) return;
      this.#lastRead = text;
      this.#clients = parseYaml(ClientsFile, text, this.#file).clients;
      this.#log.info(
        { event: "clients_reloaded", clients: this.#clients.length },
        "the clients were read again",
      );
    } catch (error) {
      if (text === undefined && this.#lastRead === undefined) return;
      this.#lastRead = text;
      this.#report("clients_refused", error, {});
    }
  }

  #report(event: string, error: unknown, fields: Readonly<Record<string, string>>): void {
    if (!(error instanceof DrawbridgeError)) throw error;
    this.#log.error({ event, ...fields, code: error.code, reason: error.message, hint: error.hint });
  }
}
