// Stage 4 closes plane 3: another policy is in force, a denial by it was seen, and nothing was restarted.
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { Observation, Rule } from "./observation.ts";
import { VIOLATION } from "./stated-probes.ts";

const STARTED = "started_at=";

/** When the homeserver that answers was started, if its border module says so. */
export function startedAtIn(items: readonly EvidenceItem[]): string | null {
  for (const { probe, references } of items) {
    if (probe !== "policy_in_force") continue;
    const found = references.find((reference) => reference.startsWith(STARTED));
    if (found !== undefined) return found.slice(STARTED.length);
  }
  return null;
}

function policyIn(items: readonly EvidenceItem[]): string | undefined {
  const inForce = items.find(({ probe, verdict }) => probe === "policy_in_force" && verdict === "closed");
  return inForce?.references.find((reference) => reference.startsWith("sha256:"));
}

/**
 * Where the transport was cut before the border, nothing reaches it that it could deny: what it answers about
 * the counterparty when it is asked stands for a denial then, beside the transport's.
 */
function wasCutBefore(items: readonly EvidenceItem[]): boolean {
  const isRefused = items.some(
    ({ probe, verdict, layer }) => probe === "invite" && verdict === "closed" && layer === "transport",
  );
  return isRefused && !items.some(({ probe }) => probe === VIOLATION);
}

export function borderRules({ items, policyBefore, startedBefore }: Observation): readonly Rule[] {
  const policy = policyIn(items);
  const isOld = policy !== undefined && policy === policyBefore.digest && !policyBefore.excluded;
  const startedNow = startedAtIn(items);
  const restarted = startedBefore !== null && startedNow !== null && startedBefore !== startedNow;
  const isCutBefore = wasCutBefore(items);
  const reload = "drawbridge reconcile --once --plane border.";
  return [
    {
      condition: "policy_digest_changed",
      probes: ["policy_in_force", "policy_check"],
      needs: ["policy_in_force", "policy_check"],
      hint: `The border still admits it: ${reload}`,
      ...(isOld && {
        objection: {
          verdict: "not_met" as const,
          found: `the policy in force is the one from before: ${policy}`,
          hint: `See that the registry closes the border plane, then ${reload}`,
        },
      }),
    },
    {
      condition: "server_not_allowed",
      ...(isCutBefore
        ? { probes: ["policy_check", "invite"], needs: ["policy_check", "invite"] }
        : { probes: [VIOLATION, "invite"], needs: [VIOLATION] }),
      hint: "No denial was written yet: run the step again with --probe-config and a probe file that has a signing key and an invitee.",
    },
    {
      condition: "no_restart",
      probes: ["policy_in_force"],
      needs: ["policy_in_force"],
      hint: reload,
      optional: startedBefore === null || startedNow === null,
      ...(restarted && {
        objection: {
          verdict: "not_met" as const,
          found: `the homeserver was restarted at ${startedNow}`,
          hint: "Run drawbridge offboarding next again: it is measured anew, from this process on.",
        },
      }),
    },
  ];
}
