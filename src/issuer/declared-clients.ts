// The clients that may have a token, read from their file at each request and at an interval: otherwise a version that
// stood between two requests would not be the one that a broken file leaves in force.
// Invariants: a disabled client or a rotated secret takes effect at the next request; a secret is never logged.
import { dirname } from "node:path";
import type { Logger } from "pino";
import { DrawbridgeError } from "../domain/errors.ts";
import { ClientsFile } from "../rendered-files/issuer-clients.ts";
import { parseYaml } from "../runtime/load-yaml.ts";
import { ReloadedFile } from "../runtime/reloaded-file.ts";
import { readRegistrySecret } from "../runtime/secrets.ts";

export class DeclaredClients {
  readonly #directory: string;
  readonly #log: Logger;
  readonly #file: ReloadedFile<ClientsFile>;

  /** @throws ConfigError, DrawbridgeError `config_unreadable` when there is no good file to start with */
  constructor(file: string, log: Logger) {
    this.#directory = dirname(file);
    this.#log = log;
    this.#file = new ReloadedFile({
      file,
      parse: (text) => parseYaml(ClientsFile, text, file),
      onLoaded: ({ clients }) =>
        log.info({ event: "clients_reloaded", clients: clients.length }, "the clients were read again"),
      onRefused: (error) => this.#report("clients_refused", error),
    });
  }

  /** The client and its present secret; undefined when it is unknown, disabled or has no readable secret. */
  find(clientId: string): { readonly clientId: string; readonly secret: string } | undefined {
    this.refresh();
    const client = this.#file.inForce.value.clients.find((candidate) => candidate.clientId === clientId);
    if (client?.secret === undefined || !client.enabled) return undefined;
    try {
      return { clientId, secret: readRegistrySecret(client.secret, this.#directory) };
    } catch (error) {
      if (!(error instanceof DrawbridgeError)) throw error;
      this.#report("secret_refused", error, { clientId });
      return undefined;
    }
  }

  /** Takes up the file as it stands now. */
  refresh(): void {
    this.#file.check();
  }

  #report(event: string, { code, message, hint }: DrawbridgeError, fields: object = {}): void {
    this.#log.error({ event, ...fields, code, reason: message, hint });
  }
}
