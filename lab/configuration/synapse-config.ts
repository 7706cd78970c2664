// Synapse's configuration, rendered. Pure: the same options give the same text, so that it can be compared
// with a golden file and used by any test that needs a homeserver.
// Invariants: secrets are named by file, the database password aside (the file is written 0600); the server
// listens on loopback only; federation goes through the proxy and trusts the given authority alone.
import { stringify } from "yaml";
import type { ServerName } from "../../src/domain/identifiers.ts";

export interface HomeserverOptions {
  readonly serverName: ServerName;
  /** Absolute: Synapse reads relative paths from its working directory, not from this file. */
  readonly directory: string;
  readonly clientPort: number;
  readonly federation:
    | {
        readonly port: number;
        /** `http://127.0.0.1:PORT`, a CONNECT proxy that resolves the other servers' names. */
        readonly proxyUrl: string;
        readonly caFile: string;
        /** Exact server names, ports included; undefined admits every server, `[]` none. */
        readonly allow: readonly ServerName[] | undefined;
      }
    | undefined;
  readonly database: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly password: string;
    readonly name: string;
  };
  /** Appservice registrations, absolute. */
  readonly registrationFiles: readonly string[];
  /** The border module (border/); its Python package must be on the homeserver's path. Files absolute. */
  readonly border?: {
    readonly policyFile: string;
    readonly violationsFile: string;
    readonly statusTokenFile: string;
  };
}

/** No line is broken, and nothing is abbreviated by an anchor. */
const YAML_STYLE = { lineWidth: 0, aliasDuplicateObjects: false } as const;

/** Files beside `homeserver.yaml` that must exist before Synapse starts; the caller makes them. */
export const HOMESERVER_FILES = {
  config: "homeserver.yaml",
  log: "log.yaml",
  signingKey: "signing.key",
  certificate: "tls.crt",
  privateKey: "tls.key",
  registrationSecret: "secrets/registration-shared-secret",
  macaroonSecret: "secrets/macaroon-secret-key",
  formSecret: "secrets/form-secret",
  media: "media",
} as const;

const UNLIMITED = { per_second: 1_000, burst_count: 1_000 };

// Synapse's limits guard a public server against strangers. Here they would only make tests wait.
const RELAXED_LIMITS = {
  rc_message: UNLIMITED,
  rc_registration: UNLIMITED,
  rc_registration_token_validity: UNLIMITED,
  rc_login: { address: UNLIMITED, account: UNLIMITED, failed_attempts: UNLIMITED },
  rc_admin_redaction: UNLIMITED,
  rc_joins: { local: UNLIMITED, remote: UNLIMITED },
  rc_joins_per_room: UNLIMITED,
  rc_room_creation: UNLIMITED,
  rc_invites: { per_room: UNLIMITED, per_user: UNLIMITED, per_issuer: UNLIMITED },
  rc_key_requests: UNLIMITED,
  rc_3pid_validation: UNLIMITED,
  rc_presence: { per_user: UNLIMITED },
  rc_federation: {
    window_size: 1_000,
    sleep_limit: 1_000,
    sleep_delay: 1,
    reject_limit: 1_000,
    concurrent: 100,
  },
} as const;

/** `homeserver.yaml` and `log.yaml`, by file name. */
export function renderHomeserver(options: HomeserverOptions): Readonly<Record<string, string>> {
  return {
    [HOMESERVER_FILES.config]: `# Synapse of ${options.serverName}\n${stringify(config(options), YAML_STYLE)}`,
    [HOMESERVER_FILES.log]: stringify(LOGGING, YAML_STYLE),
  };
}

function config(options: HomeserverOptions): Record<string, unknown> {
  const { directory, federation, database } = options;
  const inside = (name: string) => `${directory}/${name}`;
  return {
    server_name: options.serverName,
    public_baseurl: `http://127.0.0.1:${options.clientPort}/`,
    serve_server_wellknown: false,
    report_stats: false,
    listeners: [
      listener(options.clientPort, false, "client"),
      ...(federation === undefined ? [] : [listener(federation.port, true, "federation")]),
    ],
    ...(federation === undefined
      ? { federation_domain_whitelist: [] }
      : {
          tls_certificate_path: inside(HOMESERVER_FILES.certificate),
          tls_private_key_path: inside(HOMESERVER_FILES.privateKey),
          federation_custom_ca_list: [federation.caFile],
          https_proxy: federation.proxyUrl,
          no_proxy_hosts: ["127.0.0.1", "localhost"],
          ...(federation.allow === undefined ? {} : { federation_domain_whitelist: [...federation.allow] }),
        }),
    federation_whitelist_endpoint_enabled: true,
    // A cut link must be noticed healed within seconds, not after an hour.
    federation: {
      destination_min_retry_interval: "1s",
      destination_retry_multiplier: 2,
      destination_max_retry_interval: "10s",
    },
    // Synapse 1.163 does not renew this cache when a user joins: a room that was cached while no local user was in
    // it would be backfilled from no server until the next restart.
    caches: { per_cache_factors: { get_current_hosts_in_room_ordered: 0 } },
    trusted_key_servers: [],
    suppress_key_server_warning: true,
    database: {
      name: "psycopg2",
      args: {
        user: database.user,
        password: database.password,
        host: database.host,
        port: database.port,
        dbname: database.name,
        cp_min: 2,
        cp_max: 5,
      },
    },
    signing_key_path: inside(HOMESERVER_FILES.signingKey),
    registration_shared_secret_path: inside(HOMESERVER_FILES.registrationSecret),
    macaroon_secret_key_path: inside(HOMESERVER_FILES.macaroonSecret),
    form_secret_path: inside(HOMESERVER_FILES.formSecret),
    media_store_path: inside(HOMESERVER_FILES.media),
    log_config: inside(HOMESERVER_FILES.log),
    app_service_config_files: [...options.registrationFiles],
    experimental_features: {
      msc2409_to_device_messages_enabled: true,
      msc3202_transaction_extensions: true,
    },
    ...(options.border === undefined ? {} : { modules: [borderModule(options.border)] }),
    enable_registration: false,
    bcrypt_rounds: 4,
    presence: { enabled: false },
    ...RELAXED_LIMITS,
  };
}

function borderModule(border: NonNullable<HomeserverOptions["border"]>): Record<string, unknown> {
  return {
    module: "drawbridge_border.BorderModule",
    config: {
      policy_file: border.policyFile,
      violations_file: border.violationsFile,
      status_token_file: border.statusTokenFile,
    },
  };
}

function listener(port: number, tls: boolean, resource: "client" | "federation"): Record<string, unknown> {
  return {
    port,
    type: "http",
    tls,
    bind_addresses: ["127.0.0.1"],
    resources: [{ names: [resource], compress: false }],
  };
}

/** Warnings alone: on a machine with few cores, a line for each request costs time that tests wait for. */
const LOGGING = {
  version: 1,
  formatters: {
    line: { format: "%(asctime)s %(levelname)s %(name)s %(request)s %(message)s" },
  },
  handlers: {
    console: { class: "logging.StreamHandler", formatter: "line", stream: "ext://sys.stderr" },
  },
  root: { level: "WARNING", handlers: ["console"] },
  disable_existing_loggers: false,
};
