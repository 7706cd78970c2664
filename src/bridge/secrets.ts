// The secrets that a bridge's configuration refers to. The doctor reads them without the rest of a process (context.ts).
import { readSecret } from "../runtime/secrets.ts";
import type { BridgeConfig } from "./config.ts";
import { ContentKeys } from "./ledger/content-keys.ts";

/** @throws DrawbridgeError `secret_unavailable` */
export const readSecrets = ({ appservice, contentKeys, directory }: BridgeConfig) => ({
  asToken: readSecret(appservice.asToken, directory),
  hsToken: readSecret(appservice.hsToken, directory),
  keys: ContentKeys.parse(readSecret(contentKeys, directory)),
});
