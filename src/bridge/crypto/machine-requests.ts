// What a machine wants sent, as data that crosses threads, and the homeserver's answers on their way back.
// Invariant: a request keeps the identity that the machine gave it, so that its answer finds it.
import {
  type KeysClaimRequest,
  type OlmMachine,
  RequestType,
  type SignatureUploadRequest,
  ToDeviceRequest,
  type UploadSigningKeysRequest,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import type { OutgoingRequest } from "../matrix/device-api.ts";

interface SdkRequest {
  readonly id: string | undefined;
  readonly type: RequestType;
  readonly body: string;
}

const KINDS: ReadonlyMap<RequestType, OutgoingRequest["kind"]> = new Map([
  [RequestType.KeysUpload, "keys_upload"],
  [RequestType.KeysQuery, "keys_query"],
  [RequestType.KeysClaim, "keys_claim"],
  [RequestType.ToDevice, "to_device"],
  [RequestType.SignatureUpload, "signature_upload"],
] as const);

const TYPES = new Map([...KINDS].map(([type, kind]) => [kind, type]));

/** Requests without an identity of the machine's: it expects no answer to them. */
const WITHOUT_ANSWER = "unanswered:";

/** Undefined for what no ghost sends: verification messages in rooms, backups of keys. */
export function asOutgoing(request: SdkRequest): OutgoingRequest | undefined {
  const kind = KINDS.get(request.type);
  if (kind === undefined) return undefined;
  const made = { id: request.id ?? `${WITHOUT_ANSWER}${kind}`, kind, body: request.body };
  return request instanceof ToDeviceRequest
    ? { ...made, eventType: request.event_type, transactionId: request.txn_id }
    : made;
}

export async function outgoingOf(machine: OlmMachine): Promise<OutgoingRequest[]> {
  const requests = (await machine.outgoingRequests()) as readonly SdkRequest[];
  return requests.map(asOutgoing).filter((request) => request !== undefined);
}

export async function markSent(machine: OlmMachine, request: OutgoingRequest, answer: string): Promise<void> {
  const type = TYPES.get(request.kind);
  if (type === undefined || request.id.startsWith(WITHOUT_ANSWER)) return;
  await machine.markRequestAsSent(request.id, type, answer);
}

export const claimOf = (request: KeysClaimRequest | null | undefined): OutgoingRequest | undefined =>
  request ? asOutgoing(request) : undefined;

/** In the order in which they must be sent. */
export function bootstrapRequests(
  keys: SdkRequest | undefined,
  signing: UploadSigningKeysRequest,
  signatures: SignatureUploadRequest,
): OutgoingRequest[] {
  return [
    keys && asOutgoing(keys),
    {
      id: `${WITHOUT_ANSWER}signing_keys_upload`,
      kind: "signing_keys_upload" as const,
      body: signing.body,
    },
    asOutgoing(signatures),
  ].filter((request) => request !== undefined);
}
