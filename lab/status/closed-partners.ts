// Which organisation of a lab has contained or removed the other, and the task that admits it again.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import { federationStatus } from "./federation.ts";
import type { FederationStatus } from "./schema.ts";

export interface ClosedPartners {
  /** Such as `org-b is contained at org-a`. */
  readonly facts: readonly string[];
  /** Tasks that admit them again. */
  readonly commands: readonly string[];
}

/** By the registries; undefined where both admit each other. */
export async function closedPartners(lab: Lab): Promise<ClosedPartners | undefined> {
  const entries = COMPLETE_ORGANISATIONS.map(async (at) => [at, await federationStatus(lab, at)] as const);
  return closedPartnersIn(lab.name, await Promise.all(entries));
}

/** @param registries what each organisation's registry says */
export function closedPartnersIn(
  lab: string,
  registries: readonly (readonly [
    CompleteOrganisation,
    Readonly<Record<"containment" | "removed", FederationStatus["removed"]>>,
  ])[],
): ClosedPartners | undefined {
  const at = (list: "containment" | "removed") =>
    registries.flatMap(([organisation, status]) =>
      status[list].map(({ partner }) => ({ organisation, partner })),
    );
  const [contained, removed] = [at("containment"), at("removed")];
  if (contained.length > 0) {
    return {
      facts: contained.map(({ organisation, partner }) => `${partner} is contained at ${organisation}`),
      commands: contained.map(({ organisation, partner }) => restoreTask(lab, partner, organisation)),
    };
  }
  if (removed.length === 0) return undefined;
  return {
    facts: removed.map(({ organisation, partner }) => `${partner} is removed at ${organisation}`),
    commands: [`./task fed:readmit${named(lab)}`],
  };
}

/** Says what is closed, that questions are refused, and how to admit the partner again. */
export function closedNote({ facts, commands }: ClosedPartners): string {
  return [
    `${facts.join(", ")}: questions from one to the other are refused. To admit it again:`,
    ...commands.map((command) => `  ${command}`),
  ].join("\n");
}

/** The error of a question that could not be asked; what `closedNote` has said already is not repeated. */
export function explainRefusal(lab: string, error: unknown, closed: ClosedPartners | undefined): unknown {
  if (!(error instanceof DrawbridgeError)) return error;
  const { code, message } = error;
  if (closed !== undefined) {
    const text = code === "homeserver_refused" ? "the question was refused, as is said above" : message;
    return new DrawbridgeError(code, text, { cause: error });
  }
  if (code !== "homeserver_refused") return error;
  // After a restore people are invited, and have to accept.
  const hint = `./task fed:up${named(lab)} brings people and ghosts back into the shared rooms, such as after a restore.`;
  return new DrawbridgeError(code, message, { hint, cause: error });
}

/** The task that takes a containment back. */
export function restoreTask(lab: string, partner: string, organisation: string): string {
  return `./task fed:break-glass restore ${partner} --org ${organisation}${named(lab)}`;
}

/** The option that names a lab, with the space before it. */
export function named(lab: string): string {
  return lab === "default" ? "" : ` --name ${lab}`;
}
