// The sample agent's configuration. Published as docs/reference/schemas/docs-qa.schema.json.
import { dirname, resolve } from "node:path";
import * as z from "zod";
import { durationMs } from "../../src/domain/duration.ts";
import { loadYaml } from "../../src/runtime/load-yaml.ts";
import { SecretReference } from "../../src/runtime/secrets.ts";

export const DocsQaConfigFile = z.strictObject({
  version: z.literal(1),
  listen: z.strictObject({ host: z.string().default("127.0.0.1"), port: z.int().min(1).max(65_535) }),
  name: z.string().min(1).max(100),
  description: z.string().min(1).max(1_000),
  organisation: z.string().min(1).max(100),
  /** A PNG of a few KB. It becomes part of the signed card, so that no gateway has to let anybody fetch it. */
  icon: z.string().min(1).optional(),
  /** The folder of Markdown it answers from. */
  documents: z.string().min(1),
  /** Where callers reach it: the gateway's invocation URL. It is part of the signed card. */
  publicUrl: z.url({ protocol: /^https?$/ }),
  /** Offer HTTP+JSON below `publicUrl` too. */
  httpJson: z.boolean().default(false),
  /** Where callers get their tokens; the card names it. */
  tokenEndpoint: z.url({ protocol: /^https?$/ }).optional(),
  /** The card's signer: an ES256 private JWK and its key ID. */
  signing: z.strictObject({ keyId: z.string().min(1).max(128), key: SecretReference }),
  /** Where tasks are kept, so that a repeated messageId finds its task after a restart. */
  store: z.string().min(1).default("tasks"),
  /** How long a survey of all documents takes. */
  surveyTime: durationMs("20s"),
  /** How long a task is kept when nothing works on it, and so how long its messageId is remembered. */
  retention: durationMs("7d"),
});
export type DocsQaConfig = z.output<typeof DocsQaConfigFile> & {
  /** The folder that relative paths start from: the configuration file's own. */
  readonly directory: string;
};

/**
 * Loads the agent's configuration; `documents`, `store` and `icon` come back absolute.
 * @throws ConfigError, DrawbridgeError `config_unreadable`
 */
export function loadDocsQaConfig(file: string): DocsQaConfig {
  const path = resolve(file);
  const directory = dirname(path);
  const config = loadYaml(DocsQaConfigFile, path);
  return {
    ...config,
    directory,
    documents: resolve(directory, config.documents),
    store: resolve(directory, config.store),
    ...(config.icon !== undefined && { icon: resolve(directory, config.icon) }),
  };
}
