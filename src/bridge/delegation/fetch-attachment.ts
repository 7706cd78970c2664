// The file that came with a question. Invariants: nothing is downloaded before agents.yaml and the verified card allow a type,
// and nothing goes to the agent whose type, by its bytes, both do not; a file goes whole, as its sender encrypted it, or the
// question ends; files that do not come take a part of an agent's slots alone, because a download spends no limiter token.
import type { AgentCard } from "../../cards/card-fields.ts";
import { serverOf } from "../../domain/identifiers.ts";
import type { Attachment } from "../ledger/prompts.ts";
import type { TerminalReason } from "../ledger/states.ts";
import { verifiedType } from "../matrix/files.ts";
import type { FilePart } from "./a2a/protocol.ts";
import type { ClearedTarget } from "./recheck-policy.ts";
import type { RunningDelegation } from "./running-delegation.ts";

export type Loaded =
  | { readonly kind: "loaded"; readonly file: FilePart }
  | { readonly kind: "refused"; readonly reason: TerminalReason }
  /** The homeserver does not have it just now, or others are being downloaded. */
  | { readonly kind: "unavailable"; readonly retryAfterMs: number };

const refused = (reason: TerminalReason): Loaded => ({ kind: "refused", reason });

export async function loadAttachment(
  running: RunningDelegation,
  cleared: ClearedTarget,
  attachment: Attachment,
): Promise<Loaded> {
  const { claimed, deps, host, signal } = running;
  const { bytes: bytesMax } = cleared.target.entry.attachments ?? {};
  if (bytesMax === undefined || acceptedTypes(cleared).length === 0) return refused("attachment_refused");
  if (attachment === "unreadable") return refused("attachment_unreadable");
  if (!host.mayDownload(claimed.agentId, serverOf(claimed.sender)))
    return { kind: "unavailable", retryAfterMs: 0 };
  running.isDownloading = true;
  const downloaded = await deps.download(claimed.ghost, attachment, bytesMax, signal).finally(() => {
    running.isDownloading = false;
  });
  signal.throwIfAborted();
  if (downloaded.kind === "retry") return { kind: "unavailable", retryAfterMs: downloaded.afterMs };
  if (downloaded.kind === "refused" || downloaded.value === "damaged")
    return refused("attachment_unreadable");
  if (downloaded.value === "too_large") return refused("attachment_too_large");
  const content = downloaded.value;
  const { name, mediaType } = attachment;
  return { kind: "loaded", file: { name, mediaType: verifiedType({ mediaType, content }), content } };
}

/** Why a file may not go to the agent; asked after the last check of the agent, because both may have changed. */
export function refusalOf(cleared: ClearedTarget, { mediaType, content }: FilePart) {
  if (!acceptedTypes(cleared).includes(mediaType)) return "attachment_refused";
  const { bytes = 0 } = cleared.target.entry.attachments ?? {};
  return content.length > bytes ? "attachment_too_large" : undefined;
}

function acceptedTypes({ target, card }: ClearedTarget): readonly string[] {
  const modes = inputModes(card);
  return (target.entry.attachments?.types ?? []).filter(
    (type) => modes.has(type) || modes.has(`${type.split("/")[0]}/*`) || modes.has("*/*"),
  );
}

/** What the agent takes by default, or with one of its skills (A2A 1.0, section 4.4.5). */
function inputModes({ defaultInputModes, skills }: AgentCard): ReadonlySet<string> {
  const modes = [...defaultInputModes, ...skills.flatMap((skill) => skill.inputModes ?? [])];
  return new Set(modes.map((mode) => mode.split(";", 1)[0]?.trim().toLowerCase() ?? ""));
}
