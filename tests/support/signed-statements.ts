// A statement signed at once, and a file that keeps one: what the program does by a removal's own folder.
import type { DsseEnvelope } from "../../src/records/format/dsse-envelope.ts";
import {
  STATEMENT_PAYLOAD_TYPE,
  type Statement,
  statementBytes,
} from "../../src/records/format/statement.ts";
import type { Kept } from "../../src/records/sign/sign-once.ts";
import { addSignature, type Signer } from "../../src/records/sign/signer.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";

export function signStatement(statement: Statement<unknown>, signer: Signer): Promise<DsseEnvelope> {
  const payload = statementBytes(statement).toString("base64");
  return addSignature({ payloadType: STATEMENT_PAYLOAD_TYPE, payload, signatures: [] }, signer);
}

export function keptAt(file: string): Kept {
  return { read: () => readIfPresent(file), write: (text) => writeWhole(file, text, PRIVATE) };
}
