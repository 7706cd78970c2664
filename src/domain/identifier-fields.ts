// The fields of files and of requests that hold an identifier or a digest. Invariant: threads that work with identifiers alone
// load no schemas, which take longer to load than all else that they need.
import * as z from "zod";
import { parseAgentId, parseServerName } from "./identifiers.ts";

export const text = (form: RegExp) => z.string().regex(form);

export const ServerNameField = z.string().refine((value) => parseServerName(value) !== undefined, {
  error: "must be a server name, its port included where it has one",
});

export const AgentName = z.string().refine((value) => parseAgentId(value) !== undefined, {
  error: "an agent's name has lower-case letters, digits, '.', '_' and '-', at most 64",
});

export const Sha256Digest = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/, { error: "must be sha256:<64 hex digits>" });
