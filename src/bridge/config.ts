// The bridge's configuration: one YAML file, paths in it relative to that file.
// docs/reference/configuration.md says what each key means; published as docs/reference/schemas/bridge.schema.json.
import * as z from "zod";
import { durationMs } from "../domain/duration.ts";
import { ServerNameField, text } from "../domain/identifier-fields.ts";
import type { ServerName } from "../domain/identifiers.ts";
import { GhostPrefix } from "../rendered-files/agents-file.ts";
import { type InFolder, ListenAddress, loadConfig } from "../runtime/load-yaml.ts";
import { SecretReference } from "../runtime/secrets.ts";
import { KeyWaits, Limits, Retention, section } from "./default-limits-and-waits.ts";

/** Of what the bridge says in rooms (texts/). */
const LANGUAGES = ["en", "de"] as const;
export type Language = (typeof LANGUAGES)[number];

/** Encrypted rooms. `devices`: ghosts have devices with keys, and still refuse the rooms. `on`: ghosts take part. */
const Encryption = section({
  mode: z.enum(["refuse", "devices", "on"]).default("refuse"),
  /** 32-byte keys, base64, one a line: the first seals the keys of the ghosts' stores, all of them open. */
  storeKeys: SecretReference.optional(),
  threads: z.int().min(1).max(64).default(2),
  ...KeyWaits,
  senderDevices: z.enum(["allow_all", "cross_signed", "verified"]).default("allow_all"),
  verifiedIdentities: z
    .array(z.strictObject({ user: z.string().min(1), masterKey: text(/^[A-Za-z0-9+/]{43}$/) }))
    .default([]),
}).refine(({ mode, storeKeys }) => mode === "refuse" || storeKeys !== undefined, {
  path: ["storeKeys"],
  message: "is needed unless the mode is `refuse`: a file with 32 random bytes in base64",
});

export const BridgeConfigFile = z.strictObject({
  version: z.literal(1),
  homeserver: z.strictObject({
    serverName: ServerNameField.transform((name) => name as ServerName),
    url: z.url({ protocol: /^https?$/ }),
    requestTimeout: durationMs("30s", { min: "1s" }),
  }),
  appservice: z.strictObject({
    id: text(/^[a-z0-9_-]{1,64}$/).default("drawbridge"),
    url: z.url({ protocol: /^https?$/ }),
    senderLocalpart: text(/^[a-z0-9._=/-]{1,64}$/).default("drawbridge"),
    ghostPrefix: GhostPrefix.default("agent_"),
    asToken: SecretReference,
    hsToken: SecretReference,
  }),
  listen: ListenAddress,
  observe: ListenAddress,
  database: z.strictObject({ url: SecretReference }),
  /** 32-byte keys, base64, one a line: the first seals prompts and replies at rest, all of them open. */
  contentKeys: SecretReference,
  language: section({
    default: z.enum(LANGUAGES).default("en"),
    rooms: z.record(z.string().startsWith("!"), z.enum(LANGUAGES)).default({}),
  }),
  agentsFile: z.string().min(1).default("agents.yaml"),
  avatars: z.boolean().default(true),
  audit: section({ file: z.string().min(1).default("audit.jsonl") }),
  log: section({
    level: z.enum(["debug", "info", "warn", "error"]).default("info"),
    file: z.string().min(1).optional(),
  }),
  traces: z.strictObject({ url: z.url({ protocol: /^https?$/ }) }).optional(),
  encryption: Encryption,
  catchup: section({ rooms: z.boolean().default(true) }),
  retention: Retention,
  limits: Limits,
});

export type BridgeConfig = InFolder<z.output<typeof BridgeConfigFile>>;

export const loadBridgeConfig = (file: string): BridgeConfig => loadConfig(BridgeConfigFile, file);
